"""Training scripts that fail: the user sees who, why and what follows; nothing is retried for ever (M4)."""

import pytest

from autoscaler.jobs.lifecycle import JobEnding
from master.api.positions import PositionSet
from tests.chaos.chaos_run import ChaosJobShape
from tests.chaos.head_watch import HeadWatch
from tests.integration.faults.ledger_job import BUDGET_S, JOB, finish

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]

POISON = 37
BATCH = 4


def shape(*options, **changes):
    return ChaosJobShape(
        **{
            "size": 60,
            "epochs": 40,
            "batch_size": BATCH,
            "step_s": 0.25,
            "most_trainers": 2,
            "checkpoint_every_s": 0.5,
            "buckets": 16,
            "reconnect_s": 10.0,
            "leader_ttl_s": 10,
            "backoff_limit": 4,
            "trainer_options": options,
        }
        | changes
    )


def failures(chaos_run):
    return [event for event in chaos_run.events if event.reason == "TrainerFailed"]


@pytest.mark.parametrize("how", ["--raises", ""])
async def test_positions_that_end_their_trainers_are_quarantined_and_the_job_completes(chaos_run, how):
    """After three trainers its batch is left out, listed in the status and in the checkpoint; all else is trained."""
    await chaos_run.submit(JOB, shape(f"--poison={POISON}", *filter(None, [how])))
    watch = HeadWatch(chaos_run.checkpoint_uri(JOB))
    async with watch.following():
        status = await chaos_run.wait_for(JOB, lambda s: bool(s.quarantine), "the quarantine", BUDGET_S)
        assert POISON in status.quarantine
        assert len(status.quarantine) <= BATCH
        assert sum(POISON in failure.positions for failure in status.failures) >= 3
        head = await finish(chaos_run, watch)
    assert head.manifest.quarantine == status.quarantine
    assert head.manifest.data == head.manifest.dataset.everything - head.manifest.quarantine


async def test_a_script_that_raises_is_shown_with_its_last_words_and_what_follows(chaos_run):
    """The event of the job names the trainer, the lines of its log, and when a new one starts."""
    await chaos_run.submit(JOB, shape(f"--poison={POISON}", "--raises"))
    watch = HeadWatch(chaos_run.checkpoint_uri(JOB))
    async with watch.following():
        failed = lambda s: any(f"position {POISON} cannot be trained" in f.message for f in s.failures)  # noqa: E731
        status = await chaos_run.wait_for(JOB, failed, "the master hears of it", BUDGET_S)
        assert PositionSet.of(POISON) <= status.failures[0].positions
        await finish(chaos_run, watch)
    event = failures(chaos_run)[0]
    assert event.object == f"tj/{JOB}"
    assert f"trainer {JOB}-trainer-" in event.message
    assert f"ValueError: position {POISON} cannot be trained" in event.message
    assert "a new trainer starts" in event.message


async def test_a_job_whose_trainers_only_fail_is_given_up(chaos_run):
    """After backoffLimit failures without one batch completed it has failed, with that text, and its pods are gone."""
    every = ",".join(str(position) for position in range(60))
    await chaos_run.submit(JOB, shape(f"--poison={every}", "--raises", epochs=1, backoff_limit=2))
    await chaos_run.wait_end(JOB, BUDGET_S)
    ended = chaos_run.job(JOB)
    assert ended.condition == JobEnding.FAILED
    assert "failures in a row without one batch completed (backoffLimit 2)" in ended.message
    assert "cannot be trained" in ended.message
    assert chaos_run.local_run.failed_jobs() == (JOB,)
    assert any(event.kind == "Failed" and event.message == ended.message for event in chaos_run.events)
