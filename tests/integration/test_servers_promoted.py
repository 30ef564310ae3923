"""A parameter server is killed and its buckets go on on their backups: real processes, a ledger (61, 62; ADR 0318).

The lineage stays 1 to the end: nothing was rolled back, and every counter is exact.
"""

import signal

from master.api.identities import Role
from tests.integration.sdk_stage import running
from tests.integration.test_servers_resized import BATCH, SIZE, check_ledger, status_of

PAIRED = {"EDL_COPIES": "2", "EDL_CHECKPOINT_EVERY_S": "0.5", "EDL_GRACE_S": "40"}


def train(job, epochs=3, trainers=2):
    outs = [job.folder / f"out-{number}.npz" for number in range(trainers)]
    arguments = ["--size", SIZE, "--epochs", epochs, "--batch-size", BATCH, "--pause-s", 0.02, "--dense"]
    processes = [job.trainer(n, "ledger.py", *arguments, "--out", out) for n, out in enumerate(outs)]
    job.wait_for(lambda: status_of(job).positions.committed > 0, "the first commit")
    return outs, processes


def owners(job):
    return {m.ordinal for m in status_of(job).members if m.role is Role.SERVER and m.buckets}


def test_a_killed_server_costs_a_promotion_and_every_counter_is_exact(tmp_path):
    """Server 0 is killed, server 1 goes on with all buckets, and a successor gets its share while training goes on."""
    with running(tmp_path, servers=2, **PAIRED) as job:
        outs, trainers = train(job)
        job.processes[1].send_signal(signal.SIGKILL)
        job.wait_for(lambda: owners(job) == {1}, "all buckets on server 1")
        job.server(0)
        job.wait_for(lambda: owners(job) == {0, 1}, "server 0 has a share again")
        for trainer in trainers:
            assert job.wait_for_exit(trainer) == 0
        check_ledger(job, outs, 3)
