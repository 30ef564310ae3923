"""Buckets that do not arrive: asked for again, told again, undone in time (rules 43, 46, 53; ADR 0315)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from master.api.identities import Version
from master.api.messages.from_members import ServerLeaving, ServerReport
from master.api.messages.to_members import Activate, Forget, Freeze
from master.api.positions import PositionSet
from master.job import deadlines
from master.job.domain.durable_records import SECOND, Instant
from master.job.domain.job_events import AnswersOverdue, MovesExpired, StreamBroken
from tests.unit.master.job.driver import run_servers, serving
from tests.unit.master.job.moving import CONFIG, TO_S1, carry, grow, installed, owners_of, to


@pytest.fixture
def job():
    return serving(CONFIG)


def steadily(driver, servers, seconds):
    """A second at a time: whatever is due happens, and one bucket arrives, but never the first that was to move."""
    stuck = driver.state.moves.intents[0]
    for _ in range(seconds):
        driver.now = Instant(driver.now + SECOND)
        for at, event in deadlines(driver.state):
            if at <= driver.now and isinstance(event, MovesExpired | AnswersOverdue):
                driver.feed(event)
        arriving = [one for one in driver.state.moves.awaited if one.bucket != stuck.bucket][:1]
        for intent in arriving:
            target = next(server for server in servers if server.key == intent.target)
            installed(driver, target, intent.bucket, intent.version + 1)
        run_servers(driver, servers)
    return stuck


def growing(bucket_count=256):
    driver, servers = serving(replace(CONFIG, bucket_count=bucket_count))
    grow(driver, servers)
    return driver, servers


def test_what_is_not_answered_is_asked_again(job):
    """Rules 43, 47: FREEZE, then ACTIVATE."""
    driver, (s0, s1) = job
    driver.feed(TO_S1)
    driver.fire(AnswersOverdue)
    assert len(to(driver, s0.key, Freeze)) == 2
    installed(driver, s1, 0)
    driver.fire(AnswersOverdue)
    s1.register()
    assert len(to(driver, s1.key, Activate)) == 3


def test_a_server_that_returns_is_told_what_it_has_lost(job):
    """Rule 48: late or never is safe."""
    driver, servers = job
    driver.feed(TO_S1)
    carry(driver, servers)
    servers[0].register()
    assert to(driver, servers[0].key, Forget)[-1] == Forget(lineage=1, buckets=PositionSet.of(0), version=Version(1))


def test_what_has_not_arrived_in_time_is_undone_and_stays_at_the_next_version(job):
    """Rules 46, 53."""
    driver, (s0, s1) = job
    driver.feed(TO_S1)
    driver.fire(MovesExpired)
    assert (driver.durable.route.owner[0], driver.durable.route.version[0]) == (0, 1)
    assert driver.durable.intents == ()
    assert to(driver, s0.key, Activate)[-1].version == 1
    assert to(driver, s1.key, Forget)[-1].version == 1
    installed(driver, s1, 0)
    assert driver.durable.route.owner[0] == 0


def test_a_bucket_that_is_lost_on_its_way_is_undone_in_its_own_time():
    """Others that move meanwhile give it no more: every batch needs every bucket (ADR 0315)."""
    driver, servers = growing()
    stuck = steadily(driver, servers, 9)
    assert stuck in driver.state.moves.intents
    assert len([one for one in to(driver, stuck.source, Freeze) if one.bucket == stuck.bucket]) == 2
    assert len(owners_of(driver, servers[2])) > 1
    steadily(driver, servers, 1)
    assert stuck not in driver.state.moves.intents
    assert driver.durable.route.version[stuck.bucket] == 1


def row_to_the_third(bucket_count=64):
    """Buckets whose weight is known: many are on their way together, one source's in the order of their numbers."""
    driver, servers = serving(replace(CONFIG, bucket_count=bucket_count, moves_at_once=32))
    for server in servers:
        mine = PositionSet.of(*owners_of(driver, server))
        driver.send(
            server.key,
            ServerReport(
                lineage=driver.state.number, buckets=mine, sizes_bytes=(1 << 20,) * len(mine), loads=(1.0,) * len(mine)
            ),
        )
    grow(driver, servers)
    row = [one for one in driver.state.moves.awaited if one.source == servers[0].key]
    assert len(row) > 3
    return driver, servers, row


def pass_time(driver, seconds):
    for _ in range(seconds):
        driver.now = Instant(driver.now + SECOND)
        for at, event in deadlines(driver.state):
            if at <= driver.now and isinstance(event, MovesExpired):
                driver.feed(event)


def test_a_slow_link_is_no_reason_to_undo_what_waits_for_its_turn():
    """32 MiB that begin together take as long as the link takes: each has its time once those before it are there."""
    driver, servers, row = row_to_the_third()
    for intent in row:
        pass_time(driver, 4)
        installed(driver, servers[2], intent.bucket, intent.version + 1)
    assert set(owners_of(driver, servers[2])) >= {intent.bucket for intent in row}


def test_what_is_stuck_in_the_row_is_undone_in_its_own_time():
    """Those that were to move after it, or from elsewhere, arrive meanwhile: that is no progress of it."""
    driver, servers, row = row_to_the_third()
    first, stuck, *later = row
    pass_time(driver, 4)
    installed(driver, servers[2], first.bucket, first.version + 1)
    others = [one for one in driver.state.moves.awaited if one.source == servers[1].key]
    for intent in (*later[:1], *others[:1]):
        pass_time(driver, 4)
        installed(driver, servers[2], intent.bucket, intent.version + 1)
    assert stuck in driver.state.moves.intents
    pass_time(driver, 2)
    assert stuck not in driver.state.moves.intents
    assert stuck.bucket not in owners_of(driver, servers[2])


def test_only_what_is_late_is_undone():
    """What began to move later has its time still."""
    driver, servers = growing()
    steadily(driver, servers, 9)
    younger = [one for one in driver.state.moves.awaited if driver.state.moves.begun_at[one.bucket] > 0]
    driver.now = Instant(driver.now + SECOND)
    driver.fire(MovesExpired)
    assert younger
    assert set(younger) <= set(driver.state.moves.intents)


def test_what_has_arrived_is_not_late_because_the_store_is_slow(job):
    driver, (_, s1) = job
    driver.feed(TO_S1)
    driver.writes_go_through = False
    installed(driver, s1, 0)
    assert MovesExpired not in driver.pending()


def test_freeze_is_said_again_when_the_target_returns(job):
    """Its INSTALLED may have been lost with its stream; the source sends again what it has frozen (rule 43)."""
    driver, (s0, s1) = job
    driver.feed(TO_S1)
    driver.feed(StreamBroken(member=s1.key))
    s1.register()
    assert len(to(driver, s0.key, Freeze)) == 2
    installed(driver, s1, 0)
    s1.register()
    assert len(to(driver, s0.key, Freeze)) == 2


def test_a_target_whose_stream_stays_broken_keeps_nothing_frozen():
    """UNDO needs nobody: what is not installed is served again before the target counts as lost."""
    driver, servers = growing(24)
    arrived, waits = driver.state.moves.intents
    driver.writes_go_through = False
    installed(driver, servers[2], arrived.bucket)
    driver.feed(StreamBroken(member=servers[2].key))
    driver.let_go()
    (undone_at,) = (at for at, event in deadlines(driver.state) if isinstance(event, MovesExpired))
    assert undone_at == driver.now + driver.config.short_window_ns
    driver.fire(MovesExpired)
    assert waits not in driver.durable.intents
    assert owners_of(driver, servers[2]) == [arrived.bucket]
    assert not driver.durable.intents, "nothing begins to move there before it is back"
    assert driver.state.moves.late == 0


def test_a_target_that_returns_has_its_time(job):
    """A stream that broke for a moment costs a move nothing."""
    driver, (_, s1) = job
    driver.feed(TO_S1)
    driver.now = Instant(driver.now + SECOND)
    driver.feed(StreamBroken(member=s1.key))
    s1.register()
    (undone_at,) = (at for at, event in deadlines(driver.state) if isinstance(event, MovesExpired))
    assert undone_at == driver.config.move_timeout_ns


def test_what_a_leaving_server_could_not_hand_over_is_tried_again(job):
    """Rule 53: its grace runs."""
    driver, (s0, s1) = job
    driver.send(s0.key, ServerLeaving())
    driver.fire(MovesExpired)
    run_servers(driver, [s0, s1])
    assert [intent.version for intent in driver.durable.intents] == [1, 1]
