"""Who proves a job's secret, once, is let through; what was seen of a proof opens nothing (ADR 0171)."""

import pytest

from master.api.wire.call_proof import CHALLENGE_KEY, NONCE_KEY, PROOF_KEY, Prover, UnprovenMasterError
from master.api.wire.calls import SET_SERVERS, STATUS
from master.process.auth_interceptor import CHALLENGE_TTL_S, AuthInterceptor, Challenges

TOKEN, JOB = "s3cret" * 8, "digits"


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def gate(clock):
    return AuthInterceptor(token=TOKEN.encode(), job=JOB, challenges=Challenges(clock=clock, most_spent=4))


def proving(gate, *, token=TOKEN, job=JOB, method=STATUS):
    """A call of somebody who has just been refused, and so has a challenge."""
    prover = Prover(token=token, job=job)
    assert prover.store_challenge([(CHALLENGE_KEY, gate._challenges.issue())])
    return prover.begin(method)


def test_each_side_proves_the_secret_and_neither_sends_it(gate):
    """The master's proof answers the member's nonce; the next call needs no refusal first."""
    prover = Prover(token=TOKEN, job=JOB)
    first = prover.begin(STATUS)
    assert not gate.admits(STATUS, first.metadata)
    prover.store_challenge([(CHALLENGE_KEY, gate._challenges.issue())])
    for _ in range(3):
        call = prover.begin(STATUS)
        assert gate.admits(STATUS, call.metadata)
        answer = gate.answer(STATUS, call.metadata)
        call.check(answer)
        assert not any(TOKEN in value for _, value in (*call.metadata, *answer))
    assert prover.has_met_master


def test_a_proof_is_good_once(gate):
    """Who took it down at the master's port, or on the way, cannot use it again."""
    call = proving(gate)
    assert gate.admits(STATUS, call.metadata)
    assert not gate.admits(STATUS, call.metadata)


def test_a_proof_is_for_one_method_job_and_secret(gate):
    """A question's proof sets no servers; a neighbour's opens no other job."""
    assert not gate.admits(SET_SERVERS, proving(gate).metadata)
    assert not gate.admits(STATUS, proving(gate, job="other").metadata)
    assert not gate.admits(STATUS, proving(gate, token="guess").metadata)
    assert not gate.admits(STATUS, proving(gate, token=TOKEN[:-1]).metadata)


def test_a_challenge_has_an_end_and_is_the_gates_own(gate, clock):
    """Late, forged, of another process, or changed in any place: no."""
    late = proving(gate)
    clock.now_s += CHALLENGE_TTL_S + 1
    assert not gate.admits(STATUS, late.metadata)
    other = AuthInterceptor(token=TOKEN.encode(), job=JOB, challenges=Challenges(clock=clock))
    assert not gate.admits(STATUS, proving(other).metadata)
    good = gate._challenges.issue()
    for place in range(len(good)):
        forged = good[:place] + ("0" if good[place] != "0" else "1") + good[place + 1 :]
        assert not gate._challenges.is_valid(forged)
    for odd in ("", "zz", good.upper() if good.upper() != good else "AA", good[:-2], good + "00", "é" * 40):
        assert not gate._challenges.is_valid(odd)
    assert gate._challenges.is_valid(good)


def test_what_is_remembered_has_a_bound_and_forgets_no_spent_challenge(gate, clock):
    """Where the memory is full, the oldest ones are too old; none of them is good again."""
    used = []
    for _ in range(20):
        clock.now_s += 1
        used.append(proving(gate))
        assert gate.admits(STATUS, used[-1].metadata)
    assert len(gate._challenges._spent) <= 4
    assert not any(gate.admits(STATUS, call.metadata) for call in used)
    clock.now_s += 1
    assert gate.admits(STATUS, proving(gate).metadata)


@pytest.mark.parametrize(
    "metadata",
    [None, [], [(PROOF_KEY, "")], [(CHALLENGE_KEY, "x" * 10_000), (NONCE_KEY, b"\0"), (PROOF_KEY, "é")]],
)
def test_odd_metadata_is_no_proof(gate, metadata):
    """Nothing raises: a stranger leaves no traceback."""
    assert not gate.admits(STATUS, metadata)


@pytest.mark.parametrize("answer", [None, [], [(PROOF_KEY, "0" * 64)], [(PROOF_KEY, "é" * 70)]])
def test_a_master_that_proves_nothing_is_none(gate, answer):
    """Nor is one that plays the member's own proof back."""
    call = proving(gate)
    with pytest.raises(UnprovenMasterError):
        call.check(answer)
    with pytest.raises(UnprovenMasterError):
        call.check(call.metadata)
