"""Cuts and skips while buckets move (rules 59, 60)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from master.api.identities import Version
from master.api.messages.checkpoint_files import FileRecord
from master.api.messages.from_members import Activated, Failed, Leave, ServerLeaving, SkipAnswer, Written
from master.api.messages.to_members import Cut, Freeze, Hold, Released, Skip
from master.api.positions import EMPTY, PositionSet
from master.job.domain.job_config import JobConfig
from master.job.domain.job_events import CommitDue, MovesRequested, ReconnectWindowEnded, StreamBroken
from master.job.placement.owner_placement import Move
from master.job.state.protocol_state import CommitPhase, RecoveryStage
from tests.unit.master.job.driver import run_servers, serving
from tests.unit.master.job.moving import CONFIG, T0, TO_S1, carry, installed, owners, to, train


@pytest.fixture
def job():
    return serving(CONFIG)


def test_no_cut_begins_while_a_bucket_is_on_its_way_and_it_comes_first_after_that(job):
    """Rule 59, for pace."""
    driver, servers = job
    train(driver, servers, 1)
    moves = tuple(Move(bucket=b, source=0, target=1) for b in (0, 1))
    driver.feed(MovesRequested(moves=moves[:1], reason="load"))
    driver.fire(CommitDue)
    driver.feed(MovesRequested(moves=moves[1:], reason="load"))
    assert driver.state.commit.phase is CommitPhase.IDLE
    carry(driver, servers)
    assert to(driver, servers[0].key, Hold)
    assert driver.head is not None


def test_a_server_that_has_to_go_does_not_wait_for_a_cut(job):
    """Rule 59: FREEZE under an open cut costs at most one cut."""
    driver, (s0, s1) = job
    train(driver, [s0, s1], 1)
    driver.fire(CommitDue)
    assert driver.state.commit.phase is CommitPhase.HOLDING
    driver.feed(TO_S1)
    assert not to(driver, s0.key, Freeze)
    driver.send(s0.key, ServerLeaving())
    assert to(driver, s0.key, Freeze)


def cut_without_the_file_of(driver, servers, slow):
    """A cut is open, the leaver has no bucket any more, and its file is still being written."""
    train(driver, servers, 1)
    answer = slow.answer
    slow.answer = lambda said: None if isinstance(said, Cut) else answer(said)
    driver.fire(CommitDue)
    run_servers(driver, servers)
    driver.send(slow.key, ServerLeaving())
    carry(driver, servers)
    assert (driver.state.commit.phase, owners(driver)) == (CommitPhase.WRITING, ["s1"] * 4)


def test_a_leaving_server_is_not_released_while_its_file_is_owed(job):
    """Rule 59: the file is written whatever becomes of the bucket; the process that writes it has to live so long."""
    driver, servers = job
    cut_without_the_file_of(driver, servers, servers[0])
    assert not to(driver, servers[0].key, Released)
    said = to(driver, servers[0].key, Cut)[-1]
    listed = driver.state.commit.held[0]
    marks = tuple(replace(group, applied=said.data) for group in listed)
    file = FileRecord(name="late", size_bytes=1, digest="d", lineage=1, marks=marks)
    driver.send(servers[0].key, Written(cut=said.cut, file=file))
    assert driver.head is not None
    assert to(driver, servers[0].key, Released)


def test_a_lost_server_whose_file_is_owed_gives_the_cut_up(job):
    """It owned nothing any more, so nobody goes back; but its file will not come."""
    driver, servers = job
    cut_without_the_file_of(driver, servers, servers[0])
    driver.feed(StreamBroken(member=servers[0].key))
    driver.fire(ReconnectWindowEnded)
    assert (driver.state.stage, driver.state.number) == (RecoveryStage.SERVING, 1)
    assert driver.state.commit.phase is CommitPhase.IDLE
    driver.fire(CommitDue)
    run_servers(driver, servers[1:])
    assert driver.head is not None


def test_a_skip_is_asked_of_the_owner_that_has_not_answered_it(job):
    """Rule 60: what a source could not say any more, the target is asked."""
    driver, (s0, s1) = serving(JobConfig(servers=2, bucket_count=4, quarantine_after=1))
    driver.feed(TO_S1)
    train(driver, [s0, s1], 1)  # what a trainer that has worked fails at may be to blame
    (lease,) = driver.leases(T0, 2)
    driver.send(T0, Failed(positions=lease.positions, message="boom"))
    driver.send(T0, Leave())
    assert driver.state.skip is not None
    skip = to(driver, s0.key, Skip)[-1]
    (frozen, others) = PositionSet.of(0), PositionSet.span(1, 4)
    said = {"lineage": 1, "positions": skip.positions, "applied": EMPTY}
    driver.send(s0.key, SkipAnswer(skipped=others & s0.buckets, **said))
    driver.send(s1.key, SkipAnswer(skipped=others & s1.buckets, **said))
    installed(driver, s1, 0)
    asked = len(to(driver, s1.key, Skip))
    driver.send(s1.key, Activated(lineage=1, buckets=frozen, version=Version(1)))
    assert len(to(driver, s1.key, Skip)) == asked + 1
    driver.send(s1.key, SkipAnswer(skipped=frozen, **said))
    assert driver.durable.lineage.quarantine == skip.positions
