"""A real etcd that is killed, paused and restarted under a store."""

import asyncio
import time
from contextlib import aclosing, suppress
from itertools import count
from random import Random

import pytest

from master.errors import StoreUnavailableError
from master.store.etcd.etcd_config import EtcdConfig
from master.store.etcd.etcd_store import EtcdStore
from master.store.etcd.stubs import rpc, stubs
from master.store.settlement import settle
from master.store.store_port import Changed, Committed, Conflict, Put, Resync, Transaction, Unknown, ValueIs
from tests.harness.etcd_faults import pause_member, resume_member
from tests.harness.process_state import has_stopped
from tests.harness.secured_etcd import UNHURRIED

pytestmark = pytest.mark.chaos

LONG_TTL_S = 600
SETTLE_S = 60.0


async def lead(store):
    async with asyncio.timeout(60):
        while True:
            with suppress(StoreUnavailableError):  # its calls have a second each, and the machine may be busy
                leadership = await store.try_lead(holder="a", ttl_s=LONG_TTL_S)
                assert leadership is not None
                return leadership


async def put(store, term, value):
    return await settle(store, Transaction(term=term, writes=(Put(store.keys.head, value),)), budget_s=SETTLE_S)


async def test_watch_survives_kill_and_restart(etcd, open_store):
    """kill -9 and a restart on the same data: the same watch goes on, no change lost or repeated; the term stays."""
    store, watcher = (open_store(etcd, read_budget_s=60.0) for _ in range(2))
    leadership = await lead(store)
    async with asyncio.timeout(90), aclosing(watcher.watch(store.keys.head, after=leadership.term)) as events:
        await put(store, leadership.term, b"1")
        assert (await anext(events)).entry.value == b"1"
        await etcd.members[0].kill()
        await etcd.members[0].start()
        await etcd.members[0].wait_ready()
        assert isinstance(await put(store, leadership.term, b"2"), Committed)
        assert (await anext(events)).entry.value == b"2"
    assert await store.read_leader() == leadership


async def test_server_that_is_paused_mid_call_gives_unknown(etcd, open_store):
    """SIGSTOP: the answer is Unknown while it stands still, never an error; settling it finds the truth (rule 23)."""
    store, patient = open_store(etcd, read_budget_s=2.0), open_store(etcd, **UNHURRIED)
    term = (await lead(store)).term
    assert isinstance(await put(store, term, b"m1"), Committed)
    transaction = Transaction(
        term=term, require=(ValueIs(store.keys.head, b"m1"),), writes=(Put(store.keys.head, b"m2"),)
    )
    pause_member(etcd.members[0])
    try:
        assert await has_stopped(etcd.members[0].pid)
        async with asyncio.timeout(60):
            assert isinstance(await store.commit(transaction), Unknown)
            with pytest.raises(StoreUnavailableError):
                await store.read([store.keys.head])
    finally:
        resume_member(etcd.members[0])
    assert isinstance(await settle(store, transaction, budget_s=SETTLE_S), Committed)
    assert (await patient.read([store.keys.head])).try_value(store.keys.head) == b"m2"
    assert isinstance(await patient.commit(transaction), Conflict)


async def test_writes_go_on_when_each_of_three_members_dies_in_turn(etcd_of_three, open_store):
    """No acknowledged write is lost, and each write is settled without the member that is gone (M5, M6)."""
    store = open_store(etcd_of_three, read_budget_s=60.0)
    term = (await lead(store)).term
    number = 0
    for member in etcd_of_three.members:
        await member.kill()
        for _ in range(20):
            number += 1
            assert isinstance(await put(store, term, b"%d" % number), Committed)
        await member.start()
        await member.wait_ready()
        assert (await store.read([store.keys.head])).try_value(store.keys.head) == b"%d" % number


async def disturb(cluster, random, rounds, enough):
    """Kills or pauses one member of three at a time, for less or more than a call's deadline; until it is enough."""
    for number in count():
        if number >= rounds and enough.is_set():
            return
        member = random.choice(cluster.members)
        if random.random() < 0.5:
            await member.kill()
            await asyncio.sleep(random.uniform(0.0, 0.5))
            await member.start()
            await member.wait_ready()
        else:
            pause_member(member)
            await asyncio.sleep(random.uniform(0.3, 2.5))
            resume_member(member)
        await asyncio.sleep(random.uniform(0.0, 0.5))


async def test_settled_transactions_happen_exactly_once_under_faults(etcd_of_three, open_store):
    """A counter that goes from n to n + 1 by comparison: what was settled as committed is what the counter says."""
    store = open_store(etcd_of_three, read_budget_s=60.0)
    key, term = store.keys.head, (await lead(store)).term
    assert isinstance(await put(store, term, b"0"), Committed)
    enough = asyncio.Event()
    faults = asyncio.create_task(disturb(etcd_of_three, Random(7), 6, enough))
    settled = 0
    while not faults.done():
        transaction = Transaction(
            term=term, require=(ValueIs(key, b"%d" % settled),), writes=(Put(key, b"%d" % (settled + 1)),)
        )
        outcome = await settle(store, transaction, budget_s=SETTLE_S)
        assert isinstance(outcome, Committed), outcome
        settled += 1
        if settled > 100:
            enough.set()
    await faults
    assert (await store.read([key])).try_value(key) == b"%d" % settled


async def test_renewals_go_on_when_the_member_in_use_dies(etcd_of_three, open_store):
    """The leader keeps its term over the loss of the member that it talks to (M5)."""
    store = open_store(etcd_of_three, read_budget_s=60.0)
    leadership = await lead(store)
    await store.renew(leadership)
    await etcd_of_three.members[0].kill()
    deadline_s = time.monotonic() + 60
    while True:
        try:
            await store.renew(leadership)
            break
        except StoreUnavailableError:
            assert time.monotonic() < deadline_s
            await asyncio.sleep(0.1)
    assert await store.read_leader() == leadership


async def test_compaction_gives_a_resync_and_then_changes(etcd, open_store):
    """A watch that lagged behind is told so; what comes next is later than the gap."""
    store = open_store(etcd, **UNHURRIED)
    term = (await lead(store)).term
    for number in range(5):
        await put(store, term, b"%d" % number)
    revision = (await store.read([])).revision
    await store._channel.call(
        lambda channel: stubs.KVStub(channel).Compact, rpc.CompactionRequest(revision=revision, physical=True)
    )
    async with asyncio.timeout(60), aclosing(store.watch(store.keys.prefix, after=term)) as events:
        gap = await anext(events)
        assert gap == Resync(revision=revision)
        await put(store, term, b"new")
        event = await anext(events)
    assert isinstance(event, Changed)
    assert event.entry.value == b"new"


async def test_store_without_any_server_is_unavailable_within_its_budget():
    """Nothing listens: a typed error, without waiting for ever, and a write is Unknown."""
    store = EtcdStore(EtcdConfig(endpoints=("127.0.0.1:1",), call_deadline_s=0.5, read_budget_s=1.0), "digits")
    try:
        async with asyncio.timeout(60):
            with pytest.raises(StoreUnavailableError):
                await store.try_lead(holder="a", ttl_s=5)
        assert isinstance(await store.commit(Transaction(term=1, writes=())), Unknown)
    finally:
        await store.close()
