"""A promotion is told in the master's log and counted, once, with what only the shell knows: how long it took."""

import logging

import pytest

from master.api.checkpoints.local_storage import LocalStorage
from master.durable.checkpoint_folder import CheckpointFolder
from master.job.domain.durable_records import SECOND, Instant
from master.job.domain.job_events import Persisted, ReconnectWindowEnded, StreamBroken
from master.store.memory_store import MemoryCluster, MemoryStore
from master.term.counters import MOST_BROKEN, Counters, PromotionLog
from master.term.term_runtime import TermRuntime
from tests.unit.master.job.driver import key
from tests.unit.master.job.pairs import paired


@pytest.fixture
def lost():
    """A master of two servers, one of which is lost; the change of the table is on its way to the store."""
    driver, servers = paired()
    broken = StreamBroken(member=servers[0].key)
    before = driver.state
    driver.feed(broken)
    driver.writes_go_through = False
    driver.now = Instant(driver.now + SECOND // 2)
    driver.fire(ReconnectWindowEnded)
    return before, broken, driver


def test_who_is_lost_who_goes_on_and_how_soon(lost, caplog):
    before, broken, driver = lost
    counts = Counters()
    told = PromotionLog(counts)
    write = driver.state.moves.writing
    with caplog.at_level(logging.INFO, logger="master"):
        told.observe(before, broken, Instant(0))
        told.observe(driver.state, Persisted(write=write), Instant(612 * SECOND // 1000))
        driver.let_go()
        told.observe(driver.state, Persisted(write=write), Instant(SECOND))  # an answer that comes twice
    assert caplog.messages == ["s0 is lost: 2 buckets are promoted at s1, 612 ms after its stream broke"]
    assert counts.taken_over == 2


def test_one_that_stood_still_has_no_time_to_tell(lost, caplog):
    """Its stream stands."""
    _, _, driver = lost
    PromotionLog(Counters()).observe(driver.state, Persisted(write=driver.state.moves.writing), Instant(SECOND))
    assert caplog.messages == ["s0 is lost: 2 buckets are promoted at s1"]


def test_few_broken_streams_are_remembered(lost, caplog):
    """Trainers' are not servers', and whoever has gone long since is forgotten."""
    before, broken, driver = lost
    told = PromotionLog(Counters())
    told.observe(before, broken, Instant(0))
    for number in range(2 * MOST_BROKEN):
        told.observe(before, StreamBroken(member=key(f"t{number}")), Instant(0))
    told.observe(driver.state, Persisted(write=driver.state.moves.writing), Instant(SECOND))
    assert "1000 ms after" in caplog.text


async def test_a_term_shows_its_promotions_what_happens(lost, tmp_path, caplog):
    """Each event with the state before it: it is counted when the change of the table is durable, not before."""
    before, broken, driver = lost
    cluster, counts = MemoryCluster(), Counters()
    term = TermRuntime(
        config=driver.config,
        durable=driver.durable,
        term=1,
        store=MemoryStore(cluster, cluster.store("digits").keys),
        folder=CheckpointFolder(LocalStorage(tmp_path)),
        held_term=None,
        counts=counts,
    )
    term._state = before
    term._handle(broken, Instant(0))
    term._state = driver.state
    assert counts.taken_over == 0
    term._handle(Persisted(write=driver.state.moves.writing), Instant(SECOND))
    assert counts.taken_over == 2
    assert caplog.messages[-1].endswith("1000 ms after its stream broke")
