"""What every store promises, asked of the one in memory and of a real etcd alike."""

import asyncio
from contextlib import aclosing

import pytest

from master.errors import FencedError, InvariantViolationError, LeaseLostError
from master.store.memory_store import MemoryCluster
from master.store.store_port import (
    MAX_VALUE_BYTES,
    Absent,
    Changed,
    Committed,
    Conflict,
    Delete,
    Put,
    Transaction,
    UnchangedSince,
    ValueIs,
)
from tests.harness.secured_etcd import UNHURRIED

pytestmark = pytest.mark.usefixtures("patient_connections")

LONG_TTL_S = 600  # beyond any pause of the machine
TTL_S = 6  # renewed within, or let pass
SHORTEST_TTL_S = 2  # etcd grants no less


class MemoryBackend:
    def __init__(self):
        self.now_s = 0.0
        self.cluster = MemoryCluster(clock_s=lambda: self.now_s)

    def store(self, job="digits"):
        return self.cluster.store(job)

    async def let_pass(self, seconds):
        self.now_s += seconds


class EtcdBackend:
    def __init__(self, open_store, cluster):
        self.open_store = open_store
        self.cluster = cluster

    def store(self, job="digits"):
        return self.open_store(self.cluster, job, **UNHURRIED)

    async def let_pass(self, seconds):
        await asyncio.sleep(seconds)


@pytest.fixture(params=["memory", "etcd"])
def backend(request):
    if request.param == "memory":
        return MemoryBackend()
    cluster = request.getfixturevalue("etcd")  # first, so that it ends last
    return EtcdBackend(request.getfixturevalue("open_store"), cluster)


async def lead(store, holder="a", ttl_s=LONG_TTL_S):
    leadership = await store.try_lead(holder=holder, ttl_s=ttl_s)
    assert leadership is not None
    return leadership


async def lead_when_free(backend, store, holder):
    """Of a lease that is over: etcd itself may notice late."""
    async with asyncio.timeout(60):
        while (leadership := await store.try_lead(holder=holder, ttl_s=LONG_TTL_S)) is None:
            await backend.let_pass(0.1)
    return leadership


async def next_events(store, prefix, after, count):
    async with asyncio.timeout(60), aclosing(store.watch(prefix, after=after)) as events:
        return [await anext(events) for _ in range(count)]


async def test_two_campaigners_never_both_hold(backend):
    """Of many candidates at once, again and again, exactly one leads, and terms grow (M5)."""
    stores = [backend.store() for _ in range(4)]
    terms = []
    for _ in range(5):
        tried = await asyncio.gather(
            *(store.try_lead(holder=str(n), ttl_s=LONG_TTL_S) for n, store in enumerate(stores))
        )
        winners = [(store, won) for store, won in zip(stores, tried, strict=True) if won is not None]
        assert len(winners) == 1
        store, won = winners[0]
        assert {await other.read_leader() for other in stores} == {won}
        terms.append(won.term)
        await store.resign(won)
        assert await store.read_leader() is None
    assert terms == sorted(set(terms))


async def test_leaders_of_two_jobs_do_not_meet(backend):
    """Jobs share a store and nothing else."""
    a, b = backend.store("a"), backend.store("b")
    await lead(a)
    leadership = await lead(b)
    await b.commit(Transaction(term=leadership.term, writes=(Put(b.keys.head, b"1"),)))
    assert (await a.read([a.keys.head])).entries == {}


async def test_transaction_of_an_old_term_is_fenced(backend):
    """A paused leader changes nothing once somebody else leads, or nobody does (M2, M5)."""
    old, new = backend.store(), backend.store()
    first = await lead(old, "old")
    late = Transaction(term=first.term, writes=(Put(old.keys.head, b"late"),))
    await old.resign(first)
    with pytest.raises(FencedError):
        await old.commit(late)
    second = await lead(new, "new")
    with pytest.raises(FencedError, match=str(second.term)):
        await old.commit(late)
    assert (await new.read([new.keys.head])).entries == {}


async def test_lease_that_expires_frees_the_leadership(backend):
    """Nobody renews: somebody else leads, the old one is fenced and its renewal refused (M5)."""
    old, new = backend.store(), backend.store()
    first = await lead(old, "old", TTL_S)
    assert await new.try_lead(holder="new", ttl_s=TTL_S) is None
    await backend.let_pass(TTL_S)
    second = await lead_when_free(backend, new, "new")
    assert second.term > first.term
    with pytest.raises(LeaseLostError):
        await old.renew(first)
    with pytest.raises(FencedError):
        await old.commit(Transaction(term=first.term, writes=()))
    await old.resign(first)
    assert await new.read_leader() == second


async def test_lease_that_is_renewed_stays(backend):
    """Renewals keep the same term beyond the time to live (M5)."""
    store = backend.store()
    leadership = await lead(store, ttl_s=TTL_S)
    for _ in range(7):
        await backend.let_pass(1.0)
        await store.renew(leadership)
    assert await store.read_leader() == leadership


async def test_transaction_is_all_or_nothing(backend):
    """One comparison that fails keeps back every write, and the answer says how the keys stand (rule 23)."""
    store = backend.store()
    keys, term = store.keys, (await lead(store)).term
    first = await store.commit(Transaction(term=term, writes=(Put(keys.head, b"m1"), Put(keys.lineage, b"1"))))
    assert isinstance(first, Committed)
    refused = await store.commit(
        Transaction(
            term=term,
            require=(ValueIs(keys.lineage, b"1"), ValueIs(keys.head, b"m0")),
            writes=(Put(keys.head, b"m2"), Put(keys.route, b"r"), Delete(keys.lineage)),
        )
    )
    assert isinstance(refused, Conflict)
    current = {key: entry.value for key, entry in refused.current.entries.items()}
    assert current == {keys.head: b"m1", keys.lineage: b"1"}
    snapshot = await store.read([keys.head, keys.lineage, keys.route])
    assert snapshot.entries == refused.current.entries
    assert {entry.mod_revision for entry in snapshot.entries.values()} == {first.revision}


async def test_comparisons_hold_or_conflict(backend):
    """Value, absence and mod revision each decide both ways."""
    store = backend.store()
    keys, term = store.keys, (await lead(store)).term
    one = await store.commit(Transaction(term=term, require=(Absent(keys.head),), writes=(Put(keys.head, b"1"),)))
    assert isinstance(one, Committed)
    for comparison, holds in (
        (Absent(keys.head), False),
        (Absent(keys.route), True),
        (ValueIs(keys.head, b"1"), True),
        (ValueIs(keys.head, b"2"), False),
        (ValueIs(keys.route, b""), False),
        (UnchangedSince(keys.head, one.revision), True),
        (UnchangedSince(keys.head, one.revision + 1), False),
    ):
        outcome = await store.commit(Transaction(term=term, require=(comparison,), writes=(Put(keys.route, b"t"),)))
        assert isinstance(outcome, Committed if holds else Conflict), comparison


async def test_what_was_committed_is_read_by_everybody(backend):
    """A read is never older than a write acknowledged before it, whoever wrote (M6)."""
    writer, reader = backend.store(), backend.store()
    term = (await lead(writer)).term
    for number in range(20):
        value = str(number).encode()
        outcome = await writer.commit(Transaction(term=term, writes=(Put(writer.keys.high_water, value),)))
        snapshot = await reader.read([reader.keys.high_water])
        assert snapshot.try_value(reader.keys.high_water) == value
        assert snapshot.revision >= outcome.revision


async def test_read_of_nothing_and_of_absent_keys(backend):
    """Absent keys are missing from the snapshot, and a revision comes in any case."""
    store = backend.store()
    assert (await store.read([])).entries == {}
    snapshot = await store.read([store.keys.head, store.keys.head])
    assert snapshot.entries == {}
    assert snapshot.revision >= 1
    assert snapshot.try_value(store.keys.head) is None


async def test_watch_sees_every_change_in_order(backend):
    """From a revision in the past into the future: none lost, none twice, deletions included."""
    store, other = backend.store(), backend.store()
    keys = store.keys
    start = (await store.read([])).revision
    leadership = await lead(store)
    for number in range(3):
        await store.commit(Transaction(term=leadership.term, writes=(Put(keys.head, b"%d" % number),)))
    watching = asyncio.create_task(next_events(other, keys.prefix, start, 6))
    await store.commit(Transaction(term=leadership.term, writes=(Delete(keys.head),)))
    await store.resign(leadership)
    events = await watching
    assert all(isinstance(event, Changed) for event in events)
    values = [(event.key, event.entry.value if event.entry else None) for event in events]
    assert values == [
        (keys.leader, b"a"),
        (keys.head, b"0"),
        (keys.head, b"1"),
        (keys.head, b"2"),
        (keys.head, None),
        (keys.leader, None),
    ]
    revisions = [event.revision for event in events]
    assert revisions == sorted(set(revisions))


async def test_watch_tells_of_a_lease_that_expired(backend):
    """A standby hears that the leader is gone."""
    store = backend.store()
    leadership = await lead(store, ttl_s=SHORTEST_TTL_S)
    watching = asyncio.create_task(next_events(store, store.keys.leader, leadership.term, 1))
    await backend.let_pass(SHORTEST_TTL_S + 1)
    await store.read_leader()
    [event] = await watching
    assert (event.key, event.entry) == (store.keys.leader, None)


async def test_largest_value_is_carried(backend):
    """What the port allows the store can carry; what is larger is refused where it is made (M6)."""
    store = backend.store()
    term = (await lead(store)).term
    value = bytes(MAX_VALUE_BYTES)
    writes = (Put(store.keys.head, value), Put(store.keys.route, value))
    assert isinstance(await store.commit(Transaction(term=term, writes=writes)), Committed)
    assert (await store.read([store.keys.route])).try_value(store.keys.route) == value


async def test_leader_key_and_foreign_keys_are_not_written(backend):
    """A put on the leader key would cut it loose from its lease."""
    store = backend.store()
    term = (await lead(store)).term
    for key in (store.keys.leader, backend.store("other").keys.head):
        with pytest.raises(InvariantViolationError):
            await store.commit(Transaction(term=term, writes=(Put(key, b"x"),)))
