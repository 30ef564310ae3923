"""One candidate beside a store that is cut off, refuses, or breaks: what becomes of its reign."""

import asyncio

import pytest

from master.errors import StoreAccessError, StoreUnavailableError, TermEndedError
from master.leadership.election import Election
from master.leadership.election_events import LossReason
from master.leadership.election_state import LeadershipTiming
from master.store.memory_store import MemoryCluster, MemoryStore

TIMING = LeadershipTiming(lease_ttl_s=900, renew_deadline_s=0.02, retry_period_s=0.01)
"""As fast as the loop turns; the lease itself outlives each test."""
UNHURRIED = LeadershipTiming(lease_ttl_s=900, renew_deadline_s=600.0, retry_period_s=0.01)


class Link(MemoryStore):
    """A memory store whose renewals fail as told."""

    def __init__(self):
        cluster = MemoryCluster()
        super().__init__(cluster, cluster.store("digits").keys)
        self.fault = None
        self.faults_told = 0
        self.told = asyncio.Event()

    async def renew(self, leadership):
        if self.fault is None:
            renewed = await super().renew(leadership)
            self.told.set()
            return renewed
        self.faults_told += 1
        self.told.set()
        raise self.fault


@pytest.fixture
def store():
    return Link()


async def past_the_deadline(store, held_term):
    """The store has been silent for longer than the renew deadline."""
    while store.faults_told < 5:
        store.told.clear()
        await store.told.wait()
    await held_term.confirm()


async def test_the_only_master_keeps_its_term_over_an_outage(store):
    """A silent store ends nothing, and the lease that outlives the silence is renewed: no campaign (M5, M6)."""
    async with asyncio.timeout(60), Election(store, holder="me", timing=TIMING, is_alone=True) as election:
        held_term = await election.won()
        store.fault = StoreUnavailableError("no route")
        await past_the_deadline(store, held_term)
        assert held_term.may_act()
        assert held_term.store_problem == "no route"
        store.fault = None
        await held_term.confirm()
        assert await election.won() is held_term
        assert await store.read_leader() == held_term.leadership


async def test_a_store_that_answers_again_is_no_problem_at_once(store):
    """People read the reign's words: they are of the last renewal."""
    async with asyncio.timeout(60), Election(store, holder="me", timing=TIMING, is_alone=True) as election:
        held_term = await election.won()
        store.fault = StoreUnavailableError("no route")
        await past_the_deadline(store, held_term)
        store.fault = None
        store.told.clear()
        await store.told.wait()
        await asyncio.sleep(0)
        assert held_term.store_problem == ""


async def test_with_standbys_a_silent_store_ends_the_term(store):
    """A standby may serve soon; members must not hang on to this one (M5)."""
    async with asyncio.timeout(60), Election(store, holder="me", timing=TIMING) as election:
        held_term = await election.won()
        store.fault = StoreUnavailableError("no route")
        assert await held_term.ended() is LossReason.NOT_RENEWED
        with pytest.raises(TermEndedError, match="renew deadline"):
            await held_term.confirm()


async def test_the_only_master_whose_lease_is_gone_is_over(store):
    """Another one may have led meanwhile: the store's word ends the term (M2)."""
    async with asyncio.timeout(60), Election(store, holder="me", timing=TIMING, is_alone=True) as election:
        held_term = await election.won()
        await store.resign(held_term.leadership)
        assert await held_term.ended() is LossReason.LEASE_LOST
        with pytest.raises(TermEndedError, match="no longer knows"):
            await held_term.confirm()
        assert (await election.won()).leadership.term > held_term.leadership.term


@pytest.mark.parametrize("is_alone", [True, False])
@pytest.mark.parametrize("fault", [StoreAccessError("who are you?"), ValueError("a bug")])
async def test_an_election_that_fails_ends_the_reign_and_is_told(store, fault, is_alone):
    """A failed task behind the reign leaves nobody waiting: the term is over, and `won` says why."""
    async with asyncio.timeout(60), Election(store, holder="me", timing=UNHURRIED, is_alone=is_alone) as election:
        held_term = await election.won()
        store.fault = fault
        assert await held_term.ended() is LossReason.BROKEN
        with pytest.raises(type(fault), match=str(fault).rstrip("?")):
            await election.won()
