"""A server that has to go right after another one was lost: who takes what both had (rules 49, 62; ADR 0315)."""

from __future__ import annotations

from dataclasses import replace

from master.api.messages.from_members import ServerLeaving
from master.api.messages.to_members import Released
from master.job.domain.job_events import OwnersWaitEnded, ReconnectWindowEnded, StreamBroken
from master.job.state.protocol_state import RecoveryStage
from tests.unit.master.job.driver import run_servers
from tests.unit.master.job.moving import carry, owners, to, train
from tests.unit.master.job.pairs import PAIRED, lose, paired

CONFIG = replace(PAIRED, max_servers=2)


def leave(driver, server):
    server.is_leaving = True
    driver.send(server.key, ServerLeaving(reason="scaled down"))


def last_one_goes():
    """Server 0, the only one that is wanted, is killed, and server 1 has everything and has to go."""
    driver, servers = paired(CONFIG)
    done = train(driver, servers)
    lose(driver, servers, 0)
    driver.want(1)
    leave(driver, servers[1])
    run_servers(driver, servers[1:])
    return driver, servers, done


def test_it_stays_for_the_next_process_of_the_one_that_was_lost():
    """Seen: it was released as soon as its commit had ended, two seconds before somebody could take its buckets."""
    driver, servers, done = last_one_goes()
    assert set(owners(driver)) == {"s1"}
    assert driver.head.data == done, "at once: its grace may be short"
    assert not to(driver, servers[1].key, Released)
    servers[0].restart()
    carry(driver, servers)
    assert (driver.state.number, driver.state.stage, set(owners(driver))) == (1, RecoveryStage.SERVING, {"s0"})
    assert to(driver, servers[1].key, Released)


def test_it_goes_after_another_commit_when_nobody_has_come():
    """What was trained while it waited is in that one."""
    driver, servers, done = last_one_goes()
    done |= train(driver, servers[1:], request=2)
    driver.fire(OwnersWaitEnded)
    assert not to(driver, servers[1].key, Released)
    run_servers(driver, servers[1:])
    assert driver.head.data == done
    assert to(driver, servers[1].key, Released)


def test_it_does_not_wait_for_a_server_that_is_not_wanted():
    driver, servers = paired(CONFIG)
    driver.want(1)
    lose(driver, servers, 1)
    leave(driver, servers[0])
    run_servers(driver, servers[:1])
    assert to(driver, servers[0].key, Released)


def test_it_does_not_wait_for_one_that_had_to_go_itself():
    """All servers of a job that is suspended leave, the first of them a little earlier: nobody comes in its place."""
    driver, servers = paired(CONFIG)
    leave(driver, servers[0])
    carry(driver, servers)
    assert to(driver, servers[0].key, Released)
    driver.feed(StreamBroken(member=servers[0].key))
    driver.fire(ReconnectWindowEnded)
    leave(driver, servers[1])
    run_servers(driver, servers[1:])
    assert to(driver, servers[1].key, Released)


def test_it_waits_for_nobody_once_the_job_is_complete():
    """Its servers are told to go, and the lost one is not started again."""
    driver, servers = paired(CONFIG)
    for request in range(1, 1000):
        if not driver.state.dispatch.todo:
            break
        train(driver, servers, request)
    run_servers(driver, servers)
    lose(driver, servers, 0)
    assert driver.state.is_complete
    leave(driver, servers[1])
    assert to(driver, servers[1].key, Released)


def test_nobody_is_expected_once_all_are_here_again():
    """A loss is over then: it delays no later leave."""
    driver, servers = paired(CONFIG)
    lose(driver, servers, 0)
    assert OwnersWaitEnded in driver.pending()
    servers[0].restart()
    carry(driver, servers)
    assert OwnersWaitEnded not in driver.pending()
