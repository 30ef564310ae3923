"""One reign after another in one process: what the first knew and did ends with it (M2, M5)."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from master.api.checkpoints.local_storage import LocalStorage
from master.api.wire.hello import Hello
from master.durable.checkpoint_folder import CheckpointFolder
from master.errors import TermEndedError
from master.process.grpc_server import MasterServer
from master.process.leader_terms import LeaderTerms, SteppedDownError
from master.process.master_config import Settings
from master.store.memory_store import MemoryCluster, MemoryStore
from master.store.store_port import Conflict, Put, Transaction
from master.term.counters import Counters

WAIT_S = 60.0  # a few turns of the loop


class Store(MemoryStore):
    """A memory store that refuses the next `conflicts` commits: somebody else has written meanwhile."""

    def __init__(self):
        self.cluster = MemoryCluster()
        super().__init__(self.cluster, self.cluster.store("digits").keys)
        self.conflicts = 0
        self.late = asyncio.Event()  # set: commits are carried out
        self.late.set()

    async def commit(self, transaction):
        await self.late.wait()
        if self.conflicts:
            self.conflicts -= 1
            return Conflict(current=await self.read(transaction.keys))
        return await super().commit(transaction)

    async def write_as_leader(self, key, value):
        """What the leader's process wrote through another connection, say by hand."""
        leader = await self.read_leader()
        await super().commit(Transaction(term=leader.term, writes=(Put(key, value),)))


@asynccontextmanager
async def serving(folder, store):
    """A master that serves with servers; its server and the task of its life."""
    settings = Settings.from_environment(
        {"EDL_JOB": "digits", "EDL_CHECKPOINT_URI": str(folder), "EDL_SERVERS": "1", "EDL_MAX_SERVERS": "9"}
    )
    server = MasterServer(hello=Hello(job="digits"), token="")
    storage = CheckpointFolder(LocalStorage(folder))
    terms = LeaderTerms(settings=settings, store=store, folder=storage, server=server, counts=Counters())
    life = asyncio.create_task(terms.run(holder="me"))
    try:
        yield server, life
    finally:
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)


async def term_after(server, before=None):
    async with asyncio.timeout(WAIT_S):
        while server.term is None or server.term is before:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0)
    return server.term


async def test_a_refused_write_ends_the_term_and_is_answered_to_nobody(tmp_path):
    """Somebody else has written: this term's picture is wrong, and going on with it would only log that (rule 23)."""
    store = Store()
    async with serving(tmp_path, store) as (server, _):
        first = await term_after(server)
        store.conflicts = 1
        with pytest.raises(TermEndedError):
            await asyncio.wait_for(first.set_servers(3), WAIT_S)
        assert await term_after(server, first) is not first
        assert first.is_over


async def test_the_next_reign_reads_the_store_anew(tmp_path):
    """What was written after the first reading counts, not what the first reign remembers (rules 27, 28)."""
    store = Store()
    async with serving(tmp_path, store) as (server, _):
        first = await term_after(server)
        assert (await first.set_servers(3)).count == 3
        await store.write_as_leader(store.keys.servers, b"7")
        store.conflicts = 1
        with pytest.raises(TermEndedError):
            await asyncio.wait_for(first.set_servers(2), WAIT_S)
        second = await term_after(server, first)
        assert second.status().servers_wanted == 7


async def test_nothing_of_a_term_works_on_after_it(tmp_path):
    """A write that was on its way when the term ended is not carried out by it later, and no task of it is left."""
    store = Store()
    async with serving(tmp_path, store) as (server, life):
        first = await term_after(server)
        store.late.clear()
        asked = asyncio.create_task(first.set_servers(3))
        await asyncio.sleep(0)
        life.cancel()
        await asyncio.gather(life, asked, return_exceptions=True)
        store.late.set()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        assert {task.get_coro().__qualname__ for task in rest if not task.done()} == set()
    assert (await store.read((store.keys.servers,))).try_value(store.keys.servers) is None
    assert server.term is None


async def test_a_master_that_another_one_has_followed_ends(tmp_path):
    """Its process makes room for a fresh standby; it does not campaign against the one that leads (M5)."""
    store = Store()
    async with serving(tmp_path, store) as (server, life):
        first = await term_after(server)
        leader = await store.read_leader()
        await store.resign(leader)
        assert await store.try_lead(holder="another", ttl_s=60)
        with pytest.raises(TermEndedError):
            await asyncio.wait_for(first.set_servers(3), WAIT_S)
        with pytest.raises(SteppedDownError, match="another leads"):
            await asyncio.wait_for(life, WAIT_S)
        assert server.term is None


async def test_a_bug_in_what_a_term_started_ends_the_process(tmp_path, monkeypatch):
    """What can go wrong is an event; anything else is told by a crash, not by a job that stands still."""

    def breaks(_):
        raise ZeroDivisionError

    monkeypatch.setattr(CheckpointFolder, "discard_leftovers", breaks)
    async with serving(tmp_path, Store()) as (_, life):
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(life, WAIT_S)
