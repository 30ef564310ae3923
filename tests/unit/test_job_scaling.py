"""How many servers are wanted: bounds, what is durable before the answer, and what follows for buckets (ADR 0315)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from master.api.messages import Ack, Freeze, Installed, Released, Restore, ServerLeaving, ServerReport
from master.api.positions import PositionSet
from master.job import deadlines, status
from master.job.domain import (
    AnswerServers,
    CommitDue,
    HoldExpired,
    JobConfig,
    MovesAgain,
    MovesExpired,
    OwnersAwaited,
    Persist,
    ReclaimWindowEnded,
    ReconnectWindowEnded,
    RecordServers,
    StreamBroken,
)
from master.job.scaling import MAX_ASKING
from master.job.state import Stage
from tests.unit.job_driver import Driver, Marks, key, run_servers, serving
from tests.unit.test_job_moves import carry, owners, to

CONFIG = JobConfig(servers=2, max_servers=4, bucket_count=8)


@pytest.fixture
def job():
    return serving(CONFIG)


def grown(job, count=3):
    """So many servers own buckets."""
    driver, servers = job
    driver.want(count)
    for ordinal in range(len(servers), count):
        servers.append(Marks(driver, ordinal))
        servers[-1].register()
    carry(driver, servers)
    return driver, servers


# ---- the answer -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, -1, 5])
def test_a_number_outside_the_bounds_is_refused_and_changes_nothing(job, count):
    driver, _ = job
    (answered,) = driver.want(count)
    assert answered.answer.refused is not None
    assert answered.answer.refused.field == "servers"
    assert (answered.answer.count, answered.answer.least, answered.answer.most) == (2, 1, 4)
    assert driver.durable.servers is None


def test_a_job_without_servers_never_gets_any():
    driver = Driver(JobConfig(servers=0)).start()
    (answered,) = driver.want(1)
    assert answered.answer.refused is not None
    assert (answered.answer.count, answered.answer.most) == (0, 0)


def test_a_number_is_answered_once_it_is_durable(job):
    driver, _ = job
    driver.writes_go_through = False
    assert driver.want(3, request=7) == []
    assert driver.state.scale.wanted == 2, "nothing follows from what is not durable"
    driver.let_go()
    answered = driver.effects[-1]
    assert isinstance(answered, AnswerServers)
    assert (answered.requests, answered.answer.count, answered.answer.replaces) == ((7,), 3, "")


def test_what_holds_already_is_answered_at_once(job):
    driver, _ = job
    driver.writes_go_through = False
    (answered,) = driver.want(2)
    assert answered.answer.count == 2
    assert not driver.held_back


def test_numbers_that_come_while_one_is_written_are_replaced_by_the_newest(job):
    """One write at a time; whoever asked hears the number that holds in the end."""
    driver, _ = job
    driver.writes_go_through = False
    for request, count in enumerate((3, 1, 4)):
        assert driver.want(count, request) == []
    driver.let_go()
    written = [e.write.count for e in driver.effects if isinstance(e, Persist) and isinstance(e.write, RecordServers)]
    assert written == [3, 4]
    (answered,) = (effect for effect in driver.effects if isinstance(effect, AnswerServers))
    assert (answered.requests, answered.answer.count) == ((0, 1, 2), 4)


def test_back_to_what_holds_while_another_number_is_written(job):
    """The one that is being written cannot be taken back: it is written over."""
    driver, _ = job
    driver.writes_go_through = False
    driver.want(3, 0)
    driver.want(2, 1)
    driver.let_go()
    assert (driver.durable.servers, driver.state.scale.wanted) == (2, 2)


def test_those_who_ask_while_the_store_is_away_are_bounded(job):
    driver, _ = job
    driver.writes_go_through = False
    for request in range(MAX_ASKING):
        assert driver.want(3 + request % 2, request) == []
    (refused,) = driver.want(3, MAX_ASKING)
    assert refused.answer.refused is not None


def test_a_second_number_says_what_of_the_first_it_replaces(job):
    """What has begun to move goes on; the rest is planned anew."""
    driver, servers = job
    driver.want(3)
    third = Marks(driver, 2)
    third.register()
    run_servers(driver, [*servers, third])
    begun = driver.state.moves.intents
    assert begun
    (answered,) = driver.want(1)
    assert answered.answer.replaces.startswith("3 servers: ")
    assert set(begun) <= set(driver.state.moves.intents)
    carry(driver, [*servers, third])
    assert set(owners(driver)) == {"s0"}
    assert to(driver, third.key, Released)


# ---- what follows ---------------------------------------------------------------------------------------------------


def test_servers_that_are_not_wanted_are_emptied_and_released_and_nobody_goes_back(job):
    """4 to 1: three at once, no roll-back (M9)."""
    driver, servers = grown(job, 4)
    assert len(set(owners(driver))) == 4
    driver.want(1)
    carry(driver, servers)
    assert set(owners(driver)) == {"s0"}
    assert [len(to(driver, server.key, Released)) for server in servers] == [0, 1, 1, 1]
    assert driver.state.number == 1


def test_a_server_wanted_again_before_it_was_emptied_keeps_its_share(job):
    driver, servers = grown(job, 3)
    before = owners(driver)
    driver.want(2)
    driver.want(3)
    carry(driver, servers)
    assert sorted(owners(driver).count(name) for name in ("s0", "s1", "s2")) == sorted(map(before.count, set(before)))
    assert not to(driver, servers[2].key, Released)


def test_a_released_server_gets_nothing_more_even_if_one_is_wanted_again(job):
    """It may be ending: the process after it gets its share."""
    driver, servers = grown(job, 3)
    driver.want(2)
    carry(driver, servers)
    driver.want(3)
    assert not any(intent.target == servers[2].key for intent in driver.state.moves.intents)
    assert servers[2].register()[-1:] != []
    assert len(to(driver, servers[2].key, Released)) == 2, "it may not have heard it"
    servers[2].restart()
    carry(driver, servers)
    assert "s2" in owners(driver)
    assert driver.state.number == 1


def test_a_process_that_comes_before_the_number_that_wants_it_waits(job):
    driver, servers = job
    third = Marks(driver, 2)
    third.register()
    run_servers(driver, [*servers, third])
    assert not to(driver, third.key, Released)
    assert not to(driver, third.key, Restore)
    driver.want(3)
    carry(driver, [*servers, third])
    assert "s2" in owners(driver)


def test_a_new_master_knows_the_number_and_goes_on_emptying(job):
    driver, servers = grown(job, 3)
    driver.want(2)
    driver.start()
    assert driver.state.scale.wanted == 2
    for server in servers:
        server.register()
    carry(driver, servers)
    assert set(owners(driver)) == {"s0", "s1"}
    assert driver.state.number == 1, "no roll-back"
    assert to(driver, servers[2].key, Released)


# ---- losses ---------------------------------------------------------------------------------------------------------


def lose(driver, server):
    driver.feed(StreamBroken(member=server.key))
    driver.fire(ReconnectWindowEnded)


def test_after_a_loss_nobody_waits_for_a_server_that_is_not_wanted(job):
    """It was still being emptied when it died: the others go on from the checkpoint without it."""
    driver, servers = grown(job, 3)
    driver.want(2)
    lose(driver, servers[2])
    run_servers(driver, servers[:2])
    assert (driver.state.stage, driver.state.number) == (Stage.SERVING, 2)
    assert set(owners(driver)) == {"s0", "s1"}


def test_a_cluster_that_lacks_room_for_a_lost_server_asks_for_fewer(job):
    driver, servers = grown(job, 3)
    lose(driver, servers[2])
    run_servers(driver, servers[:2])
    assert driver.state.stage is Stage.GATHERING, "one below the number is waited for"
    driver.want(2)
    run_servers(driver, servers[:2])
    assert (driver.state.stage, driver.state.number) == (Stage.SERVING, 2)


def elastic(count=3):
    """It began with one server and has three by now."""
    return grown(serving(replace(CONFIG, servers=1)), count)


def test_a_lost_server_that_others_can_do_without_is_waited_for_one_window():
    """In the middle of those that stand, where a smaller number would not leave it out; one that comes gets a share."""
    driver, servers = elastic()
    lose(driver, servers[1])
    rest = [servers[0], servers[2]]
    run_servers(driver, rest)
    assert driver.state.stage is Stage.GATHERING
    driver.fire(OwnersAwaited)
    run_servers(driver, rest)
    assert (driver.state.stage, driver.state.number) == (Stage.SERVING, 2)
    assert set(owners(driver)) == {"s0", "s2"}
    servers[1].restart()
    carry(driver, servers)
    assert set(owners(driver)) == {"s0", "s1", "s2"}
    assert driver.state.number == 2


def test_a_successor_that_comes_in_time_takes_the_place():
    driver, servers = elastic()
    lose(driver, servers[1])
    servers[1].restart()
    run_servers(driver, servers)
    assert set(owners(driver)) == {"s0", "s1", "s2"}
    assert OwnersAwaited not in driver.pending()


def test_fewer_than_the_job_began_with_wait():
    driver, servers = grown(serving(CONFIG), 3)
    for server in servers[:2]:
        lose(driver, server)
    driver.fire(OwnersAwaited)
    assert driver.state.stage is Stage.GATHERING
    servers[0].restart()
    driver.fire(OwnersAwaited)
    run_servers(driver, [servers[0], servers[2]])
    assert set(owners(driver)) == {"s0", "s2"}


def test_a_new_master_waits_longer_for_an_owner_that_others_can_do_without():
    """It may have died with the master, and there is no room for another; or it may still have the model."""
    driver, servers = elastic()
    driver.start()
    (waits_until,) = (at for at, event in deadlines(driver.state) if isinstance(event, OwnersAwaited))
    assert waits_until - driver.now == driver.config.owners_window_ns > driver.config.reconnect_window_ns
    for server in servers[:2]:
        server.register()
    assert driver.state.stage is Stage.GATHERING
    driver.fire(OwnersAwaited)
    run_servers(driver, servers[:2])
    assert (driver.state.stage, driver.state.number) == (Stage.SERVING, 2)


def test_a_new_master_gives_a_server_that_is_not_wanted_time_to_come_back(job):
    """Nobody need roll back because it registers after the others; if it never does, they do without it."""
    driver, servers = grown(job, 3)
    driver.leases(key("t0"), 1)
    driver.want(2)
    driver.start()
    for server in servers[:2]:
        server.register()
    assert driver.state.stage is Stage.GATHERING
    driver.fire(ReclaimWindowEnded)
    run_servers(driver, servers[:2])
    assert (driver.state.stage, driver.state.number) == (Stage.SERVING, 2)


# ---- leaving where nobody takes over --------------------------------------------------------------------------------


def leave(driver, *servers):
    for server in servers:
        server.is_leaving = True
        driver.say(server.key, ServerLeaving())


def train(driver, servers):
    (lease,) = driver.leases(key("t0"), 1)
    for server in servers:
        server.applied |= lease.positions
    driver.say(key("t0"), Ack(token=lease.token, positions=lease.positions))
    return lease.positions


def test_the_last_servers_leave_once_what_they_have_is_committed(job):
    """All pods of a job are told to go: nothing that was trained is lost by that."""
    driver, servers = job
    trained = train(driver, servers)
    leave(driver, *servers)
    assert not any(to(driver, server.key, Released) for server in servers)
    carry(driver, servers)
    assert driver.head.data == trained
    assert all(to(driver, server.key, Released) for server in servers)


def test_with_nothing_to_commit_they_leave_at_once(job):
    driver, servers = job
    leave(driver, *servers)
    carry(driver, servers)
    assert all(to(driver, server.key, Released) for server in servers)


def test_a_commit_that_is_given_up_keeps_nobody():
    driver, servers = serving(replace(CONFIG, servers=1))
    train(driver, servers)
    leave(driver, *servers)
    driver.fire(HoldExpired)
    assert all(to(driver, server.key, Released) for server in servers)


@pytest.mark.parametrize("declared", [True, False])
def test_before_there_is_a_model_a_server_leaves_at_once(declared):
    driver = Driver(CONFIG).start()
    if declared:
        driver.trainer("t0")
    server = Marks(driver, 0)
    server.register()
    leave(driver, server)
    assert to(driver, server.key, Released)


def test_a_newcomer_that_holds_nothing_leaves_at_once(job):
    driver, _ = job
    driver.want(3)
    third = Marks(driver, 2)
    third.register()
    leave(driver, third)
    assert to(driver, third.key, Released)


# ---- weights and pace -----------------------------------------------------------------------------------------------


def weigh(driver, server, *, size_bytes, loads=None):
    buckets = server.buckets
    report = ServerReport(
        lineage=driver.state.number,
        buckets=buckets,
        sizes_bytes=(size_bytes,) * len(buckets),
        loads=tuple((loads or {}).get(bucket, 1.0) for bucket in buckets),
    )
    driver.say(server.key, report)


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
        driver.say(target.key, said)
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
    driver.say(servers[0].key, replace(said, **fault))
    assert not driver.state.weights


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
        (again,) = (at for at, event in deadlines(driver.state) if isinstance(event, MovesAgain))
        assert again - driver.now == driver.config.move_again_ns << doublings
        driver.fire(MovesAgain)
        assert driver.state.moves.intents
    carry(driver, [*servers, third])
    assert owners(driver).count("s2") == 2


def test_what_does_not_arrive_is_told(job):
    """Traffic between two servers is blocked: nobody else would say why batches wait."""
    driver, servers = job
    driver.want(3)
    servers.append(Marks(driver, 2))
    servers[2].register()
    run_servers(driver, servers)
    assert status(driver.state, driver.now).problem == ""
    driver.fire(MovesExpired)
    run_servers(driver, servers)
    assert "2 to s2, within 10 s" in status(driver.state, driver.now).problem
    driver.fire(MovesAgain)
    assert "2 to s2" in status(driver.state, driver.now).problem, "until they have arrived"
    intent = driver.state.moves.intents[0]
    driver.say(servers[2].key, Installed(lineage=1, bucket=intent.bucket, version=intent.version + 1, digest="d"))
    assert "1 to s2" in status(driver.state, driver.now).problem
    carry(driver, servers)
    assert status(driver.state, driver.now).problem == ""


def test_what_is_wanted_there_no_longer_is_no_problem(job):
    driver, servers = job
    driver.want(3)
    servers.append(Marks(driver, 2))
    servers[2].register()
    run_servers(driver, servers)
    driver.fire(MovesExpired)
    driver.want(2)
    assert status(driver.state, driver.now).problem == ""


def test_a_new_master_ends_a_resize_that_was_half_done(job):
    """The newcomer owned something already: nobody would be missing it."""
    driver, servers = job
    driver.want(3)
    servers.append(Marks(driver, 2))
    servers[2].register()
    run_servers(driver, servers)
    intent = driver.state.moves.intents[0]
    driver.say(servers[2].key, Installed(lineage=1, bucket=intent.bucket, version=intent.version + 1, digest="d"))
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
    driver.say(servers[1].key, ServerLeaving())
    assert driver.state.moves.intents


def test_a_shrink_whose_target_stands_still_is_tried_again_later(job):
    driver, servers = job
    driver.want(1)
    driver.fire(MovesExpired)
    run_servers(driver, servers)
    assert not driver.state.moves.intents
    driver.fire(MovesAgain)
    carry(driver, servers)
    assert set(owners(driver)) == {"s0"}
