"""A parameter server is killed while trainers push: real processes, both policies, a ledger by bucket (rules 26, 30).

Whether all go back to the last checkpoint or the others keep what they have, in the end every bucket has every position
exactly once, and the trainers are the same processes (M1, M9).
"""

import asyncio
import re

import pytest

from autoscaler.jobs.master_connections import MasterConnections, MasterEndpoint
from master.api.checkpoints.audit import read_checkpoint
from master.api.checkpoints.storage import open_storage
from master.api.servers_answer import ServersAnswer
from tests.chaos.ledger import check_end, check_head, check_owners, read_head
from tests.harness.job_processes import running
from tests.harness.master_process import JOB

BUCKETS = 64
SETTINGS = {"EDL_BUCKETS": str(BUCKETS), "EDL_CHECKPOINT_EVERY_S": "4", "EDL_GRACE_S": "40"}
LOADED = re.compile(r"lineage (\d+): model ready after [\d.]+ s, (\d+) buckets kept, (\d+) read")


def look(job):
    """How far it is; None: no answer within a second, which a busy machine may cause."""

    async def ask():
        async with MasterConnections() as masters:
            return await masters.try_poll(MasterEndpoint(job=JOB, address=job.address, token=""))

    return asyncio.run(ask())


def ask_for_servers(job, count):
    async def ask():
        async with MasterConnections() as masters:
            return await masters.set_servers(MasterEndpoint(job=JOB, address=job.address, token=""), count)

    def is_heard():
        answer = asyncio.run(ask())
        return isinstance(answer, ServersAnswer) and answer.count == count

    job.wait_for(is_heard, f"{count} servers to be wanted")


def start_trainers(job, count=2):
    diaries = job.folder / "diaries"
    diaries.mkdir()
    arguments = ["--diaries", diaries, "--haste", job.folder / "haste", "--buckets", BUCKETS, "--epochs", 6]
    return [job.trainer(number, "chaos_ledger.py", *arguments, "--step-s", 0.2) for number in range(count)]


def wait_for_uncommitted_work(job):
    """A checkpoint is there, and more has been done since."""
    job.wait_for(lambda: (p := look(job)) and p.done > p.committed > 0, "work beyond a checkpoint")


def wait_for_service(job, servers):
    """After the loss."""
    job.wait_for(lambda: (p := look(job)) and p.lineage == 2 and p.servers == servers, f"{servers} servers to serve")


def loads(job, server):
    """Of each RESTORE that this server carried out: (lineage, buckets kept, buckets read)."""
    return [tuple(map(int, found)) for found in LOADED.findall(job.log(f"server-{server}"))]


def check_ledger(job):
    """Counters, and the fingerprint of each bucket by itself: every position once in each."""
    audit = read_checkpoint(str(job.checkpoints))
    assert audit.is_sound
    head = read_head(open_storage(str(job.checkpoints)), audit.head, 0.0)
    assert [*check_owners(head), *check_head(head), *check_end(head)] == []
    assert head.manifest.lineage == 2


@pytest.mark.parametrize("policy", ["RollBack", "Keep"])
def test_a_successor_takes_the_place_of_a_killed_server(tmp_path, policy):
    """The other server goes back with it, or keeps all that it has and reads nothing."""
    with running(tmp_path, servers=2, EDL_AFTER_LOSS=policy, **SETTINGS) as job:
        trainers = start_trainers(job)
        wait_for_uncommitted_work(job)
        job.processes[2].kill()
        job.server(1)
        wait_for_service(job, 2)
        (job.folder / "haste").touch()
        assert [job.wait_for_exit(trainer) for trainer in trainers] == [0, 0]
        kept = BUCKETS // 2 if policy == "Keep" else 0
        assert loads(job, 0)[-1] == (2, kept, BUCKETS // 2 - kept)
        assert loads(job, 1)[-1] == (2, 0, BUCKETS // 2)
        check_ledger(job)


@pytest.mark.parametrize("policy", ["RollBack", "Keep"])
def test_those_that_are_left_take_over_what_a_killed_server_had(tmp_path, policy):
    """Nobody comes in its place: what is new to them is read, beside what they keep."""
    with running(tmp_path, servers=3, EDL_MAX_SERVERS="3", EDL_AFTER_LOSS=policy, **SETTINGS) as job:
        trainers = start_trainers(job)
        wait_for_uncommitted_work(job)
        job.processes[3].kill()
        ask_for_servers(job, 2)
        wait_for_service(job, 2)
        (job.folder / "haste").touch()
        assert [job.wait_for_exit(trainer) for trainer in trainers] == [0, 0]
        last = [loads(job, server)[-1] for server in (0, 1)]
        assert sum(kept + read for _, kept, read in last) == BUCKETS
        assert all((kept > 0) == (policy == "Keep") and read > 0 for _, kept, read in last)
        check_ledger(job)
