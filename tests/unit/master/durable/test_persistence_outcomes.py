"""What the store did with a write is what the core is told of it: the one answer between them (rules 18, 23; M6)."""

import asyncio
from contextlib import asynccontextmanager
from itertools import count

import pytest

from master.api.identities import Lineage, ManifestId
from master.api.positions import PositionSet
from master.errors import InvariantViolationError, StoreUnavailableError
from master.job.domain.durable_records import LineageRecord, ReserveHighWater, SwapHead
from master.job.domain.effects import Persist
from master.job.domain.job_events import Persisted, PersistRefused
from master.store.memory_store import MemoryCluster, MemoryStore
from master.store.store_port import Unknown
from master.term.store_writer import MAX_WAITING_WRITES, StoreWriter

FIRST = LineageRecord(number=Lineage(1), base=None, quarantine=PositionSet())
NEW = ManifestId("000001-0000000001-000001")


class Store(MemoryStore):
    """A memory store whose next commits go as `faults` says, in order; afterwards as they should."""

    def __init__(self, cluster):
        super().__init__(cluster, cluster.store("digits").keys)
        self.faults = []
        self.commits = 0

    async def commit(self, transaction):
        self.commits += 1
        fault = self.faults.pop(0) if self.faults else None
        if fault == "away":
            raise StoreUnavailableError("no route", retry_after_s=0.0)
        if fault == "answer lost":
            await super().commit(transaction)
            return Unknown(reason="no answer")
        return await super().commit(transaction)


@asynccontextmanager
async def writer(store):
    """A leader's writer, and what it has answered."""
    answers = asyncio.Queue()
    leadership = await store.try_lead(holder="me", ttl_s=60)
    persistence = StoreWriter(store, leadership.term, answers.put_nowait)
    running = asyncio.create_task(persistence.run())
    try:
        yield persistence, answers
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def answer_to(persistence, answers, write):
    persistence.add(Persist(write=write))
    async with asyncio.timeout(60):
        return await answers.get()


async def head_of(store):
    return (await store.read((store.keys.head,))).try_value(store.keys.head)


async def test_a_write_that_the_store_took_is_persisted():
    """And only then is it so: the value is there when the answer comes."""
    store = Store(MemoryCluster())
    async with writer(store) as (persistence, answers):
        write = ReserveHighWater(below=64)
        assert await answer_to(persistence, answers, write) == Persisted(write=write)
        assert (await store.read((store.keys.high_water,))).try_value(store.keys.high_water) == b"64"


async def test_a_write_over_other_values_is_refused_and_not_persisted():
    """A commit on another head than this term built on never counts as a commit (rule 23)."""
    store = Store(MemoryCluster())
    async with writer(store) as (persistence, answers):
        answer = await answer_to(persistence, answers, SwapHead(parent=None, lineage=FIRST, manifest=NEW))
        assert isinstance(answer, PersistRefused)
        assert await head_of(store) is None


async def test_a_write_of_a_term_that_another_has_followed_is_refused():
    """The fence is the store's own comparison: a late master is told, and has written nothing (M5)."""
    times = count()
    store = Store(MemoryCluster(clock_s=lambda: next(times) * 100.0))  # each question finds the lease run out
    async with writer(store) as (persistence, answers):
        answer = await answer_to(persistence, answers, ReserveHighWater(below=64))
        assert isinstance(answer, PersistRefused)
        assert (await store.read((store.keys.high_water,))).try_value(store.keys.high_water) is None


async def test_a_write_whose_answer_was_lost_is_persisted_once():
    """It is found by reading, not sent again (rule 23)."""
    store = Store(MemoryCluster())
    store.faults = ["answer lost"]
    async with writer(store) as (persistence, answers):
        write = ReserveHighWater(below=64)
        assert await answer_to(persistence, answers, write) == Persisted(write=write)
        assert store.commits == 1


async def test_a_store_that_is_away_is_asked_again_and_says_so_meanwhile():
    """No answer is made up: the core hears nothing until it is certain, and people hear why they wait."""
    store = Store(MemoryCluster())
    store.faults = ["away", "away"]
    async with writer(store) as (persistence, answers):
        persistence.add(Persist(write=ReserveHighWater(below=64)))
        async with asyncio.timeout(60):
            while not persistence.problem:  # noqa: ASYNC110 - it is a plain value
                await asyncio.sleep(0)
            assert "no route" in persistence.problem
            assert isinstance(await answers.get(), Persisted)
        assert persistence.problem == ""
        assert store.commits == 3


async def test_answers_come_in_the_order_of_the_writes():
    """What was decided later is never durable earlier."""
    store = Store(MemoryCluster())
    store.faults = ["away"]
    async with writer(store) as (persistence, answers):
        writes = [ReserveHighWater(below=below) for below in (10, 20, 30)]
        for write in writes:
            persistence.add(Persist(write=write))
        async with asyncio.timeout(60):
            assert [(await answers.get()).write for _ in writes] == writes


async def test_writes_that_nobody_takes_are_bounded():
    """More than the core can have asked for is a bug, and ends the term instead of the memory."""
    store = Store(MemoryCluster())
    persistence = StoreWriter(store, (await store.try_lead(holder="me", ttl_s=60)).term, lambda _: None)
    for below in range(MAX_WAITING_WRITES):
        persistence.add(Persist(write=ReserveHighWater(below=below)))
    with pytest.raises(InvariantViolationError):
        persistence.add(Persist(write=ReserveHighWater(below=0)))
    assert len(persistence) == MAX_WAITING_WRITES
