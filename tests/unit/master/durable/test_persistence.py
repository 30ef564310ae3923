"""The master's writer to the store: each write has one answer, and no late attempt undoes a newer write (rule 23)."""

import asyncio

import pytest

from master.durable.transactions import durable_keys, parse_durable
from master.job.domain.durable_records import UNNAMED_ORIGIN, RecordServers, ReserveHighWater
from master.job.domain.effects import Persist
from master.job.domain.job_events import Persisted
from master.store.memory_store import MemoryCluster
from master.store.store_port import Conflict, Unknown
from master.term.store_writer import StoreWriter


class PausedMember:
    """The first commit sits in a member that is paused: its answer is lost, and it lands when `resume` is called."""

    def __init__(self, inner):
        self.inner = inner
        self.held = None

    async def commit(self, transaction):
        if self.held is None:
            self.held = transaction
            return Unknown(reason="deadline")
        return await self.inner.commit(transaction)

    async def resume(self):
        return await self.inner.commit(self.held)

    def __getattr__(self, name):
        return getattr(self.inner, name)


async def leading():
    inner = MemoryCluster(clock_s=lambda: 0.0).store("digits")
    return inner, (await inner.try_lead(holder="me", ttl_s=60)).term


async def write_all(store, term, writes):
    """What each write was answered, in order."""
    answers, done = [], asyncio.Event()

    def note(answer):
        answers.append(answer)
        if len(answers) == len(writes):
            done.set()

    persistence = StoreWriter(store, term, note)
    running = asyncio.create_task(persistence.run())
    for write in writes:
        persistence.add(Persist(write=write))
    await asyncio.wait_for(done.wait(), 60)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return answers


NUMBERS = {
    "servers": [RecordServers(count=4), RecordServers(count=2)],
    "servers that came back": [RecordServers(count=4), RecordServers(count=2), RecordServers(count=4)],
    "high water": [ReserveHighWater(below=64), ReserveHighWater(below=128)],
}


@pytest.mark.parametrize("before", [[], [RecordServers(count=4), ReserveHighWater(below=64)]], ids=["new", "later"])
@pytest.mark.parametrize("writes", NUMBERS.values(), ids=NUMBERS)
async def test_a_late_attempt_overwrites_no_newer_number(writes, before):
    """The first attempt's answer is lost and it lands after the last write: nothing changes (M6, ADR 0315)."""
    inner, term = await leading()
    if before:
        await write_all(inner, term, before)
    paused = PausedMember(inner)
    assert await write_all(paused, term, writes) == [Persisted(write=write) for write in writes]
    standing = await inner.read(durable_keys(inner.keys))
    assert isinstance(await paused.resume(), Conflict)
    assert (await inner.read(durable_keys(inner.keys))).entries == standing.entries
    durable = parse_durable(standing, inner.keys, None, UNNAMED_ORIGIN)
    last = writes[-1]
    assert last in (RecordServers(count=durable.servers or 0), ReserveHighWater(below=durable.high_water))
