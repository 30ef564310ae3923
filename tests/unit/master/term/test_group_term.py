"""A term of a group: the shell runs the group's core, and the next term goes on with its record (rules 76, 91)."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

from master.api.checkpoints.audit import try_head_hint
from master.api.checkpoints.local_storage import LocalStorage
from master.api.errors import StorageError
from master.api.identities import Lineage
from master.api.messages.from_members import Declare, Leave
from master.api.messages.generations import (
    BrokenGeneration,
    GroupPhase,
    GroupProgress,
    LeftGeneration,
    NewGeneration,
    ReplicaRegistered,
    StateId,
)
from master.api.messages.to_members import OfferAnswered
from master.api.wire.hello import Hello
from master.durable.checkpoint_folder import CheckpointFolder
from master.job.domain.durable_records import Instant
from master.process.grpc_server import MasterServer
from master.process.leader_terms import LeaderTerms
from master.process.master_config import Settings
from master.store.memory_store import MemoryCluster, MemoryStore
from master.term.counters import Counters
from master.term.member_streams import MemberStream
from tests.unit.master.group.group_driver import SPEC, key, offer_of, registration

WAIT_S = 60.0


@asynccontextmanager
async def serving(folder, store, *, storage=None):
    """The term of a group's master."""
    settings = Settings.from_environment(
        {"EDL_JOB": "digits", "EDL_CHECKPOINT_URI": str(folder), "EDL_GROUP": "1", "EDL_CHECK_INVARIANTS": "1"}
    )
    server = MasterServer(hello=Hello(job="digits"), token="")
    checkpoints = CheckpointFolder(storage or LocalStorage(folder))
    terms = LeaderTerms(settings=settings, store=store, folder=checkpoints, server=server, counts=Counters())
    life = asyncio.create_task(terms.run(holder="me"))
    try:
        async with asyncio.timeout(WAIT_S):
            while server.term is None:  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0)
        yield server.term
    finally:
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)


async def first_of(stream, kind):
    async with asyncio.timeout(WAIT_S):
        while True:
            for message in await stream.take():
                if isinstance(message, kind):
                    return message


async def test_deadlines_wait_once_for_reports_where_the_process_stood_still(tmp_path):
    """What members said meanwhile is read before anybody is given up."""
    cluster = MemoryCluster()
    async with serving(tmp_path, MemoryStore(cluster, cluster.store("digits").keys)) as term:
        late, on_time = Instant(10**9), Instant(2 * 10**9 - 10**6)
        assert not term._must_look_again(on_time, Instant(2 * 10**9))
        assert [term._must_look_again(late, Instant(2 * 10**9)) for _ in range(2)] == [True, False]


class FullForHead(LocalStorage):
    """A folder in which HEAD cannot be written until there is room for it."""

    has_room = False

    def write_file(self, name, chunks):
        if name == "HEAD" and not self.has_room:
            raise StorageError(name, "there is no space left on device")
        return super().write_file(name, chunks)


async def test_members_go_while_head_cannot_be_written(tmp_path):
    """Store and core knew the new head, and the store's answer waited for the folder: a loss stopped the group."""
    cluster, storage = MemoryCluster(), FullForHead(tmp_path)
    async with serving(tmp_path, MemoryStore(cluster, cluster.store("digits").keys), storage=storage) as term:
        members, streams = [key("t0"), key("t1")], [MemberStream("0"), MemberStream("1")]
        for member, stream in zip(members, streams, strict=True):
            term.open(stream)
            await term.receive(stream, (registration(member), Declare(dataset=SPEC, layout="l")))
        for stream in streams:
            number = (await first_of(stream, NewGeneration)).record.number
        own = StateId(lineage=Lineage(1), generation=number, step=1)
        offered = offer_of(own, number)
        written = storage.write_file(offered.file.name, (b"state",))
        offered = replace(offered, file=replace(offered.file, size_bytes=written.size_bytes, digest=written.digest))
        progress = GroupProgress(generation=number, phase=GroupPhase.COMPUTE, state=own, is_synced=True, steps_begun=2)
        await term.receive(streams[0], (progress, offered))
        async with asyncio.timeout(WAIT_S):
            while "no space" not in term.status().checkpoint_problem:  # noqa: ASYNC110 - the status tells nobody
                await asyncio.sleep(0.01)
        await term.receive(streams[1], (Leave(reason="it is killed"),))
        await first_of(streams[0], BrokenGeneration)
        await term.receive(streams[0], (LeftGeneration(left=number, state=own),))
        async with asyncio.timeout(WAIT_S):
            while term.status().generation == number:  # noqa: ASYNC110 - the status tells nobody
                await asyncio.sleep(0.01)
        assert term.status().head is None, "what is told as committed is in HEAD already"
        storage.has_room = True
        answer = await first_of(streams[0], OfferAnswered)
        assert answer.manifest == term.status().head == try_head_hint(storage)


async def test_the_next_term_goes_on_with_the_record_that_the_store_has(tmp_path):
    cluster, member = MemoryCluster(), key("t0")
    store = MemoryStore(cluster, cluster.store("digits").keys)
    async with serving(tmp_path, store) as term:
        stream = MemberStream("test")
        term.open(stream)
        await term.receive(stream, (registration(member), Declare(dataset=SPEC, layout="l")))
        assert (await first_of(stream, ReplicaRegistered)).dataset is None
        record = (await first_of(stream, NewGeneration)).record
        assert (record.number, record.members[0].incarnation) == (1, member.incarnation)
        assert term.status().generation == 1
    async with serving(tmp_path, store) as term:
        stream = MemberStream("test")
        term.open(stream)
        await term.receive(stream, (registration(member, generation=1),))
        assert (await first_of(stream, NewGeneration)).record == record
        assert term.status().generation == 1
