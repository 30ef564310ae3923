"""A parameter server is killed and its buckets go on on their backups: real processes, a ledger (61, 62; ADR 0318).

The lineage stays 1 to the end: nothing was rolled back, and every counter is exact.
"""

import signal

from master.api.identities import MemberRole
from tests.harness.job_processes import running
from tests.integration.trainer_sdk.pserver.test_servers_resized import BATCH, SIZE, check_ledger, status_of

PAIRED = {"EDL_COPIES": "2", "EDL_BUCKETS": "16", "EDL_CHECKPOINT_EVERY_S": "0.5", "EDL_GRACE_S": "40"}


def train(job, epochs=1, trainers=2):
    """For five minutes, unless the test comes to its `hurry` before."""
    outs = [job.folder / f"out-{number}.npz" for number in range(trainers)]
    arguments = [
        "--size",
        SIZE,
        "--epochs",
        epochs,
        "--batch-size",
        BATCH,
        "--pause-s",
        2.0,
        "--pause-until",
        job.folder / "hurry",
    ]
    arguments += ["--dense"]
    processes = [job.trainer(n, "ledger.py", *arguments, "--out", out) for n, out in enumerate(outs)]
    job.wait_for(lambda: status_of(job).positions.committed > 0, "the first commit")
    job.wait_for(lambda: not status_of(job).single_copies, "two copies of every bucket")
    return outs, processes


def owners(job):
    return {m.ordinal for m in status_of(job).members if m.role is MemberRole.SERVER and m.buckets}


def test_each_killed_server_costs_a_promotion_and_every_counter_is_exact(tmp_path):
    """Server 0 is killed, server 1 goes on with all buckets, a successor gets its share; then server 1 is killed."""
    with running(tmp_path, servers=2, **PAIRED) as job:
        outs, trainers = train(job)
        job.processes[1].send_signal(signal.SIGKILL)
        job.wait_for(lambda: owners(job) == {1}, "all buckets on server 1")
        job.server(0)
        job.wait_for(lambda: owners(job) == {0, 1}, "server 0 has a share again")
        job.wait_for(lambda: not status_of(job).single_copies, "two copies of every bucket")
        job.processes[2].send_signal(signal.SIGKILL)
        job.wait_for(lambda: owners(job) == {0}, "all buckets on server 0")
        (job.folder / "hurry").touch()
        for trainer in trainers:
            assert job.wait_for_exit(trainer) == 0
        check_ledger(job, outs, 1)


def test_a_server_that_stands_still_is_left_behind_and_comes_again(tmp_path):
    """Its stream stays open; the other one says that it is silent, goes on alone, and shares with it once it wakes."""
    with running(tmp_path, servers=2, **PAIRED) as job:
        outs, trainers = train(job)
        stopped = job.processes[2]
        stopped.send_signal(signal.SIGSTOP)
        job.wait_for(lambda: owners(job) == {0}, "all buckets on server 0")
        stopped.send_signal(signal.SIGCONT)
        job.wait_for(lambda: owners(job) == {0, 1}, "server 1 has a share again")
        (job.folder / "hurry").touch()
        for trainer in trainers:
            assert job.wait_for_exit(trainer) == 0
        check_ledger(job, outs, 1)
