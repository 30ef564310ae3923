"""A backup that stands still, its stream open: who says so, who is asked, when it is given up (rule 62; ADR 0318)."""

from __future__ import annotations

from master.api.messages.from_members import BackupSilent
from master.api.messages.to_members import Activate, Fenced
from master.job import deadlines
from master.job.domain.durable_records import SECOND
from master.job.domain.job_events import ReconnectWindowEnded, StreamBroken
from master.job.state.protocol_state import RecoveryStage
from tests.unit.master.job.driver import run_servers
from tests.unit.master.job.moving import carry, owners, to
from tests.unit.master.job.pairs import THREE, backups, lose, paired, single_copies


def silent(driver, owner, backup, for_s=2.0):
    """What this owner says of its backup."""
    said = BackupSilent(lineage=driver.state.number, backup=backup.key.incarnation, silent_s=for_s)
    return driver.send(owner.key, said)


def windows_s(driver):
    return [(at - driver.now) / SECOND for at, one in deadlines(driver.state) if isinstance(one, ReconnectWindowEnded)]


def test_a_backup_that_answers_nobody_is_lost_within_seconds():
    """It is asked, has two seconds to say a word, and is lost like one whose stream broke."""
    driver, servers = paired()
    asked = len(to(driver, servers[1].key, Activate))
    silent(driver, servers[0], servers[1])
    assert len(to(driver, servers[1].key, Activate)) == asked + 1
    assert windows_s(driver) == [2.0]
    driver.fire(ReconnectWindowEnded)
    assert (owners(driver), single_copies(driver), driver.state.number) == (["s0"] * 4, 4, 1)
    assert isinstance(
        driver.send(servers[1].key, servers[1].answer(to(driver, servers[1].key, Activate)[-1]))[0], Fenced
    )


def test_when_it_wakes_it_comes_again_and_gets_its_share():
    """The same process; what it held counts no more."""
    driver, servers = paired()
    silent(driver, servers[0], servers[1])
    driver.fire(ReconnectWindowEnded)
    servers[1].register()
    carry(driver, servers)
    assert (sorted(owners(driver)), single_copies(driver), driver.state.number) == (["s0", "s0", "s1", "s1"], 0, 1)


def test_one_that_says_a_word_stays():
    """Whatever it is: nobody that stands still says anything."""
    driver, servers = paired()
    silent(driver, servers[0], servers[1])
    run_servers(driver, servers)
    assert windows_s(driver) == []
    assert (single_copies(driver), driver.state.members.servers[1].is_connected) == (0, True)


def test_one_that_answers_the_master_but_not_its_owner_is_given_up_by_that_owner_alone():
    """After ten seconds, by a change of the table; the same two have the bucket again once a copy gets through."""
    driver, servers = paired(THREE)
    pair = servers[0], next(one for one in servers if one.key.name == backups(driver)[0])
    for for_s in (2.0, 3.0, 9.9):
        silent(driver, *pair, for_s)
        run_servers(driver, servers)
        assert single_copies(driver) == 0
    silent(driver, *pair, 10.0)
    assert (single_copies(driver), driver.state.number) == (2, 1)
    assert driver.durable.route.version == (1, 1, 0, 0, 0, 0)
    carry(driver, servers)
    assert single_copies(driver) == 0


def test_one_that_has_the_only_copy_of_something_is_not_suspected():
    """Its loss would be a roll-back: only its stream says that it is gone."""
    driver, servers = paired(THREE)
    left = lose(driver, servers, 0)
    owner, backup = sorted(left, key=lambda one: one.key.name == backups(driver)[-1])
    silent(driver, owner, backup)
    assert windows_s(driver) == []


def test_one_that_others_come_to_need_while_it_is_silent_is_waited_for():
    """The one that had its second copies is lost meanwhile."""
    driver, servers = paired(THREE)
    silent(driver, servers[0], next(one for one in servers if one.key.name == backups(driver)[0]))
    assert windows_s(driver) == [2.0]
    suspected = next(one for one in driver.state.members.servers.values() if one.is_suspected)
    for other in servers:
        if other.key != suspected.key:
            driver.feed(StreamBroken(member=other.key))
    assert sorted(windows_s(driver)) == [2.0, 10.0, 10.0], "nobody is heard who has what it has"
    for _ in range(3):
        windows = [due for due in deadlines(driver.state) if isinstance(due[1], ReconnectWindowEnded)]
        driver.feed(min(windows, key=lambda due: due[0])[1])
    assert driver.state.stage is RecoveryStage.GATHERING, "both copies of something are gone with the other two"
    assert driver.state.members.servers[suspected.ordinal].is_connected


def test_a_report_of_an_older_lineage_or_of_a_stranger_is_nothing():
    """It may come late."""
    driver, servers = paired()
    before = driver.state
    driver.send(servers[0].key, BackupSilent(lineage=0, backup=servers[1].key.incarnation, silent_s=60.0))
    driver.send(servers[0].key, BackupSilent(lineage=1, backup="somebody", silent_s=60.0))
    assert driver.state == before


def test_a_stream_that_breaks_of_one_that_was_suspected_has_its_own_window():
    """Half a second for one without which nothing is lost."""
    driver, servers = paired()
    silent(driver, servers[0], servers[1])
    driver.feed(StreamBroken(member=servers[1].key))
    assert windows_s(driver) == [0.5]
