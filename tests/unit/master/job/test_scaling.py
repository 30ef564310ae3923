"""How many servers are wanted: bounds, what is durable before the answer, and what follows for buckets (ADR 0315)."""

from __future__ import annotations

import pytest

from master.api.messages.from_members import ServerLeaving
from master.api.messages.to_members import Released, Restore
from master.job.domain.durable_records import RecordServers
from master.job.domain.effects import AnswerServers, Persist
from master.job.domain.job_config import JobConfig
from master.job.moves.server_scaling import MAX_WAITING_REQUESTS
from tests.unit.master.job.driver import Driver, Marks, run_servers, serving
from tests.unit.master.job.moving import ELASTIC as CONFIG
from tests.unit.master.job.moving import carry, grown, owners, to


@pytest.fixture
def job():
    return serving(CONFIG)


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
    assert driver.state.scale.target == 2, "nothing follows from what is not durable"
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
    assert (driver.durable.servers, driver.state.scale.target) == (2, 2)


def test_those_who_ask_while_the_store_is_away_are_bounded(job):
    driver, _ = job
    driver.writes_go_through = False
    for request in range(MAX_WAITING_REQUESTS):
        assert driver.want(3 + request % 2, request) == []
    (refused,) = driver.want(3, MAX_WAITING_REQUESTS)
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
    (replaced,) = driver.want(2)
    assert replaced.answer.replaces.startswith("1 server: ")
    driver.want(1)
    carry(driver, [*servers, third])
    assert set(owners(driver)) == {"s0"}
    assert to(driver, third.key, Released)


def test_one_shrink_replaces_nothing_though_its_server_has_said_that_it_leaves(job):
    """A pod hears that it is to go before the master hears of the number: what moves since is of this very shrink."""
    driver, servers = grown(job, 3)
    driver.send(servers[2].key, ServerLeaving())
    assert driver.state.moves.intents or driver.state.moves.waiting
    (answered,) = driver.want(2)
    assert answered.answer.replaces == ""
    (replaced,) = driver.want(1)
    assert replaced.answer.replaces.startswith("2 servers: ")


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
    assert driver.state.scale.target == 2
    for server in servers:
        server.register()
    carry(driver, servers)
    assert set(owners(driver)) == {"s0", "s1"}
    assert driver.state.number == 1, "no roll-back"
    assert to(driver, servers[2].key, Released)
