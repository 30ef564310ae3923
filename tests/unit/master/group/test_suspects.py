"""Poison records of a group: what lost members had in hand is halved, and one record left out (rule 94, M4)."""

from __future__ import annotations

import pytest

from master import group
from master.api.group_shares import shares, step_positions
from master.api.master_status import JobPhase
from master.api.messages.from_members import Failed
from master.api.messages.generations import GroupPhase, StateId
from master.api.messages.to_members import Refused
from master.api.positions import PositionSet
from tests.unit.master.group.group_driver import CONFIG, SPEC, key, training


def crash(driver, name, process, survivor):
    """The member dies in the step in flight; the survivor reports, and a new process of its name joins."""
    number = driver.record.number
    own = driver.state.try_replica(survivor).state
    driver.break_stream(key(name, process))
    driver.pass_time(2.5)
    driver.report(survivor, number, own)
    record = driver.record
    driver.progress(survivor, record.number, own.step, made_in=own.generation)
    driver.join(name, process + 1)
    driver.pass_time(1.5)
    number = driver.record.number
    for one in (survivor, key(name, process + 1)):
        driver.progress(one, number, own.step, made_in=own.generation)
    return record


def test_half_of_what_a_lost_rank_had_is_tried_alone_by_one_rank():
    """Rule 94: by the process that has not trained yet, so no work is lost with it."""
    driver, (first, _) = training("t0", "t1", step=3)
    share = shares(driver.record, step_positions(SPEC, 3))[1]
    assert crash(driver, "t1", 1, first).suspects <= share
    assert driver.names()[driver.record.suspect_rank] == "t1"
    assert shares(driver.record, step_positions(SPEC, 3))[1] == driver.record.suspects
    assert len(driver.record.suspects) == len(share) // 2


@pytest.mark.parametrize("poison", step_positions(SPEC, 3))
@pytest.mark.parametrize("size", [2, 3, 4])
def test_one_record_that_kills_who_has_it_is_left_out_alone(poison, size):
    """Rule 94, M4: whichever it is, after at most log2 of the global batch and the failures that a quarantine takes."""
    names = [f"t{rank}" for rank in range(size)]
    driver, _ = training(*names, step=3)
    own = {name: driver.state.try_replica(key(name)).state for name in names}
    processes, losses = dict.fromkeys(names, 1), 0
    while poison not in driver.record.quarantine:
        parts = shares(driver.record, step_positions(SPEC, 3))
        (victim,) = (name for name, part in zip(driver.names(), parts, strict=True) if poison in part)
        losses += 1
        assert losses <= SPEC.batch_size.bit_length() + CONFIG.quarantine_after
        number = driver.record.number
        driver.break_stream(key(victim, processes[victim]))
        driver.pass_time(2.5)
        processes[victim] += 1
        own[victim] = None
        driver.join(victim, processes[victim])
        for name in driver.names():
            if name != victim and driver.record.number == number:
                driver.report(key(name, processes[name]), number, own[name])
        state = next(held for held in own.values() if held is not None)
        own = dict.fromkeys(names, state)
        driver.pass_time(1.5)
        for name in driver.names():
            driver.progress(key(name, processes[name]), driver.record.number, state.step, made_in=state.generation)
    assert driver.durable.lineage.quarantine == PositionSet.of(poison)
    assert losses >= CONFIG.quarantine_after


def test_sole_survivor_waits_for_another_trainer_once_something_has_failed_twice():
    """It would be the next one lost, and nothing learned; after a minute it goes on."""
    for is_joined in (True, False):
        driver, (first, _) = training("t0", "t1", step=3)
        own = driver.state.try_replica(first).state
        crash(driver, "t1", 1, first)
        driver.progress(key("t1", 2), driver.record.number, own.step, made_in=driver.record.number)
        number = driver.record.number
        driver.break_stream(key("t1", 2))
        driver.pass_time(2.5)
        driver.report(first, number, own)
        assert driver.record.number == number
        if is_joined:
            driver.join("t1", 3)
            assert driver.names() == ["t0", "t1"]
        else:
            driver.pass_time(61.0)
            assert driver.names() == ["t0"]
        assert driver.record.number > number


def test_nobody_is_waited_for_once_the_job_has_failed():
    """A deadline of a job that makes no generation any more would come again and again."""
    driver, (first, _) = training("t0", "t1", step=3, backoff_limit=1)
    own = driver.state.try_replica(first).state
    crash(driver, "t1", 1, first)
    number = driver.record.number
    driver.progress(key("t1", 2), number, own.step, made_in=number)
    driver.break_stream(key("t1", 2))
    driver.pass_time(2.5)
    driver.report(first, number, own)
    assert driver.record.number == number
    driver.say(first, Failed(positions=PositionSet.span(0, 1), message="ValueError: x"))
    assert driver.state.failed
    driver.pass_time(120.0)


def test_trainer_without_others_leaves_out_all_that_it_failed_with():
    """Nobody is there to share the suspects with."""
    driver, _ = training("t0", step=3)
    for process in (1, 2, 3):
        driver.say(key("t0", process), Failed(positions=step_positions(SPEC, 3), message="ValueError: x"))
        driver.break_stream(key("t0", process))
        driver.pass_time(11.0)
        driver.join("t0", process + 1)
        driver.pass_time(1.5)
        driver.progress(key("t0", process + 1), driver.record.number, 3, made_in=driver.record.number)
    assert driver.durable.lineage.quarantine == step_positions(SPEC, 3)


def test_a_step_that_completes_clears_the_suspects():
    driver, (first, _) = training("t0", "t1", step=3)
    crash(driver, "t1", 1, first)
    assert driver.state.failures.suspects
    driver.progress(first, driver.record.number, 4)
    assert not driver.state.failures.suspects


def test_scripts_that_raise_in_a_row_fail_the_job():
    driver, members = training("t0", "t1", backoff_limit=2)
    for one in members:
        driver.say(one, Failed(positions=PositionSet.span(0, 1), message="ValueError: x"))
    status = group.status(driver.state, driver.now)
    assert status.phase is JobPhase.FAILED
    assert "2 failures in a row" in status.problem
    assert any(isinstance(said, Refused) for _, said in driver.sent)


def test_what_raised_is_counted_however_old_the_reports_of_the_others_are():
    """Steps may take less time than passes between two reports: the process that raised tells its own step first."""
    driver, (_, second) = training("t0", "t1", step=1)
    share = shares(driver.record, step_positions(SPEC, 6))[1]
    driver.progress(second, driver.record.number, 6)
    driver.say(second, Failed(positions=share, message="ValueError"))
    assert driver.state.failures.suspects == share


def test_members_of_a_group_that_changes_are_blamed_for_what_they_had_before():
    """Rules 63, 79: while a plan is connected its members train the shares of the generation before."""
    driver, (first, second) = training("t0", "t2", step=3)
    before = driver.record
    driver.join("t1")
    driver.pass_time(1.5)
    assert driver.record.planned_from == before.number
    share = shares(before, step_positions(SPEC, 3))[1]
    driver.break_stream(second)
    driver.pass_time(2.5)
    driver.report(first, driver.record.number, driver.state.try_replica(first).state)
    driver.pass_time(2.5)
    assert driver.state.failures.suspects == share


def test_nothing_is_blamed_for_a_loss_after_the_last_step():
    """Rule 97: a script has stopped, and nobody had a record in hand."""
    driver, (first, second) = training("t0", "t1", step=3)
    own = StateId(lineage=driver.state.number, generation=1, step=3, is_stopped=True)
    for member in (first, second):
        driver.progress(member, 1, 3, state=own, phase=GroupPhase.DONE)
    driver.break_stream(second)
    driver.pass_time(2.5)
    driver.report(first, 1, own)
    driver.pass_time(2.5)
    assert driver.record.number > 1
    assert driver.state.failures.is_clear
