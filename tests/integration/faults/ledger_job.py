"""What the fault tests share: a ledger job that trains, waiting for what is seen from outside, and its verdict."""

from autoscaler.jobs.lifecycle import JobEnding
from tests.chaos.chaos_run import ChaosJobShape
from tests.chaos.ledger import read_diaries, verdict
from tests.harness.waiting import wait_for_async

BUDGET_S = 120.0
JOB = "ledger"
SHAPE = ChaosJobShape(  # its steps alone would take 100 s, and no pause of a machine ends a term: see `finish`
    size=200,
    epochs=16,
    batch_size=4,
    step_s=0.25,
    most_trainers=2,
    checkpoint_every_s=0.5,
    leader_ttl_s=10,
    reconnect_s=10.0,
    grace_s=60.0,
    buckets=16,
)


async def begin(chaos_run, shape=SHAPE):
    """The job trains and has a checkpoint; its status."""
    await chaos_run.submit(JOB, shape)
    return await chaos_run.wait_for(JOB, lambda s: s.positions.committed > 0, "the first checkpoint", BUDGET_S)


async def finish(chaos_run, watch):
    """The job completes, as soon as it can, and its ledger is in order; the last head."""
    chaos_run.hurry(JOB)
    await chaos_run.wait_end(JOB, BUDGET_S)
    watch.look()
    assert chaos_run.job(JOB).condition == JobEnding.COMPLETED, chaos_run.job(JOB).message
    assert verdict(watch.heads, read_diaries(chaos_run.diaries(JOB))) == []
    return watch.heads[-1]


async def until(condition, what, budget_s=BUDGET_S):
    """The first true answer of the condition."""
    return await wait_for_async(what, condition, budget_s=budget_s)


def pids(chaos_run, role):
    return {pod.name: pod.pid for pod in chaos_run.pods(JOB, role)}


def trained(status):
    """Positions that are in the model, committed or not."""
    return status.positions.done + status.positions.committed
