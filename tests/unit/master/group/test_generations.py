"""Records of generations: the first, changes without a plan, take-over (rules 64, 73 to 78, 91, 92)."""

from __future__ import annotations

from dataclasses import replace

from master import group
from master.api.identities import Lineage
from master.api.messages.from_members import Leave
from master.api.messages.generations import BrokenGeneration, GroupPhase, LeftGeneration, NewGeneration, StateId
from master.api.messages.to_members import Refused
from master.group.generations import UNHEARD
from master.job.domain.durable_records import GenerationRecord
from master.job.domain.effects import StepDown
from tests.unit.master.group.group_driver import SPEC, START, GroupDriver, broken_number, key, registration, training


def at(driver, step):
    return StateId(lineage=Lineage(1), generation=driver.record.number, step=step)


def test_trainers_that_come_together_make_one_generation():
    driver, members = training("t1", "t0")
    assert (driver.record.number, driver.names(), driver.record.planned_from) == (1, ["t0", "t1"], 0)
    assert driver.record.head.state == START
    assert all(len(driver.told(NewGeneration, one)) == 1 for one in members)


def test_new_is_sent_only_when_the_record_is_durable():
    """Rule 76."""
    driver = GroupDriver().start()
    member = driver.join("t0")
    driver.writes_go_through = False
    driver.pass_time(1.5)
    assert driver.told(NewGeneration, member) == []
    assert driver.durable.generation is None
    driver.let_go()
    assert len(driver.told(NewGeneration, member)) == 1


def test_a_lost_member_breaks_the_group_and_the_next_waits_for_all_reports():
    """Rules 74, 75: a record before all have reported would drop their work."""
    driver, (first, second, third) = training("t0", "t1", "t2")
    driver.break_stream(third)
    driver.pass_time(2.5)
    assert (broken_number(driver, first), broken_number(driver, second)) == (1, 1)
    driver.report(first, 1, at(driver, 1))
    assert driver.record.number == 1
    driver.report(second, 1, at(driver, 1))
    assert (driver.record.number, driver.names(), driver.record.planned_from) == (2, ["t0", "t1"], 0)


def test_a_killed_member_is_not_waited_for_once_a_survivor_has_reported():
    """Its stream and the group broke at once; a survivor has its work, so that little is risked (rule 69)."""
    driver, (first, second, third) = training("t0", "t1", "t2")
    driver.break_stream(third)
    driver.report(first, 1, at(driver, 1))
    driver.report(second, 1, at(driver, 1))
    driver.pass_time(0.03)
    assert driver.record.number == 1
    driver.pass_time(0.03)
    assert (driver.record.number, driver.names()) == (2, ["t0", "t1"])


def test_members_whose_streams_all_broke_are_waited_for_before_a_joiner_starts_from_the_head():
    """A master that was cut off must not give up what they hold (I4)."""
    driver, members = training("t0", "t1")
    driver.join("t2")
    driver.report(members[0], 1, at(driver, 1))
    for one in members:
        driver.break_stream(one)
    driver.pass_time(1.5)
    assert driver.record.number == 1
    driver.say(members[0], registration(members[0], left=1, state=at(driver, 1)))
    driver.pass_time(0.2)
    assert (driver.record.number, driver.names()) == (2, ["t0", "t2"])


def test_a_member_that_reconnects_within_the_window_disturbs_nobody():
    driver, (first, second) = training("t0", "t1")
    driver.break_stream(second)
    driver.pass_time(1.0)
    answers = driver.say(second, registration(second, generation=1, state=at(driver, 1)))
    assert not any(isinstance(one, BrokenGeneration) for one in answers)
    driver.progress(first, 1, 2)
    driver.progress(second, 1, 2)
    assert driver.record.number == 1
    assert broken_number(driver, first) == 0


def test_a_report_of_one_breaks_the_group_for_all():
    """Rule 74: a collective failed although all are alive; nobody is left out."""
    driver, (first, second) = training("t0", "t1")
    driver.report(first, 1, at(driver, 1))
    assert broken_number(driver, second) == 1
    driver.report(second, 1, at(driver, 1))
    assert (driver.record.number, driver.names()) == (2, ["t0", "t1"])


def test_a_member_that_is_out_and_missed_the_record_is_told_that_it_is_broken():
    """Rule 74: its promise is older than the record, so the next record waits for another one."""
    driver, (first, second) = training("t0", "t1")
    driver.report(first, 1, at(driver, 1))
    driver.break_stream(second)
    driver.say(second, registration(second, left=1, state=at(driver, 1)))
    assert driver.record.number == 2
    driver.break_stream(second)  # NEW was on it
    driver.report(first, 2, at(driver, 1))
    answers = driver.say(second, registration(second, left=1, state=at(driver, 1)))
    assert BrokenGeneration(number=2) in answers
    driver.report(second, 2, at(driver, 1))
    assert (driver.record.number, driver.names()) == (3, ["t0", "t1"])


def test_a_first_step_may_take_long():
    """It compiles: nobody is lost before its first step."""
    driver, (first, second) = training("t0", "t1", step=0)
    for _ in range(20):
        driver.progress(first, 1, 0, GroupPhase.REDUCE, made_in=0)
        driver.progress(second, 1, 0, GroupPhase.COMPUTE, made_in=0)
        driver.pass_time(1.0)
    assert broken_number(driver, first) == 0


def test_a_silent_process_is_lost_while_others_wait():
    """SIGSTOP: it says nothing any more, its stream stays."""
    driver, (first, second) = training("t0", "t1")
    driver.progress(second, 1, 1, GroupPhase.REDUCE)
    for _ in range(8):
        driver.progress(first, 1, 1, GroupPhase.REDUCE)
        driver.pass_time(1.0)
    assert broken_number(driver, first) == 1
    driver.report(first, 1, at(driver, 1))
    assert driver.names() == ["t0"]


def test_no_survivor_starts_from_head():
    """Rule 78: all processes are new ones, and the lineage stays."""
    driver, (first, second) = training("t0", "t1")
    for one in (first, second):
        driver.break_stream(one)
    driver.pass_time(3)
    fresh = driver.join("t0", 2)
    driver.pass_time(2)
    assert (driver.record.number, driver.names(), driver.record.lineage) == (2, ["t0"], 1)
    assert driver.told(NewGeneration, fresh)


def test_a_zombie_is_told_to_leave_and_may_join():
    """Rule 92."""
    driver, (first, second) = training("t0", "t1")
    driver.break_stream(second)
    driver.pass_time(3)
    driver.report(first, 1, at(driver, 1))
    driver.progress(first, 2, 2)
    driver.say(second, registration(second, generation=1, state=at(driver, 1)))
    assert broken_number(driver, second) == 2
    driver.report(second, 2, StateId(lineage=Lineage(1), generation=1, step=1))
    driver.pass_time(1.5)
    assert (driver.names(), driver.record.planned_from) == (["t0", "t1"], 2)


def test_a_new_master_lets_a_running_group_run():
    """Rule 91: it reads the record, hears the members and writes nothing."""
    driver, (first, second) = training("t0", "t1")
    driver.start()
    for one in (first, second):
        driver.say(one, registration(one, generation=1, state=at(driver, 1)))
        driver.progress(one, 1, 2)
    driver.pass_time(1)
    assert (driver.record.number, broken_number(driver, first)) == (1, 0)


def test_a_new_master_goes_on_with_a_change():
    """Rule 74: whatever the old master had sent, reports and record say the same to the next one."""
    driver, (first, second) = training("t0", "t1")
    driver.report(first, 1, at(driver, 1))
    driver.start()
    driver.say(first, registration(first, left=1, state=at(driver, 1)))
    driver.say(second, registration(second, generation=1, state=at(driver, 1)))
    assert broken_number(driver, second) == 1
    driver.report(second, 1, at(driver, 1))
    assert (driver.record.number, driver.names()) == (2, ["t0", "t1"])


def test_a_new_master_does_not_wait_for_the_silent_for_ever():
    driver, (first, _) = training("t0", "t1")
    driver.start()
    driver.say(first, registration(first, generation=1, state=at(driver, 1)))
    driver.pass_time(11)
    assert broken_number(driver, first) == 1
    driver.report(first, 1, at(driver, 1))
    assert driver.names() == ["t0"]


def test_a_number_is_above_all_that_were_heard_of():
    """Rule 64: the store was lost, a member has promised to enter nothing up to 57, and others may have gone on."""
    driver = GroupDriver().start()
    driver.join("t0", left=57)
    driver.pass_time(1.5)
    assert driver.record.number == 57 + UNHEARD + 1


def test_a_raised_lineage_breaks_the_group():
    """Rule 93: the user went back; then 74 to 76, and no plan in between."""
    driver, (first,) = training("t0")
    lineage = replace(driver.durable.lineage, number=Lineage(2))
    driver.durable = replace(driver.durable, lineage=lineage)
    driver.start()
    driver.say(first, registration(first, generation=1, state=at(driver, 1)))
    assert broken_number(driver, first) == 1
    driver.report(first, 1, at(driver, 1))
    assert (driver.record.number, driver.record.lineage, driver.record.planned_from) == (2, 2, 0)


def test_a_record_that_another_master_wrote_ends_the_term():
    """Rule 76: the transaction compares."""
    driver, (first,) = training("t0")
    other = replace(driver.record, number=2)
    driver.durable = replace(driver.durable, generation=GenerationRecord(current=other))
    driver.report(first, 1, at(driver, 1))
    assert isinstance(driver.effects[-1], StepDown)
    assert driver.state.is_over


def test_a_process_that_ended_is_missed_at_once():
    driver, (first, second) = training("t0", "t1")
    driver.say(second, Leave())
    assert broken_number(driver, first) == 1
    assert driver.state.try_replica(key("t1")) is None


def test_a_survivor_whose_stream_is_broken_is_waited_for():
    """Rule 75: it has reported and lives, so a record without it would drop its work for a joiner with none."""
    driver, (first, second) = training("t0", "t1")
    driver.progress(first, 1, 5)
    driver.say(first, LeftGeneration(left=1, state=at(driver, 5)))
    driver.break_stream(first)
    driver.say(second, Leave())
    joiner = driver.join("t2")
    assert driver.record.number == 1
    driver.say(first, registration(first, left=1, state=at(driver, 5)))
    assert (driver.record.number, set(driver.names())) == (2, {first.name, joiner.name})


def test_no_joiner_takes_the_place_of_a_survivor_where_a_step_has_few_records():
    """The record has as many members as a step has records; those that hold the state come first."""
    names = [f"t{place}" for place in range(10, 10 + SPEC.batch_size)]
    driver, survivors = training(*names)
    assert len(driver.names()) == SPEC.batch_size
    for one in survivors:
        driver.progress(one, 1, 5)
    driver.join("t0")
    state = at(driver, 5)
    for one in survivors:
        driver.say(one, LeftGeneration(left=1, state=state))
    assert (driver.record.number, set(driver.names())) == (2, {one.name for one in survivors})


def test_a_group_whose_replicas_differ_fails_and_nothing_of_it_is_committed():
    """Rule 65: nobody knows which replica is right, so the last checkpoint stands; every trainer is told why."""
    driver, (first, second) = training("t0", "t1")
    differs = "model.weight is not the same at t0 and t1 after step 5"
    driver.say(first, LeftGeneration(left=1, state=at(driver, 5), differs=differs))
    driver.say(second, LeftGeneration(left=1, state=at(driver, 5), differs=differs))
    assert driver.record.number == 1
    assert differs in group.status(driver.state, driver.now).problem
    for one in (first, second):
        (told,) = driver.told(Refused, one)
        assert differs in told.message


def test_steps_that_all_lost_replicas_had_done_count_no_more():
    """The status told of them, and steps below cleared no failure, until the new trainers had passed them."""
    driver, members = training("t0", "t1", step=4)
    for one in members:
        driver.break_stream(one)
    driver.pass_time(3.0)
    fresh = driver.join("t2")
    driver.pass_time(1.5)
    assert driver.names() == ["t2"]
    assert (driver.state.newest, group.status(driver.state, driver.now).group_step) == (0, 0)
    driver.join("t0", process=1, left=1, state=StateId(lineage=Lineage(1), generation=1, step=4))
    assert driver.state.newest == 0, "one that comes back takes the state of the others"
    driver.progress(fresh, driver.record.number, 1)
    assert driver.state.newest == 1


def test_record_whose_members_are_lost_before_it_is_durable():
    """None of them is known as the store answers: the next record follows."""
    driver, (first, second) = training("t0", "t1")
    driver.writes_go_through = False
    for one in (first, second):
        driver.report(one, 1, at(driver, 1))
    for one in (first, second):
        driver.break_stream(one)
    driver.pass_time(3.0)
    driver.let_go()
    assert (driver.record.number, driver.state.newest) == (2, 0)
