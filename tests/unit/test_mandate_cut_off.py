"""Who may act when the leadership is gone: the store's word counts, and its silence only where nobody else can lead."""

import asyncio

import pytest

from master.election import Reign
from master.errors import StoreUnavailableError
from master.leadership import LossReason
from master.mandate import Mandate, TermEndedError
from master.store.memory import MemoryCluster, MemoryStore


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


class Link(MemoryStore):
    """A memory store behind a network that can be cut."""

    is_cut = False

    async def read_leader(self):
        if self.is_cut:
            raise StoreUnavailableError("no route")
        return await super().read_leader()


class Stage:
    def __init__(self):
        self.clock = Clock()
        cluster = MemoryCluster(self.clock)
        self.store = Link(cluster, cluster.store("digits").keys)
        self.is_renewed = True

    async def mandate(self, *, has_standbys=False):
        leadership = await self.store.try_lead(holder="me", ttl_s=6)
        self.reign = Reign(leadership, lambda _: self.is_renewed)
        return Mandate(self.reign, self.store, has_standbys=has_standbys)

    def lose(self):
        self.is_renewed = False
        self.reign.end(LossReason.NOT_RENEWED)


@pytest.fixture
def stage():
    return Stage()


async def watched(mandate, check):
    watch = asyncio.create_task(mandate.watch())
    try:
        async with asyncio.timeout(5):
            return await check()
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)


async def test_a_renewed_leader_acts(stage):
    """The ordinary case costs one comparison."""
    mandate = await stage.mandate()
    assert mandate.may_act()
    assert not mandate.is_cut_off
    await mandate.confirm()


async def test_the_only_master_goes_on_while_the_store_is_away(stage):
    """Training goes on, commits wait: nobody else can lead either (M6)."""
    mandate = await stage.mandate()
    stage.store.is_cut = True
    stage.lose()
    assert not mandate.may_act()
    await watched(mandate, mandate.confirm)
    assert mandate.may_act()
    assert mandate.is_cut_off


async def test_with_standbys_a_master_that_cannot_renew_is_over(stage):
    """A standby may serve soon; members must not hang on to this one (M5)."""
    mandate = await stage.mandate(has_standbys=True)
    stage.store.is_cut = True
    stage.lose()
    with pytest.raises(TermEndedError, match="renew deadline"):
        await watched(mandate, mandate.confirm)
    assert not mandate.may_act()


async def test_another_leader_ends_the_term(stage):
    """Paused past the lease, then woken: the store says who leads (M2)."""
    mandate = await stage.mandate()
    stage.clock.now_s = 10.0
    other = await stage.store.try_lead(holder="other", ttl_s=6)
    stage.lose()
    with pytest.raises(TermEndedError, match=f"term {other.term} leads"):
        await watched(mandate, mandate.confirm)


async def test_nobody_leading_ends_the_term_too(stage):
    """The lease ran out while everybody was away: a new term begins, with what is durable."""
    mandate = await stage.mandate()
    stage.clock.now_s = 10.0
    stage.lose()
    with pytest.raises(TermEndedError, match="nobody leads"):
        await watched(mandate, mandate.confirm)


async def test_its_own_term_in_the_store_is_its_word(stage):
    """The store came back before the lease ran out there: no reason to stop in between."""
    mandate = await stage.mandate()
    stage.lose()
    await watched(mandate, mandate.confirm)
    assert mandate.may_act()
