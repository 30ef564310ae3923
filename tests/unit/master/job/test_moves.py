"""Buckets move between servers: what is durable before what, and what follows (rules 37, 40, 41, 45 to 48)."""

from __future__ import annotations

import pytest

from master.api.identities import Version
from master.api.messages.from_members import Activated
from master.api.messages.to_members import Activate, Forget, Freeze, RouteChanged
from master.api.positions import PositionSet
from master.job.domain.durable_records import ChangeTable
from master.job.domain.effects import Persist
from master.job.domain.job_config import JobConfig
from master.job.domain.job_events import MovesRequested
from master.job.placement.owner_placement import Move
from tests.unit.master.job.driver import serving
from tests.unit.master.job.moving import CONFIG, T0, TO_S1, carry, installed, to


@pytest.fixture
def job():
    return serving(CONFIG)


def test_freeze_leaves_only_after_the_intent_is_durable(job):
    """Rules 41, 43."""
    driver, (s0, s1) = job
    driver.writes_go_through = False
    driver.feed(TO_S1)
    assert not to(driver, s0.key, Freeze)
    driver.let_go()
    (intent,) = driver.durable.intents
    assert (intent.bucket, intent.version, intent.source, intent.target) == (0, 0, s0.key, s1.key)
    (freeze,) = to(driver, s0.key, Freeze)
    assert (freeze.bucket, freeze.version, freeze.target.incarnation) == (0, 0, s1.key.incarnation)


def test_flip_is_durable_before_anybody_hears_of_it(job):
    """Rules 45, 47, 48: ACTIVATE to the winner, FORGET to the loser, the route to trainers."""
    driver, (s0, s1) = job
    driver.feed(TO_S1)
    driver.writes_go_through = False
    before = len(driver.sent)
    installed(driver, s1, 0)
    assert driver.sent[before:] == []
    driver.let_go()
    bucket, version = PositionSet.of(0), Version(1)
    assert to(driver, s1.key, Activate) == [Activate(lineage=1, buckets=bucket, version=version, since=Version(0))]
    assert to(driver, s0.key, Forget) == [Forget(lineage=1, buckets=bucket, version=version)]
    route = to(driver, T0, RouteChanged)[-1].route
    assert (route.owner, route.version) == ((1, 0, 1, 1), (1, 0, 0, 0))
    assert driver.durable.intents == ()


@pytest.mark.parametrize(("version", "ordinal"), [(0, 1), (2, 1), (1, 0)])
def test_installed_of_another_version_or_server_flips_nothing(job, version, ordinal):
    """Rule 44."""
    driver, servers = job
    driver.feed(TO_S1)
    installed(driver, servers[ordinal], 0, version)
    assert len(driver.durable.intents) == 1


def test_a_bucket_moves_again_only_once_its_owner_has_confirmed_it(job):
    """Rule 41: only when the source has reported itself live at that version."""
    driver, (_, s1) = job
    driver.feed(TO_S1)
    installed(driver, s1, 0)
    driver.feed(MovesRequested(moves=(Move(bucket=0, source=1, target=0),), reason="back"))
    assert driver.durable.intents == ()
    driver.send(s1.key, Activated(lineage=1, buckets=PositionSet.of(0), version=Version(1)))
    assert [intent.version for intent in driver.durable.intents] == [1]


def test_few_buckets_are_on_their_way_together_and_a_newer_wish_replaces_what_waits():
    """Rule 40; the first wish's moves that have begun go on."""
    driver, servers = serving(JobConfig(servers=2, bucket_count=8, moves_at_once=2))
    everything = tuple(Move(bucket=b, source=0, target=1) for b in range(4))
    driver.feed(MovesRequested(moves=everything, reason="first"))
    assert [intent.bucket for intent in driver.durable.intents] == [0, 1]
    driver.feed(MovesRequested(moves=(Move(bucket=7, source=1, target=0),), reason="second"))
    carry(driver, servers)
    assert driver.durable.route.owner == (1, 1, 0, 0, 1, 1, 1, 0)


def test_a_table_change_is_refused_after_any_other(job):
    """Rule 37: the whole table is compared, its revision with it."""
    driver, (_, s1) = job
    driver.feed(TO_S1)
    installed(driver, s1, 0)
    writes = [e.write for e in driver.effects if isinstance(e, Persist) and isinstance(e.write, ChangeTable)]
    assert [write.new.route.revision for write in writes] == [2, 3]
    assert writes[0].new == writes[1].old
