"""Trainers of real jobs are told to leave while those that they wait for are stopped: they go by themselves (M7)."""

import asyncio
import signal
import time

import numpy as np
import pytest

from master.api.checkpoints.audit import read_checkpoint
from tests.harness.job_processes import running
from tests.harness.master_process import JOB
from tests.harness.master_status import get_status

GRACE_S = 8.0  # of which the last 2 are for leaving
GONE_S = 100.0
"""A busy machine may make the last 2 longer.  Who does not go by itself waits for a master or a server for 120 s."""
SIZE, EPOCHS = 300, 3


def ledger(job, number, *, pause_s=0.5):
    sizes = ("--size", SIZE, "--epochs", EPOCHS, "--batch-size", 6, "--pause-s", pause_s, "--dense", "--patient")
    out = job.folder / f"ledger-{number}.npz"
    return job.trainer(number, "ledger.py", *sizes, "--out", out, EDL_GRACE_S=str(GRACE_S))


def check_they_leave_in_time(job, *trainers):
    """Trainers 0 and up: each runs its callback and ends by itself, with 0, when its grace is nearly over."""
    until_s = time.monotonic() + GONE_S
    for trainer in trainers:
        trainer.terminate()
    assert [trainer.wait(until_s - time.monotonic()) for trainer in trainers] == [0] * len(trainers)
    assert all(job.log(f"trainer-{number}").count("told to leave") == 1 for number in range(len(trainers)))


def check_another_completes(job, trainer):
    assert job.wait_for_exit(trainer) == 0
    (saved,) = job.folder.glob("ledger-*.npz")
    assert np.load(saved)["counts"].tolist() == [EPOCHS] * SIZE
    audit = read_checkpoint(str(job.checkpoints))
    assert audit.is_sound
    assert audit.head.is_complete


def positions_leased(job):
    """As the master sees it."""
    return sum(member.leased for member in asyncio.run(get_status(job.address, JOB)).members)


def has_begun(job):
    return list(job.checkpoints.glob("manifest-*"))


@pytest.mark.parametrize("stopped", [("server-1",), ("server-1", "master")], ids=" and ".join)
def test_trainers_leave_in_time_whoever_is_stopped(tmp_path, stopped):
    """One in mid training, blocked in a push or pull, and one that cannot even greet the server; the ledger is exact.

    The stopped server wakes with a push in its socket that nobody confirmed: its positions went back, others train
    them too, and each bucket still counts each of them once.
    """
    with running(tmp_path, servers=2, EDL_CHECKPOINT_EVERY_S="1") as job:
        members = dict(zip(("master", "server-0", "server-1"), job.processes, strict=True))
        training = ledger(job, 0)
        job.wait_for(lambda: has_begun(job), "the first checkpoint")
        for name in stopped:
            members[name].send_signal(signal.SIGSTOP)
        greeting = ledger(job, 1)
        job.wait_for_line("trainer-1", "ledger: begins")
        time.sleep(2.0)  # longer than a step and a greeting: both wait now

        check_they_leave_in_time(job, training, greeting)
        if "master" not in stopped:
            job.wait_for(lambda: positions_leased(job) == 0, "what was not confirmed to be returned")
        for name in stopped:
            members[name].send_signal(signal.SIGCONT)
        check_another_completes(job, ledger(job, 2, pause_s=0.0))


def test_a_trainer_leaves_in_time_though_nothing_could_begin(tmp_path):
    """Without all its servers the job has no batch to give: who waits for one is let go."""
    with running(tmp_path, servers=1) as job:
        job.processes[1].send_signal(signal.SIGSTOP)  # before it could register
        waiting = ledger(job, 0)
        job.wait_for_line("trainer-0", "ledger: begins")
        time.sleep(2.0)

        check_they_leave_in_time(job, waiting)
        job.processes[1].send_signal(signal.SIGCONT)
        check_another_completes(job, ledger(job, 1, pause_s=0.0))


def test_a_model_of_its_own_does_not_wait_for_a_stopped_master(tmp_path):
    """The last checkpoint cannot be committed: the trainer goes in time, and the next one does its batches again."""
    with running(tmp_path, EDL_CHECKPOINT_EVERY_S="1", EDL_GRACE_S=str(GRACE_S), EDL_GROUP="1") as job:
        leaver = job.trainer(0, "chaos_own_model.py", "--epochs", 3, "--step-s", 0.5)
        job.wait_for(lambda: has_begun(job), "the first checkpoint")
        job.processes[0].send_signal(signal.SIGSTOP)
        time.sleep(0.5)

        check_they_leave_in_time(job, leaver)
        job.processes[0].send_signal(signal.SIGCONT)
        assert job.wait_for_exit(job.trainer(1, "chaos_own_model.py", "--epochs", 3)) == 0
        assert read_checkpoint(str(job.checkpoints)).head.is_complete
