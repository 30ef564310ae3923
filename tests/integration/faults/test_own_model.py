"""A trainer with a model of its own, killed and drained: model and data position stay together (rules 33 to 35)."""

import random
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from autoscaler.domain import Role
from autoscaler.jobs.lifecycle import JobEnding
from tests.chaos.chaos_run import ChaosJobShape, start_chaos_run
from tests.chaos.head_watch import HeadWatch
from tests.chaos.ledger import Head, numbers
from tests.harness.process_state import is_process_dead
from tests.integration.faults.ledger_job import BUDGET_S, JOB, begin, trained, until
from trainer_sdk.group.replica_files import read_copy
from trainer_sdk.record_order import RecordOrder

PROGRAM = Path(__file__).resolve().parents[2] / "programs" / "chaos_own_model.py"
SHAPE = ChaosJobShape(
    trainers=1,
    most_trainers=1,
    servers=0,
    is_group=True,
    checkpoint_every_s=0.5,
    leader_ttl_s=5,
    reconnect_s=5.0,
    program=(sys.executable, str(PROGRAM), "--epochs=40"),
)
FAULTS = ("trainer", "drain", "master", "trainer", "both")


def read_counts(storage, manifest, seen_at_s):
    arrays = read_copy(storage, manifest.files).captured.arrays
    return Head(manifest=manifest, tables=arrays, seen_at_s=seen_at_s)


def counts_of(manifest):
    """How often each record is in the data state."""
    order, counts = RecordOrder(manifest.dataset), np.zeros(manifest.dataset.size, dtype=np.int64)
    for position in numbers(manifest.data):
        counts[order.records(manifest.data.of(int(position)))] += 1
    return counts


@pytest.mark.chaos
@pytest.mark.timeout(400)
async def test_every_checkpoint_has_exactly_what_it_says(tmp_path):
    """Killed between and within steps and commits: each head's counts are those of its data state (M1)."""
    rng = random.Random(5)
    async with start_chaos_run(tmp_path, members=1) as chaos_run:
        await begin(chaos_run, SHAPE)
        watch = HeadWatch(chaos_run.checkpoint_uri(JOB), read=read_counts)
        async with watch.following():
            for fault in FAULTS:
                both = lambda: [pod for role in (Role.TRAINER, Role.MASTER) for pod in chaos_run.pods(JOB, role)]  # noqa: E731
                await until(lambda both=both: len(both()) == 2, "both have a process")
                trainer, master = both()
                if fault == "drain":
                    await chaos_run.drain(trainer.name)
                if fault in {"trainer", "both"}:
                    assert chaos_run.kill(trainer.name, signal.SIGKILL)
                if fault in {"master", "both"}:
                    assert chaos_run.kill(master.name, signal.SIGKILL)
                gone = master if fault == "master" else trainer
                await until(lambda gone=gone: is_process_dead(gone.pid), f"{fault} is gone")
                low = await chaos_run.answer(JOB, BUDGET_S)
                more = trained(low) + rng.randint(8, 60)
                await chaos_run.wait_for(JOB, lambda s, more=more: trained(s) > more, "it goes on", BUDGET_S)
                assert not chaos_run.has_ended(JOB), f"no fault after {fault} landed in training"
            await until(lambda: len(watch.heads) > len(FAULTS), "it is committed all along, not only at the end")
            chaos_run.hurry(JOB)
            await chaos_run.wait_end(JOB, BUDGET_S)
        assert chaos_run.job(JOB).condition == JobEnding.COMPLETED, chaos_run.job(JOB).message
    for head in watch.heads:
        assert np.array_equal(head.tables["counts"], counts_of(head.manifest)), head.manifest.id
    last = watch.heads[-1]
    assert last.manifest.is_complete
    assert set(last.tables["counts"]) == {last.manifest.dataset.epochs}
