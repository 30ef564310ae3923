"""A suspended job loses nothing: trainers leave, servers hand their model to a checkpoint, the master goes last."""

from dataclasses import replace

import pytest

from autoscaler.domain import Role
from tests.chaos.head_watch import HeadWatch
from tests.integration.faults.ledger_job import BUDGET_S, JOB, SHAPE, finish, trained, until

pytestmark = [pytest.mark.timeout(400)]


@pytest.mark.parametrize("copies", [1, 2])
async def test_what_was_trained_since_the_last_checkpoint_is_committed_before_the_servers_go(chaos_run, copies):
    """No checkpoint is due for an hour: all that is in the model comes from the suspension."""
    await chaos_run.submit(JOB, replace(SHAPE, checkpoint_every_s=3600.0, copies=copies))
    before = await chaos_run.wait_for(JOB, lambda s: trained(s) >= 100, "it trains", BUDGET_S)
    assert before.positions.committed == 0
    watch = HeadWatch(chaos_run.checkpoint_uri(JOB))
    async with watch.following():
        await chaos_run.suspend(JOB, on=True)
        await until(lambda: chaos_run.job(JOB).condition != "Running", "the operator sees it")
        assert chaos_run.job(JOB).condition == "Suspending", "whoever waits for Suspended waits for the checkpoint"
        await until(lambda: not chaos_run.has_pods(JOB), "all pods have left")
        assert chaos_run.job(JOB).condition == "Suspended"
        assert order_of(chaos_run) == [Role.TRAINER, Role.SERVER, Role.MASTER]
        assert all(gone == "exited with 0" for gone in ends_of(chaos_run)), ends_of(chaos_run)
        await until(lambda: watch.heads, "its checkpoint is read")
        assert len(watch.heads) == 1
        await chaos_run.suspend(JOB, on=False)
        after = await chaos_run.wait_for(JOB, lambda s: trained(s) > 0, "it goes on", BUDGET_S)
        assert after.positions.committed >= trained(before)
        assert after.reworked == 0
        await finish(chaos_run, watch)


def order_of(chaos_run):
    """The roles in the order in which they were told to leave."""
    leaving = [event.object for event in chaos_run.events if event.reason == "Leaving"]
    return list(dict.fromkeys(Role(name.removeprefix(f"pod/{JOB}-").split("-")[0]) for name in leaving))


def ends_of(chaos_run):
    return [event.message for event in chaos_run.events if event.reason == "Gone"]
