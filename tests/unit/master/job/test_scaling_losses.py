"""Servers that are lost, or leave where nobody takes over, beside the number that is wanted (ADR 0315)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from master.api.messages.checkpoint_files import FileRecord
from master.api.messages.from_members import Held, ServerLeaving, Written
from master.api.messages.to_members import Hold, Released
from master.job import deadlines
from master.job.domain.job_events import (
    CommitDue,
    HoldExpired,
    OwnersWaitEnded,
    ReclaimWindowEnded,
    ReconnectWindowEnded,
    StreamBroken,
)
from master.job.state.protocol_state import RecoveryStage
from tests.unit.master.job.driver import Driver, Marks, key, run_servers, serving
from tests.unit.master.job.moving import ELASTIC as CONFIG
from tests.unit.master.job.moving import carry, grown, owners, to, train


@pytest.fixture
def job():
    return serving(CONFIG)


def lose(driver, server):
    driver.feed(StreamBroken(member=server.key))
    driver.fire(ReconnectWindowEnded)


def test_after_a_loss_nobody_waits_for_a_server_that_is_not_wanted(job):
    """It was still being emptied when it died: the others go on from the checkpoint without it."""
    driver, servers = grown(job, 3)
    driver.want(2)
    lose(driver, servers[2])
    run_servers(driver, servers[:2])
    assert (driver.state.stage, driver.state.number) == (RecoveryStage.SERVING, 2)
    assert set(owners(driver)) == {"s0", "s1"}


def test_a_cluster_that_lacks_room_for_a_lost_server_asks_for_fewer(job):
    driver, servers = grown(job, 3)
    lose(driver, servers[2])
    run_servers(driver, servers[:2])
    assert driver.state.stage is RecoveryStage.GATHERING, "one below the number is waited for"
    driver.want(2)
    run_servers(driver, servers[:2])
    assert (driver.state.stage, driver.state.number) == (RecoveryStage.SERVING, 2)


def elastic(count=3):
    """It began with one server and has three by now."""
    return grown(serving(replace(CONFIG, servers=1)), count)


def test_a_lost_server_that_others_can_do_without_is_waited_for_one_window():
    """In the middle of those that stand, where a smaller number would not leave it out; one that comes gets a share."""
    driver, servers = elastic()
    lose(driver, servers[1])
    rest = [servers[0], servers[2]]
    run_servers(driver, rest)
    assert driver.state.stage is RecoveryStage.GATHERING
    driver.fire(OwnersWaitEnded)
    run_servers(driver, rest)
    assert (driver.state.stage, driver.state.number) == (RecoveryStage.SERVING, 2)
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
    assert OwnersWaitEnded not in driver.pending()


def test_fewer_than_the_job_began_with_wait():
    driver, servers = grown(serving(CONFIG), 3)
    for server in servers[:2]:
        lose(driver, server)
    driver.fire(OwnersWaitEnded)
    assert driver.state.stage is RecoveryStage.GATHERING
    servers[0].restart()
    driver.fire(OwnersWaitEnded)
    run_servers(driver, [servers[0], servers[2]])
    assert set(owners(driver)) == {"s0", "s2"}


def test_a_new_master_waits_longer_for_an_owner_that_others_can_do_without():
    """It may have died with the master, and there is no room for another; or it may still have the model."""
    driver, servers = elastic()
    driver.start()
    (waits_until,) = (at for at, event in deadlines(driver.state) if isinstance(event, OwnersWaitEnded))
    assert waits_until - driver.now == driver.config.owners_window_ns > driver.config.reconnect_window_ns
    for server in servers[:2]:
        server.register()
    assert driver.state.stage is RecoveryStage.GATHERING
    driver.fire(OwnersWaitEnded)
    run_servers(driver, servers[:2])
    assert (driver.state.stage, driver.state.number) == (RecoveryStage.SERVING, 2)


def test_a_new_master_gives_a_server_that_is_not_wanted_time_to_come_back(job):
    """Nobody need roll back because it registers after the others; if it never does, they do without it."""
    driver, servers = grown(job, 3)
    driver.leases(key("t0"), 1)
    driver.want(2)
    driver.start()
    for server in servers[:2]:
        server.register()
    assert driver.state.stage is RecoveryStage.GATHERING
    driver.fire(ReclaimWindowEnded)
    run_servers(driver, servers[:2])
    assert (driver.state.stage, driver.state.number) == (RecoveryStage.SERVING, 2)


def leave(driver, *servers):
    for server in servers:
        server.is_leaving = True
        driver.send(server.key, ServerLeaving())


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


def test_a_commit_that_is_given_up_twice_keeps_nobody():
    driver, servers = serving(replace(CONFIG, servers=1))
    train(driver, servers)
    leave(driver, *servers)
    driver.fire(HoldExpired)
    assert not any(to(driver, server.key, Released) for server in servers)
    driver.fire(HoldExpired)
    assert all(to(driver, server.key, Released) for server in servers)


def test_the_last_server_stays_for_a_second_attempt_when_the_first_is_given_up():
    """Seen where its route had just changed: what it said was of before, and what had been trained was lost with it."""
    driver, servers = serving(replace(CONFIG, servers=1))
    trained = train(driver, servers)
    leave(driver, *servers)
    driver.fire(HoldExpired)
    carry(driver, servers)
    assert driver.head.data == trained
    assert all(to(driver, server.key, Released) for server in servers)


@pytest.mark.parametrize("refused", [1, 2])
def test_what_was_given_up_before_it_had_to_go_takes_no_attempt_from_it(refused):
    driver, servers = serving(replace(CONFIG, servers=1))
    trained = train(driver, servers)
    for _ in range(refused):
        driver.fire(CommitDue)
        driver.fire(HoldExpired)
    leave(driver, *servers)
    driver.fire(HoldExpired)
    carry(driver, servers)
    assert driver.head.data == trained


def test_a_commit_that_was_cut_before_does_not_count_as_the_one_of_a_server_that_leaves():
    """What was trained since its cut is committed too, or suspending a job while a checkpoint is written loses it."""
    driver, (server,) = serving(replace(CONFIG, servers=1))
    before = train(driver, [server])
    driver.fire(CommitDue)
    (hold,) = to(driver, server.key, Hold)
    marks = server.marks()
    driver.send(server.key, Held(cut=hold.cut, marks=marks))
    after = train(driver, [server], request=2)
    leave(driver, server)
    server.inbox[:] = [message for recipient, message in driver.sent if recipient == server.key]
    file = FileRecord(name="old", size_bytes=1, digest="d", lineage=server.lineage, marks=marks)
    driver.send(server.key, Written(cut=hold.cut, file=file))
    assert (driver.head.data, to(driver, server.key, Released)) == (before, [])
    carry(driver, [server])
    assert driver.head.data == before | after
    assert to(driver, server.key, Released)


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
