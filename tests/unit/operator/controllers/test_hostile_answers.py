"""What a job's own master may answer, its image being its owner's: each value is in its range, or the answer is none.

The operator shows most of these numbers in the job's status, whose definition has bounds: what the API server refuses
once it refuses for ever, and an exception while they are counted ended the operator (A11).
"""

import asyncio
import json
from dataclasses import replace

import pytest

from autoscaler.clusters.kubernetes.api.kinds import TRAINING_JOBS
from autoscaler.jobs.progress import LONGEST_PROBLEM, MalformedAnswer, progress_of
from master.api.document import encode_document
from master.api.errors import ContractError
from master.api.master_status import MOST_MEMBERS, decode_status
from master.api.messages.to_members import Refused
from master.api.servers_answer import ServersAnswer, decode_answer
from tests.unit.master.api.test_master_status import TOLD
from tests.unit.operator.bench import JOB
from tests.unit.operator.fake_master import HERE
from tests.unit.operator.term import Term

NAN, INF = float("nan"), float("inf")
OF_STATUS = [
    *(("checkpoint_age_s", value) for value in (NAN, INF, 1e18, -1e18, -1.0, 10**400)),
    *(("resize_pause_s", value) for value in (NAN, INF, -1.0, 1e300)),
    *(("positions.committed", value) for value in (10**400, 10**9, -1)),
    *(("positions.total", value) for value in (-1, 2**70)),
    *(("lineage", value) for value in (2**63, 2**70, -1)),
    *(("epochs", value) for value in (2**70, -(2**70), 10**400)),
    *(("servers_wanted", value) for value in (2**40, -1)),
    *(("servers", value) for value in (2**40, -1)),
    *((name, -1) for name in ("term", "reworked", "epochs_committed")),
    *((name, -1) for name in ("single_copies", "copies", "moving", "waiting_to_move")),
    *((name, 2**31) for name in ("single_copies", "copies", "moving")),
    *((f"members.0.{name}", value) for name in ("waiting_share", "samples_per_s") for value in (NAN, INF, -5.0, 1e300)),
    *(("members.0.ordinal", value) for value in (-1, 2**40)),
    *(("members.0.buckets", value) for value in (-1, 2**40)),
    *(("members.0.metrics", value) for value in ({"loss": NAN}, {"loss": INF})),
    ("members.0.name", "x" * 5000),
    ("head", "x" * 5000),
    ("problem", "half a character: \ud800"),
    ("positions.quarantined", 2**62),
]


def answer(path="term", value=2):
    """What a master says, with one value put in."""
    plain = here = json.loads(encode_document(TOLD))
    *way, last = path.split(".")
    for step in way:
        here = here[int(step)] if step.isdigit() else here[step]
    here[last] = value
    return json.dumps(plain).encode()


@pytest.mark.parametrize(("path", "value"), OF_STATUS)
def test_value_that_cannot_be_is_refused_by_its_name(path, value):
    """The error is one of the contract, names the field, and has a length."""
    with pytest.raises(ContractError) as refused:
        decode_status(answer(path, value))
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("document", [b"[" * 100_000, b'{"term": ' + b"9" * 5000 + b"}", b"\xff", b"NaN", b""])
def test_document_that_no_reader_stands_is_refused(document):
    """Nesting without end, a number of 5,000 digits, bytes that are no text."""
    with pytest.raises(ContractError):
        decode_status(document)


def test_more_members_than_a_job_can_have_are_refused_before_they_are_read():
    """Reading 100,000 of them would keep all other jobs waiting."""
    one = json.loads(answer())["members"][0]
    with pytest.raises(ContractError, match="has 25,001 of them"):
        decode_status(answer("members", [one] * (MOST_MEMBERS + 1)))


@pytest.mark.parametrize(
    ("path", "value"),
    [("problem", "x" * (1 << 20)), ("failures", []), ("members.0.metrics", {"loss": 1e308}), ("checkpoint_age_s", 0)],
)
def test_value_at_its_bound_is_read(path, value):
    """The door refuses what cannot be, and nothing else."""
    progress_of(decode_status(answer(path, value)))


def test_problem_is_cut_and_moves_no_terminal():
    """1 MiB was logged whole at every second poll; escape codes reach whoever reads the status."""
    told = progress_of(
        decode_status(answer("problem", "\x1b[2Ja\x00b\n" + "x" * (1 << 20) + "\nKeyError: why"))
    ).problem
    assert len(told) == LONGEST_PROBLEM
    assert told.startswith("\ufffd[2Ja\ufffdb\nxxx")
    assert told.endswith("xxx\nKeyError: why"), "a traceback says last why"
    assert " ... " in told


def test_loss_of_two_trainers_that_diverge_is_no_infinity():
    """The mean of two finite numbers is finite."""
    one = json.loads(answer())["members"][0] | {"metrics": {"loss": 1.7e308}}
    assert progress_of(decode_status(answer("members", [one, one]))).loss == 1.7e308


@pytest.mark.parametrize("number", [-1, 2**40, 2**70])
@pytest.mark.parametrize("field", ["count", "least", "most"])
def test_answer_of_servers_that_cannot_be_is_refused(field, number):
    """`count` is what the operator goes on with."""
    plain = json.loads(encode_document(ServersAnswer(count=1, least=1, most=2, refused=Refused(field="f", message=""))))
    with pytest.raises(ContractError, match=r"out of range|beyond 64 bits"):
        decode_answer(json.dumps(plain | {field: number}).encode())


def test_malformed_answer_is_told_on_its_job_and_its_status_goes_on():
    """The whole way of an answer through a leader's term: read, kept, told (A11)."""
    asyncio.run(hear(MalformedAnswer(problem="lineage: is out of range")))


async def hear(malformed):
    term = Term()
    await term.step(8)
    good = replace(progress_of(decode_status(answer())), ledger=(HERE,))
    for said, reason in ((good, "Training"), (malformed, "MalformedAnswer"), (malformed, "MalformedAnswer")):
        await listen(term, said)
        assert term.told("Progressing")[1] == reason
    assert term.reasons().count("MalformedAnswer") == 1, "an event for each change, none for each poll"
    await listen(term, good)
    assert term.told("Progressing") == ("True", "Training"), "what is over is over"


async def listen(term, said):
    async def poll(job, masters, **_):
        return (masters[0]["metadata"]["name"], said) if said.__class__ is not MalformedAnswer else said

    term.leading.masters.poll = poll
    await term.leading.poller.poll(term.leading.store.objects.jobs[JOB])
    term.bench.now_s += 12.0
    await term.step()
    assert term.server.get(TRAINING_JOBS, "team-a", "digits")["status"]


@pytest.mark.parametrize("most", [True, False])
def test_answer_at_all_its_bounds_is_told_within_those_of_the_definition(most):
    """What the door lets in the API server takes: else the status would stand still for ever (A11)."""
    asyncio.run(hear_bounds(most))


async def hear_bounds(most):
    plain = json.loads(answer())
    counts = dict.fromkeys(plain["positions"], 0) | {
        "total": 2**63 - 1 if most else 0,
        "committed": 2**63 - 1 if most else 0,
    }
    small = dict.fromkeys(("servers", "servers_wanted", "copies", "single_copies", "moving"), 2**31 - 1 if most else 0)
    large = dict.fromkeys(("lineage", "epochs", "term", "reworked"), 2**63 - 1 if most else 0)
    one = plain["members"][0] | {"role": "trainer", "samples_per_s": 1e12 if most else 5e-324, "waiting_share": 1.0}
    plain |= {**small, **large, "positions": counts, "members": [one], "checkpoint_age_s": 1e9 if most else 0.0}
    term = Term()
    await term.step(8)
    await listen(term, progress_of(decode_status(json.dumps(plain).encode())))
    status = term.status()
    assert 0 <= status["progress"]["epoch"] <= 2**63 - 1
    assert len(status["progress"].get("percent", "")) <= 8
    assert 0 <= status["progress"]["waitingPercent"] <= 100
    assert status["servers"]["wanted"] == small["servers_wanted"]
    assert term.told("Progressing") == ("True", "Training")
