"""A master whose store has lost the records of a group that trains (rules 29, 64, 74; M8)."""

from __future__ import annotations

import pytest

from master.api.identities import Lineage
from master.api.messages.from_members import Declare
from master.api.messages.generations import NewGeneration, StateId
from master.api.messages.to_members import Refused
from master.job.domain.durable_records import MemberKey
from tests.unit.master.group.group_driver import (
    SPEC,
    GroupDriver,
    broken_number,
    key,
    lose_records,
    registration,
    training,
)


def come_back(driver: GroupDriver, member: MemberKey, generation: int, state: StateId | None, **said) -> None:
    driver.say(member, registration(member, generation=generation, state=state, **said))
    driver.say(member, Declare(dataset=SPEC, layout="l"))


def committed(*names: str, step: int = 2) -> tuple[GroupDriver, list[MemberKey]]:
    """A group that has committed this step, and has done two more."""
    driver, members = training(*names, step=step)
    driver.offer(members[0], step, 1)
    assert driver.durable.head.step == step
    for member in members:
        driver.progress(member, 1, step + 2)
    return driver, members


def test_members_of_a_lost_record_leave_it_and_go_on_from_their_replicas():
    """Without a checkpoint they hold all that was trained, in the lineage that the job begins with again."""
    driver, members = training("t0", "t1", step=3)
    own = StateId(lineage=Lineage(1), generation=1, step=3)
    lose_records(driver)
    for member in members:
        come_back(driver, member, 1, own)
        assert broken_number(driver, member) == 1
        driver.report(member, 1, own)
    driver.pass_time(1.5)
    record = driver.record
    assert (driver.names(), record.lineage, record.planned_from) == (["t0", "t1"], 1, 0)
    assert record.number > 2, "rule 64: a record that nobody here has heard of may have had the next numbers"
    assert not any(one.takes_state for one in record.members)
    assert all(driver.told(NewGeneration, member) for member in members)


def test_members_of_a_lost_record_go_back_to_the_head():
    """M8: with a checkpoint the lineage is raised, so what was trained since counts as nothing (rules 29, 93)."""
    driver, members = committed("t0", "t1")
    head, own = driver.durable.head, StateId(lineage=Lineage(1), generation=1, step=4)
    lose_records(driver, head)
    for member in members:
        come_back(driver, member, 1, own)
        assert broken_number(driver, member) == 1
        driver.report(member, 1, own)
    driver.pass_time(1.5)
    assert (driver.record.lineage, driver.record.head.manifest, driver.record.head.state.step) == (2, head.id, 2)
    assert driver.state.newest == 2
    for member in members:
        driver.progress(member, driver.record.number, 3)
    driver.offer(members[0], 3, driver.record.number)
    assert driver.durable.head.step == 3


def test_records_that_are_lost_again_before_a_commit_give_up_that_lineage_too():
    """Nothing in the folder tells of it, so its number comes again; the group goes back to the same head (M8, 93)."""
    driver, members = committed("t0", "t1")
    head, own = driver.durable.head, StateId(lineage=Lineage(1), generation=1, step=4)
    for lineage in (2, 3):
        lose_records(driver, head)
        for member in members:
            come_back(driver, member, own.generation, own)
            driver.report(member, own.generation, own)
        driver.pass_time(1.5)
        assert (driver.record.lineage, driver.record.head.manifest) == (lineage, head.id)
        assert driver.state.newest == head.step
        own = StateId(lineage=Lineage(lineage), generation=driver.record.number, step=4)
        for member in members:
            driver.progress(member, own.generation, 4)
    driver.offer(members[0], 4, own.generation)
    assert (driver.durable.head.lineage, driver.durable.head.step) == (3, 4)


def test_a_member_that_reports_is_told_again_until_it_has_left():
    """BROKEN may be lost with a stream (rule 74)."""
    driver, (member,) = training("t0", step=3)
    lose_records(driver)
    come_back(driver, member, 1, StateId(lineage=Lineage(1), generation=1, step=3))
    driver.sent.clear()
    driver.progress(member, 1, 4)
    assert broken_number(driver, member) == 1


def test_the_first_record_waits_for_a_member_that_is_still_in_the_lost_one():
    """A new process would begin from nothing, and the work of the one that applies its step would be lost (I4)."""
    driver, (member,) = training("t0", step=3)
    own = StateId(lineage=Lineage(1), generation=1, step=3)
    lose_records(driver)
    come_back(driver, member, 1, own)
    driver.join("t1")
    driver.pass_time(2)
    assert driver.durable.generation is None
    driver.report(member, 1, own)
    driver.pass_time(1.5)
    assert driver.names() == ["t0", "t1"]
    assert [one.takes_state for one in driver.record.members] == [False, True]


def test_a_member_that_never_leaves_the_lost_record_is_not_waited_for_without_end():
    driver, (first, second) = training("t0", "t1", step=3)
    own = StateId(lineage=Lineage(1), generation=1, step=3)
    lose_records(driver)
    for member in (first, second):
        come_back(driver, member, 1, own)
    driver.report(first, 1, own)
    driver.pass_time(driver.config.reconnect_window_ns / 1e9 + 2)
    assert driver.names() == ["t0"]


@pytest.mark.parametrize("generation", [1, 5])
def test_a_member_that_comes_after_the_first_new_record_leaves_the_lost_one(generation):
    """Also where the new record has its generation's number, or a smaller one; the head is what both begin from."""
    driver, members = committed("t0")
    own = StateId(lineage=Lineage(1), generation=generation, step=4)
    lose_records(driver, driver.durable.head)
    driver.join("t1")
    driver.pass_time(1.5)
    number = driver.record.number
    driver.progress(key("t1"), number, 3)
    come_back(driver, members[0], generation, own)
    assert broken_number(driver, members[0]) >= generation
    driver.report(members[0], max(number, generation), own)
    driver.pass_time(1.5)
    assert driver.names() == ["t0", "t1"]
    assert driver.record.number > generation


@pytest.mark.parametrize("is_first_record_durable", [True, False])
def test_a_member_that_comes_after_the_job_has_begun_again_without_it_is_refused(is_first_record_durable):
    """Its replica's id may by now be that of other bits (rule 65): a new process has nothing, and takes the state."""
    driver, (member,) = training("t0", step=3)
    lose_records(driver)
    driver.join("t1")
    driver.writes_go_through = is_first_record_durable
    driver.pass_time(1.5)
    come_back(driver, member, 1, StateId(lineage=Lineage(1), generation=1, step=3))
    driver.let_go()
    assert [said.field for said in driver.told(Refused, member)] == ["incarnation"]
    assert driver.state.try_replica(member) is None
    driver.join("t0", process=2)
    driver.progress(key("t1"), 1, 1)
    driver.pass_time(1.5)
    assert driver.names() == ["t0", "t1"]


def test_a_member_that_lost_its_stream_comes_back_to_the_job_that_has_begun_again():
    """It trained by the new records, whoever was listed since: it is none of those of the lost ones."""
    driver, (first, second) = training("t0", "t1", step=3)
    driver.break_stream(first)
    driver.pass_time(3)
    number = driver.record.number
    driver.report(second, number, StateId(lineage=Lineage(1), generation=1, step=3))
    driver.pass_time(1.5)
    assert driver.names() == ["t1"]
    come_back(driver, first, 1, StateId(lineage=Lineage(1), generation=1, step=3))
    assert not driver.told(Refused, first)
    assert driver.state.try_replica(first) is not None


def test_what_is_remembered_of_processes_does_not_grow_with_their_number():
    """One of each name: who was replaced is refused, and would else displace its successor."""
    driver, members = training("t0", "t1")
    for process in range(2, 40):
        driver.break_stream(members[0])
        driver.pass_time(3)
        driver.report(members[1], driver.record.number, StateId(lineage=Lineage(1), generation=1, step=2))
        driver.progress(members[1], driver.record.number, 2)
        members[0] = driver.join("t0", process=process)
        driver.pass_time(1.5)
        for member in members:
            driver.progress(member, driver.record.number, 2)
        assert driver.names() == ["t0", "t1"]
    assert dict(driver.state.last_listed) == {one.name: one.incarnation for one in members}
    come_back(driver, key("t0", 3), 1, StateId(lineage=Lineage(1), generation=2, step=2))
    assert driver.told(Refused, key("t0", 3))
    assert driver.state.try_replica(members[0]) is not None


def test_a_late_survivor_takes_part_beside_one_that_was_heard():
    """The numbers of the new line are above all of the lost ones, so it is behind by its generation (rule 78)."""
    driver, (first, second) = training("t0", "t1", step=3)
    lose_records(driver)
    own = StateId(lineage=Lineage(1), generation=1, step=3)
    come_back(driver, first, 1, own)
    driver.report(first, 1, own)
    driver.pass_time(1.5)
    number = driver.record.number
    driver.progress(first, number, 4)
    come_back(driver, second, 1, own)
    driver.report(second, number, own)
    driver.pass_time(1.5)
    assert [(one.name, one.takes_state) for one in driver.record.members] == [("t0", False), ("t1", True)]


def test_the_lineage_of_survivors_is_that_of_the_job():
    """A job that began anew in its folder was in a later lineage; survivors' replicas count in theirs alone."""
    driver, (member,) = training("t0", step=3)
    own = StateId(lineage=Lineage(4), generation=1, step=3)
    lose_records(driver)
    come_back(driver, member, 1, own)
    driver.report(member, 1, own)
    driver.pass_time(1.5)
    assert driver.record.lineage == 4
