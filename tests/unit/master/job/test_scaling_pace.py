"""How many buckets move at once, which ones, and what comes of those that do not arrive (rules 40, 59; ADR 0315)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from master.api.messages.from_members import Installed, ServerLeaving, ServerReport
from master.api.messages.to_members import Freeze
from master.api.positions import PositionSet
from master.job import deadlines, status
from master.job.domain.job_events import CommitDue, MovesExpired, MovesRetryDue
from master.job.placement.owner_placement import Weight
from tests.unit.master.job.driver import Marks, run_servers, serving
from tests.unit.master.job.moving import ELASTIC as CONFIG
from tests.unit.master.job.moving import carry, grow, grown, owners, to, train


@pytest.fixture
def job():
    return serving(CONFIG)


def weigh(driver, server, *, size_bytes, loads=None):
    buckets = server.buckets
    report = ServerReport(
        lineage=driver.state.number,
        buckets=buckets,
        sizes_bytes=(size_bytes,) * len(buckets),
        loads=tuple((loads or {}).get(bucket, 1.0) for bucket in buckets),
    )
    driver.send(server.key, report)


def test_as_many_buckets_are_on_their_way_as_weigh_what_may_be(job):
    """A batch waits for all of them: a large model's buckets go few by few, a small one's many at once."""
    driver, servers = job
    for server in servers:
        weigh(driver, server, size_bytes=driver.config.moving_bytes // 2 - 1)
    driver.want(1)
    assert len(driver.state.moves.intents) == 2
    for _ in range(10):
        if not driver.state.moves.intents:
            break
        assert len(driver.state.moves.intents) <= 2
        intent = driver.state.moves.intents[0]
        target = next(server for server in servers if server.key == intent.target)
        said = Installed(lineage=intent.lineage, bucket=intent.bucket, version=intent.version + 1, digest="d")
        driver.send(target.key, said)
        run_servers(driver, servers)
    assert set(owners(driver)) == {"s0"}


def test_a_bucket_heavier_than_that_goes_alone(job):
    driver, servers = job
    for server in servers:
        weigh(driver, server, size_bytes=3 * driver.config.moving_bytes)
    driver.want(1)
    assert len(driver.state.moves.intents) == 1
    assert len(to(driver, servers[1].key, Freeze)) == 1


def test_hot_buckets_are_shared_out():
    """Six have ten times the load of the others; all are at one server, and a third server comes."""
    driver, servers = serving(replace(CONFIG, bucket_count=24))
    hot = dict.fromkeys(list(servers[0].buckets)[:6], 10.0)
    for server in servers:
        weigh(driver, server, size_bytes=1, loads=hot)
    driver, servers = grown((driver, servers), 3)
    hosts = [owners(driver)[bucket] for bucket in hot]
    assert [hosts.count(name) for name in ("s0", "s1", "s2")] == [2, 2, 2]


@pytest.mark.parametrize("loads", [(1.0, 1.6), (0.0, 5.0), (5.0, 0.0)])
def test_loads_that_differ_by_chance_move_nothing_more(job, loads):
    """Measured at two times, or not at all yet, one server's buckets seem busier: still only a third moves."""
    driver, servers = job
    for server, load in zip(servers, loads, strict=True):
        weigh(driver, server, size_bytes=1, loads=dict.fromkeys(server.buckets, load))
    before = owners(driver)
    driver, servers = grown(job, 3)
    assert sum(a != b for a, b in zip(before, owners(driver), strict=True)) == 2


@pytest.mark.parametrize("fault", [{"lineage": 9}, {"sizes_bytes": (1,)}, {"loads": ()}])
def test_a_report_that_does_not_fit_is_no_report(job, fault):
    driver, servers = job
    said = ServerReport(lineage=driver.state.number, buckets=PositionSet.of(0, 1), sizes_bytes=(1, 1), loads=(1.0, 1.0))
    driver.send(servers[0].key, replace(said, **fault))
    assert not driver.state.weights


@pytest.mark.parametrize(("said", "heeded"), [(0.5, 0.5), (-1.0, 0.0), (float("nan"), 0.0), (float("inf"), 0.0)])
def test_a_load_that_is_no_measure_counts_for_nothing(job, said, heeded):
    """What a server says is not trusted to be a number that a plan can be made of."""
    driver, servers = job
    weigh(driver, servers[0], size_bytes=-5, loads=dict.fromkeys(servers[0].buckets, said))
    assert {driver.state.weights[bucket] for bucket in servers[0].buckets} == {Weight(size_bytes=0, load=heeded)}


def test_what_did_not_arrive_is_tried_again_later_and_later(job):
    """A newcomer that stands still costs the pushes a wait now and then, not one after another."""
    driver, servers = job
    driver.want(3)
    third = Marks(driver, 2)
    third.register()
    for doublings in range(3):
        run_servers(driver, [*servers, third])
        driver.fire(MovesExpired)
        run_servers(driver, [*servers, third])
        assert not driver.state.moves.intents
        (again,) = (at for at, event in deadlines(driver.state) if isinstance(event, MovesRetryDue))
        assert again - driver.now == driver.config.move_again_ns << doublings
        driver.fire(MovesRetryDue)
        assert driver.state.moves.intents
    carry(driver, [*servers, third])
    assert owners(driver).count("s2") == 2


def test_what_does_not_arrive_is_told(job):
    """Traffic between two servers is blocked: nobody else would say why batches wait."""
    driver, servers = job
    grow(driver, servers)
    assert status(driver.state, driver.now).moves_problem == ""
    driver.fire(MovesExpired)
    run_servers(driver, servers)
    assert "2 to s2, within 10 s" in status(driver.state, driver.now).moves_problem
    driver.fire(MovesRetryDue)
    assert "2 to s2" in status(driver.state, driver.now).moves_problem, "until they have arrived"
    intent = driver.state.moves.intents[0]
    driver.send(servers[2].key, Installed(lineage=1, bucket=intent.bucket, version=intent.version + 1, digest="d"))
    assert "1 to s2" in status(driver.state, driver.now).moves_problem
    carry(driver, servers)
    assert status(driver.state, driver.now).moves_problem == ""


def test_what_is_wanted_there_no_longer_is_no_problem(job):
    driver, servers = job
    grow(driver, servers)
    driver.fire(MovesExpired)
    driver.want(2)
    assert status(driver.state, driver.now).moves_problem == ""


def test_a_new_master_ends_a_resize_that_was_half_done(job):
    """The newcomer owned something already: nobody would be missing it."""
    driver, servers = job
    grow(driver, servers)
    intent = driver.state.moves.intents[0]
    driver.send(servers[2].key, Installed(lineage=1, bucket=intent.bucket, version=intent.version + 1, digest="d"))
    run_servers(driver, servers)
    assert owners(driver).count("s2") == 1
    driver.start()
    for server in servers:
        server.register()
    carry(driver, servers)
    assert owners(driver).count("s2") == 2


def test_a_shrink_that_nobody_hurries_waits_for_commits(job):
    """Rule 59: fewer servers are wanted, no grace runs out; one that says that it must leave does not wait."""
    driver, servers = job
    train(driver, servers)
    driver.fire(CommitDue)
    driver.want(1)
    assert driver.state.moves.waiting
    assert not driver.state.moves.intents
    driver.send(servers[1].key, ServerLeaving())
    assert driver.state.moves.intents


def test_a_shrink_whose_target_stands_still_is_tried_again_later(job):
    driver, servers = job
    driver.want(1)
    driver.fire(MovesExpired)
    run_servers(driver, servers)
    assert not driver.state.moves.intents
    driver.fire(MovesRetryDue)
    carry(driver, servers)
    assert set(owners(driver)) == {"s0"}
