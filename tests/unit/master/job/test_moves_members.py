"""Servers and masters come, go and are lost while buckets move (rules 46, 49, 53 to 56)."""

from __future__ import annotations

import pytest

from master.api.identities import Incarnation
from master.api.messages.from_members import ServerLeaving
from master.api.messages.to_members import Activate, AskMarks, Refused, Released, Restore
from master.api.positions import EMPTY
from master.job.domain.job_events import ReconnectWindowEnded, StreamBroken
from master.job.state.protocol_state import RecoveryStage
from tests.unit.master.job.driver import Marks, run_servers, serving
from tests.unit.master.job.moving import CONFIG, TO_S1, carry, installed, owners, to


@pytest.fixture
def job():
    return serving(CONFIG)


def test_a_newcomer_enters_with_nothing_and_gets_its_share(job):
    """Rule 49: 2 to 3 servers, everybody else's process goes on (M9)."""
    driver, servers = job
    driver.want(3)
    third = Marks(driver, 2)
    third.register()
    assert to(driver, third.key, Restore)[-1].buckets == EMPTY
    servers.append(third)
    carry(driver, servers)
    assert sorted(owners(driver)) == ["s0", "s1", "s1", "s2"] or sorted(owners(driver)) == ["s0", "s0", "s1", "s2"]
    assert driver.state.number == 1
    assert sum(len(server.buckets) for server in servers) == 4


def test_a_leaving_server_is_emptied_then_released_and_its_end_is_no_loss(job):
    """Rules 49, 54: 3 to 2, and nobody goes back to a checkpoint."""
    driver, (s0, s1) = job
    driver.send(s0.key, ServerLeaving(reason="scaled down"))
    assert not to(driver, s0.key, Released)
    carry(driver, [s0, s1])
    assert owners(driver) == ["s1"] * 4
    assert len(to(driver, s0.key, Released)) == 1
    s0.restart()
    assert (driver.state.number, driver.state.stage) == (1, RecoveryStage.SERVING)


def test_an_ordinal_beyond_the_most_servers_is_refused(job):
    driver, _ = job
    (refused,) = Marks(driver, 3).register()
    assert isinstance(refused, Refused)


def test_a_lost_target_undoes_its_moves_and_costs_nothing(job):
    """Rules 49, 53: a newcomer dies before it owns anything."""
    driver, servers = job
    driver.want(3)
    third = Marks(driver, 2)
    third.register()
    run_servers(driver, [*servers, third])
    assert {intent.target for intent in driver.durable.intents} == {third.key}
    third.restart()
    assert driver.state.number == 1
    assert all(intent.target == third.key for intent in driver.durable.intents), "the process that came instead"


def test_a_target_that_goes_while_the_intent_is_written_is_undone(job):
    """Rule 46; found by the checker."""
    driver, servers = job
    driver.want(3)
    third = Marks(driver, 2)
    third.register()
    driver.writes_go_through = False
    run_servers(driver, [*servers, third])
    third.restart()
    driver.let_go()
    assert not any(intent.target.incarnation == Incarnation("s2/1") for intent in driver.durable.intents)


def test_a_source_lost_with_everything_installed_is_no_loss(job):
    """Rule 53: FLIP saves it."""
    driver, (s0, s1) = job
    driver.send(s0.key, ServerLeaving())
    driver.writes_go_through = False
    for intent in driver.state.moves.intents:
        installed(driver, s1, intent.bucket)
    s0.process += 1
    s0.lineage = 0
    s0.register()
    driver.let_go()
    assert driver.state.number == 1
    assert owners(driver) == ["s1"] * 4


def test_a_source_lost_before_that_rolls_back_and_deletes_the_intents(job):
    """Rules 53, 56."""
    driver, (s0, s1) = job
    driver.feed(TO_S1)
    s0.restart()
    run_servers(driver, [s0, s1])
    assert (driver.state.number, driver.state.stage) == (2, RecoveryStage.SERVING)
    assert driver.durable.intents == ()
    assert set(driver.durable.route.version) == {0}


def test_the_new_owner_lost_before_it_serves_rolls_back(job):
    """Rule 54."""
    driver, (s0, s1) = job
    driver.feed(TO_S1)
    installed(driver, s1, 0)
    s1.restart()
    run_servers(driver, [s0, s1])
    assert driver.state.number == 2


def test_a_new_master_undoes_what_it_finds_begun_and_activates_before_it_asks(job):
    """Rule 55: ACTIVATE and FORGET come before the question for marks."""
    driver, (s0, s1) = job
    driver.feed(TO_S1)
    driver.start()
    for server in (s0, s1):
        server.register()
    assert (driver.durable.route.owner[0], driver.durable.route.version[0]) == (0, 1)
    last = [type(message) for member, message in driver.sent if member == s0.key][-2:]
    assert last == [Activate, AskMarks]
    run_servers(driver, [s0, s1])
    assert (driver.state.number, driver.state.stage) == (1, RecoveryStage.SERVING)


def test_a_new_master_does_not_wait_for_a_server_that_owns_nothing(job):
    """Rule 49."""
    driver, (s0, s1) = job
    driver.send(s0.key, ServerLeaving())
    carry(driver, [s0, s1])
    driver.start()
    s1.register()
    run_servers(driver, [s1])
    assert driver.state.stage is RecoveryStage.SERVING


def test_a_newcomer_does_not_stand_for_an_owner_that_is_still_to_come(job):
    """Rule 55: no roll-back while every owner may still register."""
    driver, (s0, s1) = job
    driver.start()
    driver.want(3)
    third = Marks(driver, 2)
    for server in (third, s0):
        server.register()
    assert driver.state.stage is RecoveryStage.GATHERING
    s1.register()
    run_servers(driver, [s0, s1, third])
    assert (driver.state.number, driver.state.stage) == (1, RecoveryStage.SERVING)


def test_a_leaving_owner_that_is_lost_is_not_waited_for(job):
    """Nobody comes in its place: the others take its buckets from the last checkpoint (rule 56)."""
    driver, (s0, s1) = job
    driver.send(s0.key, ServerLeaving())
    driver.feed(StreamBroken(member=s0.key))
    driver.fire(ReconnectWindowEnded)
    run_servers(driver, [s1])
    assert (driver.state.number, driver.state.stage) == (2, RecoveryStage.SERVING)
    assert owners(driver) == ["s1"] * 4
