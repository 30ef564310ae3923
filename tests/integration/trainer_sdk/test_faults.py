"""Trainers of real jobs are killed, paused past their leases, drained, and raise."""

import asyncio
import signal
import time

import numpy as np
import pytest

from master.api.checkpoints.audit import read_checkpoint
from tests.harness.job_processes import running
from tests.harness.master_process import JOB
from tests.harness.master_status import get_status
from trainer_sdk.record_order import Permutation

SIZE, EPOCHS = 600, 2


def shard(job, number, *arguments, **environment):
    return job.trainer(number, "sharder.py", "--out", job.folder / f"out-{number}", *arguments, **environment)


def outputs(job):
    """(epoch, position, record) of all finished batches, in no order."""
    lines = "".join(path.read_text() for path in job.folder.glob("out-*")).splitlines()
    return [tuple(map(int, line.split())) for line in lines]


def check_everything_was_trained(job):
    """Every position is in the outputs with the record that the order names, and head covers the job."""
    found = outputs(job)
    assert {position for _, position, _ in found} == set(range(SIZE * EPOCHS))
    for epoch in range(EPOCHS):
        order = Permutation(SIZE, seed=5, epoch=epoch).records(0, SIZE)
        assert all(order[position - epoch * SIZE] == record for e, position, record in found if e == epoch)
    audit = read_checkpoint(str(job.checkpoints))
    assert audit.is_sound
    assert audit.head.is_complete
    return found


def test_a_killed_trainers_records_are_trained_by_others(tmp_path):
    """SIGKILL in mid batch: its leases are done by another; nothing is lost (M3, M9)."""
    with running(tmp_path) as job:
        victim = shard(job, 0)
        job.wait_for_line("trainer-0", "begun")
        other = shard(job, 1)
        victim.kill()

        assert job.wait_for_exit(other) == 0
        job.wait_for_line("trainer-1", "ended")
        check_everything_was_trained(job)


def test_a_drained_trainer_returns_what_it_has_not_begun(tmp_path):
    """SIGTERM (M7): the batch is finished, the rest is somebody else's, nobody does a position twice."""
    with running(tmp_path) as job:
        leaver = shard(job, 0, "--pause-s", "0.5", EDL_GRACE_S="1000")
        job.wait_for_line("trainer-0", "begun")
        other = shard(job, 1)
        leaver.send_signal(signal.SIGTERM)

        assert job.wait_for_exit(leaver) == 0
        assert job.log("trainer-0").split() == ["begun", "callback", "drained"]
        assert job.wait_for_exit(other) == 0
        found = check_everything_was_trained(job)
        assert len(found) == SIZE * EPOCHS, "a drained trainer's work was done twice"


def test_a_step_that_outlasts_the_grace_counts_as_a_crash(tmp_path):
    """M7: at the drain deadline what is unconfirmed goes back, so others need not wait for the hanging step."""
    with running(tmp_path) as job:
        hanging = shard(job, 0, "--pause-s", "1000", EDL_GRACE_S="2")
        job.wait_for_line("trainer-0", "begun")
        other = shard(job, 1)
        hanging.send_signal(signal.SIGTERM)

        assert job.wait_for_exit(other) == 0
        assert hanging.poll() is None, "the hanging step was to outlive the job in this test"
        hanging.kill()
        check_everything_was_trained(job)


def test_a_master_that_is_away_stops_nobody_who_holds_a_lease(tmp_path):
    """M5: the master is paused for a while; trainers go on with what they hold and end as if nothing had been."""
    with running(tmp_path) as job:
        trainers = [shard(job, 0), shard(job, 1)]
        job.wait_for_line("trainer-0", "begun")
        master = job.processes[0]
        master.send_signal(signal.SIGSTOP)
        time.sleep(2.0)
        master.send_signal(signal.SIGCONT)

        assert [job.wait_for_exit(t) for t in trainers] == [0, 0]
        check_everything_was_trained(job)


def test_without_a_master_the_script_ends_with_a_clear_error(tmp_path):
    """Every wait has a deadline; the message names what to look at."""
    with running(tmp_path) as job:
        lost = shard(job, 0, EDL_MASTER="127.0.0.1:9", SDK_TEST_BUDGET_S="1")

        assert job.wait_for_exit(lost) == 1
        assert "EDL_MASTER" in job.log("trainer-0")
        assert "no master of this job could be reached for 1 s" in job.log("trainer-0")


def ledger(job, number, *arguments):
    sizes = ("--size", 300, "--epochs", 3, "--batch-size", 6, "--pause-until", hurry(job))
    return job.trainer(number, "ledger.py", *sizes, "--out", job.folder / f"ledger-{number}.npz", *arguments)


def hurry(job):
    """Once it is there no step takes time any more: the faults come before the end of training, however late."""
    return job.folder / "hurry"


def check_counters(job):
    (saved,) = job.folder.glob("ledger-*.npz")  # the final-save hook ran once
    assert np.load(saved)["counts"].tolist() == [3] * 300
    assert read_checkpoint(str(job.checkpoints)).is_sound


@pytest.mark.parametrize("kind", [("--dense",), ()], ids=["dense", "sparse"])
def test_the_ledger_counts_each_record_once_per_epoch_under_kills_and_drains(tmp_path, kind):
    """M1 with parameter servers: one trainer SIGKILLed, one drained, every counter is exactly the number of epochs."""
    with running(tmp_path, servers=2, EDL_CHECKPOINT_EVERY_S="1") as job:
        trainers = [ledger(job, n, *kind, "--pause-s", 1.0) for n in range(4)]
        job.wait_for(lambda: list(job.checkpoints.glob("manifest-*")), "the first checkpoint")
        trainers[0].kill()
        trainers[1].terminate()
        assert job.wait_for_exit(trainers[0]) == -signal.SIGKILL, "the job was over before the fault landed"
        hurry(job).touch()
        assert [job.wait_for_exit(t) for t in trainers[1:]] == [0, 0, 0]
        check_counters(job)


@pytest.mark.slow
def test_a_trainer_paused_past_its_lease_is_a_zombie_that_changes_nothing(tmp_path):
    """SIGSTOP in mid batch, SIGCONT when others have done its work: FENCED, and every counter is exact (M2)."""
    with running(tmp_path, servers=2, EDL_CHECKPOINT_EVERY_S="1") as job:
        zombie = ledger(job, 0, "--pause-s", 0.5)
        job.wait_for(lambda: steps(job, "trainer-0"), "its first steps")
        other = ledger(job, 1, "--pause-s", 0.5)
        job.wait_for(lambda: leased(job, "trainer-1"), "a second lease")
        zombie.send_signal(signal.SIGSTOP)
        job.wait_for(lambda: not leased(job, "trainer-0"), "the lease to run out")
        zombie.send_signal(signal.SIGCONT)
        hurry(job).touch()

        assert [job.wait_for_exit(t) for t in (zombie, other)] == [0, 0]
        check_counters(job)


def status(job):
    return asyncio.run(get_status(job.address, JOB, limit_s=60.0))


def steps(job, name):
    """Batch steps that the master has heard of."""
    return sum(member.steps for member in status(job).members if member.name.endswith(name))


def leased(job, name):
    """How many positions this trainer holds, as the master sees it."""
    return sum(member.leased for member in status(job).members if member.name.endswith(name))


def test_a_script_that_raises_is_seen_with_its_last_lines(tmp_path):
    """M4: the job's status says which trainer, which positions, and the end of the traceback; others go on."""
    with running(tmp_path, servers=1) as job:
        failing = ledger(job, 0, "--crash-at", 3)
        assert job.wait_for_exit(failing) == 1

        (failure,) = job.wait_for(lambda: status(job).failures, "the failure in the status")
        assert failure.member.endswith("trainer-0")
        assert len(failure.positions) == 6
        assert "RuntimeError: told to raise at batch 3" in failure.message

        other = ledger(job, 1)
        assert job.wait_for_exit(other) == 0
        check_counters(job)


def test_a_lost_server_rolls_trainers_back_without_restarting_them(tmp_path):
    """M9, rule 14: the gradients of the lost model are dropped, leases are taken anew, every counter is exact."""
    with running(tmp_path, servers=2, EDL_CHECKPOINT_EVERY_S="1") as job:
        trainers = [ledger(job, n, "--pause-s", 0.5) for n in range(2)]
        job.wait_for(lambda: list(job.checkpoints.glob("manifest-*")), "the first checkpoint")
        before = status(job).lineage
        job.processes[2].kill()
        job.wait_for_exit(job.processes[2])
        job.server(1)  # as the cluster would: same name, new process
        job.wait_for(lambda: status(job).lineage > before, "all to be rolled back")
        hurry(job).touch()

        assert [job.wait_for_exit(t) for t in trainers] == [0, 0]
        check_counters(job)
