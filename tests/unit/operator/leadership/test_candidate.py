"""One Lease and several operators whose clocks stop, jump and answer late: never two of them may write."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from autoscaler.clusters.kubernetes.api.api_port import REQUEST_TIMEOUT_S
from autoscaler.errors import InvalidSpecError
from autoscaler.operator.leadership.candidate import (
    LeaseCandidate,
    LeaseRecord,
    LeaseTiming,
    RetryAt,
    WriteLease,
    observe_lease,
    plan_lease,
    renew_hold,
    resign,
)

TIMING = LeaseTiming(duration_s=8, renew_deadline_s=6.0, retry_s=2.0)


def candidate(name="a"):
    return LeaseCandidate(identity=name, timing=TIMING)


def held_by(name, version="7"):
    return LeaseRecord(holder=name, resource_version=version, transitions=3, duration_s=8)


def test_without_a_lease_it_is_made():
    assert plan_lease(observe_lease(candidate(), None, 0.0), 0.0) == WriteLease(over=None, transitions=0)


def test_a_lease_that_is_renewed_is_never_taken():
    me = candidate()
    for instant in range(100):
        me = observe_lease(me, held_by("b", str(instant)), float(instant))
        assert isinstance(plan_lease(me, float(instant)), RetryAt)


def test_a_lease_unchanged_for_its_duration_is_taken_over():
    me = observe_lease(candidate(), held_by("b"), 10.0)
    assert plan_lease(me, 17.9) == RetryAt(until_s=18.0)
    assert plan_lease(observe_lease(me, held_by("b"), 18.0), 18.0) == WriteLease(over=held_by("b"), transitions=4)


def test_a_longer_duration_of_the_holder_is_kept():
    me = observe_lease(candidate(), replace(held_by("b"), duration_s=30), 0.0)
    assert plan_lease(me, 29.0) == RetryAt(until_s=30.0)


def test_a_lease_given_back_is_taken_at_once():
    assert plan_lease(observe_lease(candidate(), held_by(""), 0.0), 0.0) == WriteLease(over=held_by(""), transitions=4)


def test_the_right_to_write_counts_from_before_the_renewal_was_sent():
    me = renew_hold(observe_lease(candidate(), None, 0.0), held_by("a"), sent_s=1.0)
    assert me.may_write(6.9)
    assert not me.may_write(7.0)


def test_seeing_somebody_else_ends_it_at_once():
    me = renew_hold(observe_lease(candidate(), None, 0.0), held_by("a"), sent_s=1.0)
    assert not observe_lease(me, held_by("b", "8"), 2.0).may_write(2.0)


def test_a_lease_that_somebody_deleted_ends_it_at_once():
    me = renew_hold(observe_lease(candidate(), None, 0.0), held_by("a"), sent_s=1.0)
    assert not observe_lease(me, None, 2.0).may_write(2.0)


def test_after_resigning_nothing_is_written():
    assert not resign(renew_hold(candidate(), held_by("a"), sent_s=1.0)).may_write(1.0)


def test_a_write_let_through_has_ended_before_anybody_else_writes():
    timing = LeaseTiming()
    assert timing.duration_s - timing.renew_deadline_s >= REQUEST_TIMEOUT_S


def test_a_restart_under_the_same_name_has_to_renew_first():
    me = observe_lease(candidate(), held_by("a"), 0.0)
    assert not me.may_write(0.0)
    assert plan_lease(me, 0.0) == WriteLease(over=held_by("a"), transitions=3)


@pytest.mark.parametrize(("duration_s", "deadline_s", "retry_s"), [(8, 8.0, 2.0), (8, 2.0, 2.0), (8, 6.0, 0.0)])
def test_a_timing_out_of_order_is_refused(duration_s, deadline_s, retry_s):
    with pytest.raises(InvalidSpecError, match="leaderElection"):
        LeaseTiming(duration_s=duration_s, renew_deadline_s=deadline_s, retry_s=retry_s)


@dataclass
class Request:
    who: str
    write: WriteLease
    sent_s: float


NAMES = st.sampled_from(["a", "b"])


class Operators(RuleBasedStateMachine):
    """Reads, writes and answers in any order and as late as one likes; the API server keeps one version at a time."""

    def __init__(self):
        super().__init__()
        self.now_s = 0.0
        self.version = 0
        self.lease = None
        self.operators = {name: candidate(name) for name in "ab"}
        self.requests = []
        self.answers = []

    @rule(passed_s=st.sampled_from([0.1, 2.0, 5.5, 8.0]))
    def wait(self, passed_s):
        self.now_s += passed_s

    @rule(name=NAMES)
    def read(self, name):
        self.operators[name] = observe_lease(self.operators[name], self.lease, self.now_s)

    @rule(name=NAMES)
    def send(self, name):
        match plan_lease(self.operators[name], self.now_s):
            case WriteLease() as write:
                self.requests.append(Request(name, write, self.now_s))
            case RetryAt(until_s=until_s):
                assert until_s > self.now_s

    @rule(name=NAMES)
    def campaign(self, name):
        """All at once, as it goes on a quiet day."""
        self.read(name)
        match plan_lease(self.operators[name], self.now_s):
            case WriteLease() as write:
                self.reach(Request(name, write, self.now_s))
                request, record = self.answers.pop()
                self.operators[name] = renew_hold(self.operators[name], record, sent_s=request.sent_s)
            case RetryAt():
                pass

    @rule(data=st.data())
    def arrive(self, data):
        """A request reaches the API server, perhaps long after it was sent."""
        if self.requests:
            self.reach(self.requests.pop(data.draw(st.integers(0, len(self.requests) - 1))))

    def reach(self, request):
        if request.write.over != self.lease:
            return
        self.version += 1
        self.lease = LeaseRecord(
            holder=request.who,
            resource_version=str(self.version),
            transitions=request.write.transitions,
            duration_s=TIMING.duration_s,
        )
        self.answers.append((request, self.lease))

    @rule(data=st.data())
    def answer(self, data):
        if self.answers:
            request, record = self.answers.pop(data.draw(st.integers(0, len(self.answers) - 1)))
            self.operators[request.who] = renew_hold(self.operators[request.who], record, sent_s=request.sent_s)

    @invariant()
    def at_most_one_writes(self):
        writers = [name for name, operator in self.operators.items() if operator.may_write(self.now_s)]
        assert len(writers) <= 1, f"{writers} may write at {self.now_s}"


TestOperators = Operators.TestCase
