"""A suspended job loses nothing: trainers leave, servers hand their model to a checkpoint, the master goes last."""

from dataclasses import replace

import pytest

from autoscaler.clusters.local.run.run_snapshot import condition_of
from autoscaler.domain import Role
from tests.chaos.chaos_run import start_chaos_run
from tests.chaos.head_watch import HeadWatch
from tests.integration.faults.ledger_job import BUDGET_S, JOB, SHAPE, finish, trained, until

pytestmark = [pytest.mark.timeout(400)]


@pytest.fixture
async def stage(tmp_path):
    async with start_chaos_run(tmp_path, members=1) as stage:
        yield stage


@pytest.mark.parametrize("copies", [1, 2])
async def test_what_was_trained_since_the_last_checkpoint_is_committed_before_the_servers_go(stage, copies):
    """No checkpoint is due for an hour: all that is in the model comes from the suspension."""
    stage.submit(JOB, replace(SHAPE, checkpoint_every_s=3600.0, copies=copies))
    before = await stage.wait_for(JOB, lambda s: trained(s) >= 100, "it trains", BUDGET_S)
    assert before.positions.committed == 0
    watch = HeadWatch(stage.checkpoint_uri(JOB))
    async with watch.following():
        stage.run.cluster.suspend(JOB, on=True)
        assert condition_of(stage.record(JOB)) == "Suspending", "whoever waits for Suspended waits for the checkpoint"
        await until(lambda: not stage.run.cluster.table.job_pods(JOB), "all pods have left")
        assert condition_of(stage.record(JOB)) == "Suspended"
        assert order_of(stage) == [Role.TRAINER, Role.SERVER, Role.MASTER]
        assert all(gone == "exited with 0" for gone in ends_of(stage)), ends_of(stage)
        await until(lambda: watch.heads, "its checkpoint is read")
        assert len(watch.heads) == 1
        stage.run.cluster.suspend(JOB, on=False)
        after = await stage.wait_for(JOB, lambda s: trained(s) > 0, "it goes on", BUDGET_S)
        assert after.positions.committed >= trained(before)
        assert after.reworked == 0
        await finish(stage, watch)


def order_of(stage):
    """The roles in the order in which they were told to leave."""
    leaving = [event.object for event in stage.run.recorder.events if event.reason == "Leaving"]
    return list(dict.fromkeys(Role(name.split("-")[-2]) for name in leaving))


def ends_of(stage):
    return [event.message for event in stage.run.recorder.events if event.reason == "Gone"]
