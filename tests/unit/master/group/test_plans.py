"""Planned changes: joins, drains, a joiner that is lost before the switch (rules 79, 83)."""

from __future__ import annotations

from dataclasses import replace

from master.api.identities import Lineage
from master.api.messages.from_members import Leave
from master.api.messages.generations import (
    BrokenGeneration,
    CopyWanted,
    GroupPhase,
    LeaveRequest,
    NewGeneration,
    StateId,
)
from master.api.messages.to_members import Released
from tests.unit.master.group.group_driver import broken_number, registration, training

AT = StateId(lineage=Lineage(1), generation=1, step=1)


def test_joiners_that_come_together_make_one_plan():
    """Rule 79: the group trains on, and nobody is disturbed."""
    driver, (first,) = training("t0")
    driver.join("t1")
    driver.pass_time(0.2)
    driver.join("t2")
    driver.pass_time(0.1)
    assert (driver.record.number, driver.record.planned_from, driver.names()) == (2, 1, ["t0", "t1", "t2"])
    assert broken_number(driver, first) == 0
    assert driver.told(NewGeneration, first)[-1].record == driver.record


def test_joiner_is_named_as_one_that_takes_the_state():
    """Rule 63: it has no share of the generation's first step; in a job's first generation all have one."""
    driver, (_,) = training("t0")
    assert [one.takes_state for one in driver.record.members] == [False]
    driver.join("t1")
    driver.pass_time(1.5)
    assert [one.takes_state for one in driver.record.members] == [False, True]


def test_survivors_that_hold_the_newest_state_take_none():
    """Rules 63, 78: who is a step behind takes it, as a new process does."""
    driver, (first, second, third, fourth) = training("t0", "t1", "t2", "t3")
    driver.break_stream(fourth)
    driver.join("t3", 2)
    driver.report(first, 1, replace(AT, step=2))
    driver.report(second, 1, replace(AT, step=2))
    driver.report(third, 1, AT)
    taking = {one.name: one.takes_state for one in driver.record.members}
    assert taking == {"t0": False, "t1": False, "t2": True, "t3": True}


def test_one_survivor_that_is_a_step_ahead_does_not_compute_for_all():
    """Its share would not fit into its memory; the others compute theirs once they have the state (ADR 0295)."""
    driver, (first, second, third) = training("t0", "t1", "t2")
    driver.break_stream(third)
    driver.join("t2", 2)
    driver.report(first, 1, replace(AT, step=2))
    driver.report(second, 1, AT)
    assert not any(one.takes_state for one in driver.record.members)


def test_a_group_has_at_most_one_member_for_each_record_of_a_step():
    driver, _ = training("t0")
    for ordinal in range(1, 11):
        driver.join(f"t{ordinal}")
    driver.pass_time(1.5)
    assert len(driver.record.members) == 8


def test_no_plan_before_the_sync_is_over():
    driver, (first, second) = training("t0", "t1", step=0)
    driver.join("t2")
    driver.pass_time(1.5)
    driver.join("t3")
    driver.progress(first, 1, 1)
    driver.progress(second, 1, 1)
    driver.pass_time(1.5)
    assert (driver.record.number, driver.names()) == (2, ["t0", "t1", "t2"])
    driver.progress(first, 2, 2)
    driver.progress(second, 2, 2)
    driver.pass_time(1.5)
    assert (driver.record.number, driver.names()) == (3, ["t0", "t1", "t2", "t3"])


def test_a_joiner_lost_before_the_switch_disturbs_nobody():
    """Rule 83: another record from the same one, and no BROKEN."""
    driver, (first, second) = training("t0", "t1")
    joiner = driver.join("t2")
    driver.pass_time(1.5)
    driver.progress(joiner, 2, 0, GroupPhase.SYNC, is_synced=False, state=None)
    driver.break_stream(joiner)
    for _ in range(4):
        driver.progress(first, 1, 2)
        driver.progress(second, 1, 2)
        driver.pass_time(1)
    assert (driver.record.number, driver.record.planned_from, driver.names()) == (3, 1, ["t0", "t1"])
    assert (broken_number(driver, first), broken_number(driver, second)) == (0, 0)


def test_another_joiner_in_the_replaced_plan_leaves_it_and_enters_the_next():
    driver, (first,) = training("t0")
    joiners = [driver.join("t1"), driver.join("t2")]
    driver.pass_time(1.5)
    for one in joiners:
        driver.progress(one, 2, 0, GroupPhase.SYNC, is_synced=False, state=None)
    driver.break_stream(joiners[1])
    driver.pass_time(2.5)
    assert (driver.record.number, driver.names()) == (3, ["t0", "t1"])
    assert broken_number(driver, joiners[0]) == 2
    (answer,) = driver.report(joiners[0], 2)
    assert answer == NewGeneration(record=driver.record)
    assert driver.told(BrokenGeneration, first) == []


def test_a_plan_that_an_old_member_could_not_connect_is_replaced():
    """Rule 83: its second attempt would meet nobody, so there is another record from the same one, once for each."""
    driver, (first, second, third) = training("t0", "t1", "t2")
    driver.say(third, LeaveRequest(grace_s=30))
    driver.progress(first, 1, 2)
    assert driver.record.number == 2
    driver.progress(first, 1, 3, failed_plan=2)
    assert (driver.record.number, driver.record.planned_from, driver.names()) == (3, 1, ["t0", "t1"])
    assert driver.told(NewGeneration, second)[-1].record == driver.record
    driver.progress(first, 1, 4, failed_plan=2)
    assert driver.record.number == 3
    assert [broken_number(driver, one) for one in (first, second, third)] == [0, 0, 0]


def test_a_joiner_of_a_plan_that_failed_at_an_old_member_enters_the_next():
    """Rule 83: it leaves the plan that is replaced, and stands in the one after it."""
    driver, (first,) = training("t0")
    joiner = driver.join("t1")
    driver.pass_time(1.5)
    driver.progress(joiner, 2, 0, GroupPhase.SYNC, is_synced=False, state=None)
    driver.progress(first, 1, 2, failed_plan=2)
    assert (driver.record.number, driver.record.planned_from, driver.names()) == (3, 1, ["t0", "t1"])
    driver.report(joiner, 2)
    driver.progress(first, 3, 3)
    driver.progress(joiner, 3, 3)
    assert (driver.record.number, driver.state.synced, broken_number(driver, first)) == (3, 3, 0)


def test_an_old_member_lost_before_the_switch_breaks_both():
    """Rule 74: leave everything up to the record, also what it is planned from."""
    driver, (first, second) = training("t0", "t1")
    joiner = driver.join("t2")
    driver.pass_time(1.5)
    driver.break_stream(second)
    driver.pass_time(2.5)
    assert (broken_number(driver, first), broken_number(driver, joiner)) == (2, 2)
    driver.report(first, 2, AT)
    driver.report(joiner, 2)
    assert (driver.record.number, driver.record.planned_from, driver.names()) == (3, 0, ["t0", "t2"])


def test_a_leaver_is_left_out_by_a_plan():
    """Rule 79; its process ends after the switch and is not missed."""
    driver, (first, second, third) = training("t0", "t1", "t2")
    driver.say(third, LeaveRequest(grace_s=30))
    assert (driver.record.planned_from, driver.names()) == (1, ["t0", "t1"])
    assert driver.told(NewGeneration, third)[-1].record.number == 2
    driver.progress(first, 2, 2)
    driver.progress(second, 2, 2)
    driver.break_stream(third)
    driver.pass_time(3)
    assert broken_number(driver, first) == 0


def test_leaver_that_speaks_after_the_switch_of_the_others_ends_its_step():
    """Rule 74: the generation that the record is planned from is none to be left; an earlier one is."""
    driver, (first, second, third) = training("t0", "t1", "t2")
    driver.say(third, LeaveRequest(grace_s=30))
    for one in (first, second):
        driver.progress(one, 2, 2)
    driver.progress(third, 1, 1, GroupPhase.REDUCE)
    assert broken_number(driver, third) == 0
    driver.say(second, LeaveRequest(grace_s=30))
    driver.offer(first, 3, 2)
    driver.offer(second, 4, 2)
    driver.progress(first, 3, 5)
    assert driver.record.number == 3
    driver.progress(third, 1, 1, GroupPhase.REDUCE)
    assert broken_number(driver, third) == 3


def test_before_the_last_but_one_leaves_there_is_a_checkpoint():
    """Rule 83: it is asked for a copy, and the plan follows the commit."""
    driver, (_, second) = training("t0", "t1", step=3)
    driver.say(second, LeaveRequest(grace_s=30))
    assert driver.record.number == 1
    assert len(driver.told(CopyWanted, second)) == 1
    driver.offer(second, 3, 1)
    assert driver.durable.head.step == 3
    assert (driver.record.number, driver.names()) == (2, ["t0"])


def test_without_a_checkpoint_the_leaver_goes_at_the_end_of_its_grace():
    driver, (first, second) = training("t0", "t1", step=3)
    driver.say(second, LeaveRequest(grace_s=10))
    for _ in range(9):
        driver.progress(first, 1, 4)
        driver.progress(second, 1, 4)
        driver.pass_time(1)
    assert (driver.record.number, driver.names()) == (2, ["t0"])


def test_a_leaver_keeps_its_grace_under_another_master():
    """Rule 83: its checkpoint is waited for as long as it is there, and it says again how long that is (rule 91)."""
    driver, (first, second) = training("t0", "t1", step=3)
    driver.say(second, LeaveRequest(grace_s=60))
    driver.start()
    for member, is_leaving in ((first, False), (second, True)):
        driver.say(member, registration(member, generation=1, is_leaving=is_leaving))
    driver.say(second, LeaveRequest(grace_s=50))
    for _ in range(20):
        driver.progress(first, 1, 4)
        driver.progress(second, 1, 4)
        driver.pass_time(1)
    assert driver.record.number == 1
    driver.offer(second, 4, 1)
    assert (driver.record.number, driver.names()) == (2, ["t0"])


def test_the_last_member_is_released_after_its_copy():
    driver, (first,) = training("t0", step=3)
    driver.say(first, LeaveRequest(grace_s=30))
    assert driver.told(Released, first) == []
    driver.offer(first, 3, 1)
    assert len(driver.told(Released, first)) == 1


def test_when_all_leave_a_joiner_joins_first():
    """To replace all: join, then drain (rule 79)."""
    driver, (first,) = training("t0", step=3)
    joiner = driver.join("t1")
    driver.say(first, LeaveRequest(grace_s=30))
    assert (driver.record.planned_from, driver.names()) == (1, ["t0", "t1"])
    driver.progress(first, 2, 4)
    driver.progress(joiner, 2, 4)
    driver.offer(first, 4, 2)
    assert (driver.record.number, driver.names()) == (3, ["t1"])


def test_no_plan_counts_on_a_released_member():
    """Rule 79: a joiner gets its generation once the member that was released has gone."""
    driver, (first,) = training("t0", step=3)
    driver.say(first, LeaveRequest(grace_s=30))
    driver.offer(first, 3, 1)
    joiner = driver.join("t1")
    driver.pass_time(1.5)
    assert driver.record.number == 1
    driver.say(first, Leave())
    assert (driver.record.number, driver.names(), driver.record.planned_from) == (2, ["t1"], 0)
    assert driver.told(BrokenGeneration, joiner) == []


def test_who_is_in_no_generation_is_released_at_once():
    driver, _ = training("t0")
    waiting = driver.join("t1")
    driver.say(waiting, LeaveRequest(grace_s=30))
    driver.pass_time(2)
    assert len(driver.told(Released, waiting)) == 1
    assert driver.names() == ["t0"]
