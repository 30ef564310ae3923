"""Elections on a real etcd: take-over, loss, and the end of a master."""

import asyncio

import pytest

from master.api.host.clock import uptime_s
from master.errors import FencedError
from master.leadership.election import Election
from master.leadership.election_events import LossReason
from master.leadership.election_state import LeadershipTiming
from master.store.store_port import Committed, Put, Transaction
from tests.harness.etcd_faults import pause_member, resume_member

TIMING = LeadershipTiming(lease_ttl_s=120, renew_deadline_s=100.0, retry_period_s=0.5)  # no pause of a machine ends it
SHORT = LeadershipTiming(lease_ttl_s=3, renew_deadline_s=2.0, retry_period_s=0.5)
BUDGET_S = 90.0  # shorter than the lease


def put(store, held_term, value):
    return store.commit(Transaction(term=held_term.leadership.term, writes=(Put(store.keys.head, value),)))


async def test_standby_takes_over_when_the_leader_leaves(etcd, open_store):
    """A leader that ends in order is followed long before its lease would end (M5)."""
    first, second = open_store(etcd), open_store(etcd)
    leading = Election(first, holder="a", timing=TIMING)
    async with asyncio.timeout(BUDGET_S), leading:
        held_term = await leading.won()
        async with Election(second, holder="b", timing=TIMING) as standby:
            succession = asyncio.create_task(standby.won())
            assert isinstance(await put(first, held_term, b"a"), Committed)
            await asyncio.sleep(1.0)  # the standby has tried, and waits
            assert not succession.done()
            await leading.resign()
            assert await held_term.ended() is LossReason.RESIGNED
            assert not held_term.may_act()
            successor = await succession  # within the budget: nobody waits for the lease
            with pytest.raises(FencedError):
                await put(first, held_term, b"late")
            assert isinstance(await put(second, successor, b"b"), Committed)


async def test_fenced_master_steps_down_and_campaigns_again(etcd, open_store):
    """A refused transaction ends the reign at once; the next one has a later term."""
    store = open_store(etcd)
    async with asyncio.timeout(BUDGET_S), Election(store, holder="a", timing=TIMING) as election:
        held_term = await election.won()
        election.step_down(held_term, LossReason.GIVEN_UP)
        assert not held_term.may_act()
        assert await held_term.ended() is LossReason.GIVEN_UP
        assert (await election.won()).leadership.term > held_term.leadership.term


class Clock:
    """A leader's clock that stands until it is moved, so that no pause of this machine is one of the leader's."""

    def __init__(self):
        self.now_s = 100.0
        self._goes_since_s = None

    def __call__(self):
        return self.now_s if self._goes_since_s is None else self.now_s + uptime_s() - self._goes_since_s

    def go(self):
        """From now on it goes by itself."""
        self._goes_since_s = uptime_s()


async def test_leader_without_etcd_stops_acting_before_its_lease_ends(etcd, open_store):
    """etcd paused: the leader stops at the renew deadline; with etcd back a new term follows (M5)."""
    store, clock = open_store(etcd), Clock()
    async with asyncio.timeout(BUDGET_S), Election(store, holder="a", timing=SHORT, clock_s=clock) as election:
        held_term = await election.won()
        pause_member(etcd.members[0])
        try:
            clock.now_s += SHORT.renew_deadline_s - 0.25
            assert held_term.may_act()
            clock.now_s += 0.25
            assert not held_term.may_act()
            assert await held_term.ended() is LossReason.NOT_RENEWED
        finally:
            resume_member(etcd.members[0])
        clock.go()
        following = await election.won()
        assert following.leadership.term > held_term.leadership.term
        assert following.may_act()


async def test_short_outage_does_not_end_the_reign(etcd, open_store):
    """kill -9 and a restart within the renew deadline: the same term goes on."""
    store = open_store(etcd)
    async with asyncio.timeout(BUDGET_S), Election(store, holder="a", timing=TIMING) as election:
        held_term = await election.won()
        await etcd.members[0].kill()
        await etcd.members[0].start()
        await etcd.members[0].wait_ready()
        await asyncio.sleep(1.0)
        assert held_term.may_act()
        assert (await election.won()) is held_term
        assert isinstance(await put(store, held_term, b"1"), Committed)
