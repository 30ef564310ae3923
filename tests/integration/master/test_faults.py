"""Masters that are killed, paused and cut off lose and repeat nothing of what was committed (M5, M6, M8)."""

import asyncio
import os
import signal
from contextlib import suppress

import grpc
import grpc.aio
import pytest

from autoscaler.jobs.master_connections import MasterConnections, MasterEndpoint
from autoscaler.jobs.progress import JobProgress, WhyNoAnswer
from master.api.checkpoints.audit import read_checkpoint, try_head_hint
from master.api.checkpoints.storage import open_storage
from master.api.identities import DatasetSpec
from master.api.messages.from_members import Acquire
from master.api.messages.to_members import Granted
from master.api.positions import EMPTY, union
from master.api.wire.grpc_options import CLIENT_OPTIONS
from tests.harness.etcd_faults import pause_member, resume_member
from tests.harness.master_process import (
    JOB,
    MasterProcess,
    MemberStream,
    Sharder,
    leads,
    running,
    wait_for_condition,
    wait_for_leader,
)
from tests.harness.master_status import get_status

DATASET = DatasetSpec(name="digits", size=2000, epochs=2, batch_size=10)
LONG = DatasetSpec(name="digits", size=10_000, epochs=2, batch_size=10)  # faults come before its end, however late
UNHURRIED = tuple((dict(CLIENT_OPTIONS) | {"grpc.http2.ping_timeout_ms": 600_000}).items())
"""Of a member that stays by a master which stands still."""
LONG_TTL_S = "600"  # of a lease that no pause of the machine ends
pytestmark = pytest.mark.chaos


def on(etcd, folder, **environment) -> MasterProcess:
    endpoints = ",".join(etcd.endpoints)
    settings = {"EDL_CHECKPOINT_EVERY_S": "0.2", "EDL_ETCD_ENDPOINTS": endpoints}
    return MasterProcess(folder, **settings | environment)


def check_history(uri) -> None:
    """Each committed checkpoint contains the one before it, and the last one everything."""
    audit = read_checkpoint(uri)
    assert audit.is_sound, audit.problems
    assert audit.head.is_complete
    assert audit.head.quarantine == EMPTY


async def test_a_killed_master_loses_nothing_that_was_committed(etcd, tmp_path):
    """Killed in mid job, restarted by the cluster: the trainers go on with their leases; all ends committed (M5)."""
    async with running(on(etcd, tmp_path)) as (master,):
        trainers = [Sharder(LONG, pause_s=0.02) for _ in range(3)]
        work = asyncio.gather(*(trainer.run(master.address) for trainer in trainers))
        committed = []
        for number in range(2):
            await until_committed(master, more_than=committed[-1] if committed else 0)
            await until_registered(trainers, number + 1)
            committed.append((await get_status(master.address, JOB)).positions.committed)
            await master.kill()
            await master.start()
            await wait_for_leader(master)
            assert (await get_status(master.address, JOB)).positions.committed >= committed[-1]
        for trainer in trainers:
            trainer.pause_s = 0
        await work
        check_history(master.checkpoints)
        assert union(p for t in trainers for p in t.trained) == LONG.everything
        assert all(len(trainer.terms) == 3 for trainer in trainers)


async def until_registered(trainers, terms):
    """Each of them with so many masters."""

    async def are_registered():
        return all(len(trainer.terms) >= terms for trainer in trainers)

    await wait_for_condition(are_registered)


async def until_committed(master, *, more_than):
    async def is_committed():
        return await leads(master) and (await get_status(master.address, JOB)).positions.committed > more_than

    await wait_for_condition(is_committed)


async def test_a_second_master_waits_and_takes_over(etcd, tmp_path):
    """One leads at a time; after SIGTERM the other serves without waiting for the lease, after SIGKILL once it is over.

    How soon that is after the lease is measured (M5), not asserted.
    """
    first = on(etcd, tmp_path, EDL_NAME="digits-master-0", EDL_MASTERS="2", EDL_LEADER_TTL_S=LONG_TTL_S)
    second = on(etcd, tmp_path, EDL_NAME="digits-master-1", EDL_MASTERS="2", EDL_LEADER_TTL_S="10")
    async with running(first):
        await wait_for_leader(first)
        async with running(second):
            assert not await leads(second)
            async with MemberStream(second.address) as member:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await member.receive()
                assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            first.signal(signal.SIGTERM)
            assert await first.wait() == 0
            await wait_for_leader(second)
            await first.start()
            await second.kill()
            await wait_for_leader(first)


async def test_a_master_paused_past_its_lease_is_a_zombie_that_changes_nothing(etcd, tmp_path):
    """SIGSTOP, take-over, SIGCONT: its streams end, nothing is granted, and it says so by its exit code (M2, M5)."""
    first = on(etcd, tmp_path, EDL_NAME="digits-master-0", EDL_MASTERS="2", EDL_LEADER_TTL_S="10")
    second = on(etcd, tmp_path, EDL_NAME="digits-master-1", EDL_MASTERS="2", EDL_LEADER_TTL_S=LONG_TTL_S)
    async with running(first):
        await wait_for_leader(first)
        async with running(second), MemberStream(first.address, options=UNHURRIED) as member:
            trainer = Sharder(DATASET)
            await trainer.register(member)
            await trainer.acquire(member)
            first.signal(signal.SIGSTOP)
            await wait_for_leader(second)
            await member.send(Acquire(request=next(trainer.requests)))
            first.signal(signal.SIGCONT)
            with pytest.raises((EOFError, grpc.aio.AioRpcError)):
                await member.receive_one(Granted)
            assert await first.wait() == 75
            assert "stepped down" in first.log
            assert await leads(second)


async def test_with_etcd_away_two_masters_answer_and_none_leads(etcd, tmp_path):
    """People are told NoLeader in place of what the last one said: a lease of 6 s is over before a write is given up.

    ADR 0173; the operator asks both, as here.
    """
    first, second = (on(etcd, tmp_path, EDL_MASTERS="2", EDL_NAME=f"digits-master-{n}") for n in range(2))
    async with running(first, second), MasterConnections() as masters:
        doors = [MasterEndpoint(job=JOB, address=master.address, token="") for master in (first, second)]

        async def answers():
            return [await masters.poll(door) for door in doors]

        async def one_leads():
            return any(isinstance(answer, JobProgress) for answer in await answers())

        async def none_leads():
            return await answers() == [WhyNoAnswer.NOT_LEADING, WhyNoAnswer.NOT_LEADING]

        await wait_for_condition(one_leads)
        for member in etcd.members:
            pause_member(member)
        try:
            await wait_for_condition(none_leads)
        finally:
            for member in etcd.members:
                resume_member(member)
        await wait_for_condition(one_leads)


async def test_etcd_away_for_a_while_stops_no_training(etcd, tmp_path):
    """The only master goes on granting while etcd is away; commits wait; its lease, and term, outlive that (M6)."""
    async with running(on(etcd, tmp_path)) as (master,):
        trainer = Sharder(LONG, pause_s=0.05, shards=1)
        work = asyncio.create_task(trainer.run(master.address))
        await until_committed(master, more_than=0)
        await etcd.members[0].kill()
        await asyncio.sleep(7)  # longer than a lease
        before = len(trainer.trained)

        async def goes_on():
            return len(trainer.trained) > before + 20

        await wait_for_condition(goes_on)
        await etcd.members[0].start()
        await etcd.members[0].wait_ready()
        trainer.pause_s = 0
        await work
        check_history(master.checkpoints)
        await asyncio.sleep(7)  # a lease that nobody renewed would be over
        assert master.log.count(" leads: ") == 1, "the outage cost a new term"


async def test_a_store_that_lost_everything_goes_on_from_the_folder(tmp_path):
    """The manifest in the folder is the truth (M8): a memory store is empty after each restart."""
    master = MasterProcess(tmp_path, EDL_CHECKPOINT_EVERY_S="0.2")
    async with running(master):
        trainer = Sharder(LONG, pause_s=0.02)
        work = asyncio.create_task(trainer.run(master.address))
        await until_committed(master, more_than=100)
        await master.kill()
        kept = read_checkpoint(master.checkpoints).head
        await master.start()
        await wait_for_leader(master)
        status = await get_status(master.address, JOB)
        assert status.positions.committed >= len(kept.data)
        assert status.lineage > kept.lineage
        trainer.pause_s = 0
        await work
    assert kept.data <= read_checkpoint(master.checkpoints).head.data == LONG.everything


async def test_a_new_master_notes_the_head_that_a_killed_one_did_not(etcd, tmp_path):
    """Killed between its commit and the file HEAD; no commit follows, for all is trained: readers see the last one."""
    master = on(etcd, tmp_path)
    async with running(master):
        await Sharder(DATASET).run(master.address)
        await master.kill()
        folder = open_storage(master.checkpoints)
        folder.delete("HEAD")
        await master.start()
        await wait_for_leader(master)

        async def is_noted():
            return try_head_hint(folder) is not None

        await wait_for_condition(is_noted)
    check_history(master.checkpoints)


async def test_a_folder_that_cannot_be_written_delays_commits_only(tmp_path):
    """The checkpoint folder is in the way of a file: training goes on, nothing is committed; then it is (M6)."""
    blocked = tmp_path / "checkpoints"
    master = MasterProcess(tmp_path, EDL_CHECKPOINT_EVERY_S="0.2")
    async with running(master):
        await wait_for_leader(master)
        blocked.write_text("not a folder")
        trainer = Sharder(DATASET)
        work = asyncio.create_task(trainer.run(master.address))

        async def is_half_done():
            return await leads(master) and (await get_status(master.address, JOB)).positions.done >= 2000

        await wait_for_condition(is_half_done)
        assert (await get_status(master.address, JOB)).positions.committed == 0
        blocked.unlink()
        await work
    assert read_checkpoint(master.checkpoints).head.is_complete


async def test_a_missing_head_is_refused_with_advice(etcd, tmp_path):
    """A folder without the manifest that head names: nothing is trained from a guess; the exit code says so (M8)."""
    async with running(on(etcd, tmp_path, EDL_UNREADABLE_S="1")) as (master,):
        trainer = Sharder(LONG, pause_s=0.01)
        work = asyncio.create_task(trainer.run(master.address))
        await until_committed(master, more_than=0)
        await master.kill()
        for manifest in (tmp_path / "checkpoints").glob("manifest-*"):
            manifest.rename(manifest.with_suffix(".away"))
        await master.start()
        assert await master.wait() == 2
        assert "Restore the folder" in master.log
        for manifest in (tmp_path / "checkpoints").glob("*.away"):
            manifest.rename(manifest.with_suffix(".json"))
        await master.start()
        trainer.pause_s = 0
        await work
        check_history(master.checkpoints)


async def test_a_port_in_use_is_refused(tmp_path):
    """The second process names the address and ends with the code for settings."""
    first = MasterProcess(tmp_path)
    async with running(first):
        second = MasterProcess(tmp_path, EDL_NAME="other", EDL_LISTEN=first.address)
        with pytest.raises(AssertionError, match="is in use"):
            await second.start()
        assert await second.wait() == 2


async def test_an_orphan_ends_with_its_parent(tmp_path):
    """Standalone: the script's master never outlives the script."""
    master = MasterProcess(tmp_path, EDL_PARENT_PID="1")  # we are its parent, not process 1
    master._environment["EDL_ADDRESS_FILE"] = str(tmp_path / "master.address")
    async with running(master):
        assert await master.wait() == 0


async def test_a_folder_that_hangs_holds_up_no_end(etcd, tmp_path, open_store):
    """SIGTERM gives the lease back and ends the process within its grace, whatever call never comes back (M5)."""
    master = on(etcd, tmp_path)
    head = tmp_path / "checkpoints" / "HEAD"
    head.parent.mkdir()
    os.mkfifo(head)  # who opens it waits until somebody writes there
    async with running(master):

        async def is_leading():
            return " leads: " in master.log

        async def is_looked_into():
            with suppress(OSError):  # nobody has it open for reading
                held.append(os.open(head, os.O_WRONLY | os.O_NONBLOCK))
            return held

        await wait_for_condition(is_leading)
        held = []
        await wait_for_condition(is_looked_into)
        master.signal(signal.SIGTERM)
        assert await master.wait() == 0
        os.close(*held)
    assert await open_store(etcd, job=JOB).read_leader() is None
