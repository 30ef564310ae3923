"""`edl plan`, `why` and `what-if` plan with the facts that the running operator plans with: one reading of a record."""

from dataclasses import replace

import pytest

from autoscaler.cli.kubernetes.cluster_snapshot import read_cluster_snapshot
from autoscaler.clusters.kubernetes.api.kinds import CONFIG_MAPS, PRIORITY_CLASSES
from autoscaler.domain import PodName
from autoscaler.jobs.progress import JobProgress
from autoscaler.jobs.trainer_ledger import TrainerVerdict, WorkState
from autoscaler.operator.process.policy_file import policy_config_map
from autoscaler.throughput.observations import ObservationLog, SizeObservation
from master.api.master_status import JobPhase
from tests.unit.operator.bench import JOB
from tests.unit.operator.term import Term

TRAINING = JobProgress(
    phase=JobPhase.TRAINING,
    term=1,
    total=10_000_000,
    done=9_996_400,
    quarantined=7,
    samples_per_s=83.4,
    waiting_share=0.37,
    resize_pause_s=1.2345,
    training=2,
    checkpoint_age_s=47.0,
)


async def led(**spec):
    """A leader whose job trains, with its policy where commands of users read it."""
    term = Term(spec=spec)
    await term.bench.api.create(CONFIG_MAPS, policy_config_map(term.policy, namespace="team-a"))
    await term.step(6)
    return term


async def facts_of_both(term):
    """The job in the operator's view and in that of the command line, at one instant."""
    await term.watch()
    [own] = term.leading.cluster.view().jobs
    found = await read_cluster_snapshot(term.bench.api, title="here", now_s=term.bench.now_s)
    [told] = found.snapshot.view.jobs
    return own, replace(told, remaining_work=None), found


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"samples_per_s": 0.25},
        {"samples_per_s": 0.0},
        {"samples_per_s": 149.6, "done": 0},
        {"total": 0, "done": 0},
        {"done": 10_000_000},
    ],
    ids=["nearly done", "less than a sample a second", "no rate", "just begun", "no data yet", "done"],
)
@pytest.mark.parametrize("is_group", [False, True], ids=["with servers", "group"])
async def test_facts_of_a_job_are_those_of_the_operator(changes, is_group):
    """A status tells 99.96 % as 100.0 %, and no rate below 1: time left, age, pause, curve and idle trainers agree."""
    term = await led(**({"server": None, "group": {"globalBatch": 8}} if is_group else {}))
    record, now_s = term.leading.store.records[JOB], term.bench.now_s
    points = ObservationLog()
    for size, speed in ((1, 50.0), (2, 83.0), (4, 120.0)):
        at = SizeObservation(trainers=size, samples_per_s=speed, duration_s=60.0, at_s=now_s, setting="b 8")
        points = points.add(at)
    idle = TrainerVerdict(name="digits-trainer-1", state=WorkState.IDLE, since_s=now_s - 400.0, gives=True)
    term.leading.store.change(
        record.job,
        progress=replace(TRAINING, **changes),
        progress_at_s=now_s,
        checkpoint_at_s=now_s - 47.0,
        throughput=replace(record.throughput, log=points, setting="none"),
        still=(idle,),
    )
    await term.step(1)
    own, told, _ = await facts_of_both(term)
    assert own.idle[0].pod == PodName("team-a/digits-trainer-1")
    assert replace(told, throughput=own.throughput) == own
    assert own.remaining_s == told.remaining_s


async def test_job_is_held_where_the_operator_holds_it():
    """Without its PriorityClasses EDL creates nothing, and the plan of a command says so too."""
    term = await led()
    await term.bench.api.delete(PRIORITY_CLASSES, "edl-surplus-3")
    own, told, found = await facts_of_both(term)
    assert told.hold_until_s == own.hold_until_s > term.bench.now_s
    assert "no job gets pods: PriorityClass edl-surplus-3 is missing; the chart installs it" in found.omissions


async def test_a_policy_that_cannot_be_read_holds_nothing():
    """Which classes the operator asks for is not known then."""
    term = Term()
    await term.step(2)
    await term.bench.api.delete(PRIORITY_CLASSES, "edl-surplus-3")
    _, told, found = await facts_of_both(term)
    assert told.hold_until_s == 0.0
    assert not any("no job gets pods" in one for one in found.omissions)


async def test_a_job_that_is_only_observed_is_told_as_such():
    """The operator leaves its size alone; this plan shows what EDL would do with it."""
    term = Term(spec={"mode": "observe"})
    await term.step(2)
    _, _, found = await facts_of_both(term)
    assert f"tj/{JOB} is only observed, and planned here as if EDL resized it" in found.omissions
