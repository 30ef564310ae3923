"""Whom a record may list: a script that hangs is left out until it asks for a step (rule 75)."""

from __future__ import annotations

import pytest

from master import group
from master.api.messages.generations import GroupPhase, StateId
from tests.unit.master.group.group_driver import GroupDriver, broken_number, registration, training


def at(driver: GroupDriver, step: int, generation: int = 1) -> StateId:
    return StateId(lineage=driver.state.number, generation=generation, step=step)


def hanging(*others: str, phase: GroupPhase = GroupPhase.COMPUTE) -> tuple[GroupDriver, list]:
    """A group in which `t9` does not come back from its step; BROKEN is said, and nobody has answered."""
    driver, members = training(*others, "t9")
    for _ in range(200):
        for one in members:
            driver.progress(one, 1, 1, phase if one is members[-1] else GroupPhase.REDUCE, median_step_s=0.01)
        if broken_number(driver, members[0]):
            return driver, members
        driver.pass_time(1.0)
    raise AssertionError("nobody is held for lost")


def out(driver: GroupDriver, member, phase: GroupPhase) -> None:
    driver.progress(member, 0, 1, phase, made_in=1, is_synced=False)


def trainers_problem(driver: GroupDriver) -> str:
    return group.status(driver.state, driver.now).trainers_problem


@pytest.mark.parametrize("is_first", [True, False], ids=["answers first", "answers last"])
@pytest.mark.parametrize("phase", [GroupPhase.COMPUTE, GroupPhase.SCRIPT])
def test_hung_script_whose_process_answers_is_not_listed(is_first, phase):
    """Its runtime reports whatever the script does; the survivors make the record at once, without it."""
    driver, (first, second, hung) = hanging("t0", "t1", phase=phase)
    for one in (hung, first, second) if is_first else (first, second, hung):
        driver.report(one, 1, at(driver, 1))
        out(driver, one, GroupPhase.UNREADY if one is hung else GroupPhase.OUT)
    assert (driver.record.number, driver.names()) == (2, ["t0", "t1"])


@pytest.mark.parametrize(("phase", "longest"), [(GroupPhase.RESTORE, 600), (GroupPhase.SCRIPT, 120)])
def test_member_that_hangs_in_the_runtimes_work_is_left_behind(phase, longest):
    """A checkpoint on storage that hangs, a copy to a dead GPU: it reports, and was awaited for ever."""
    driver, (first, hung) = training("t0", "t9")
    seconds = 0
    while not broken_number(driver, first) and seconds < longest + 30:
        seconds += 1
        driver.progress(hung, 1, 1, phase)
        driver.progress(first, 1, 1, GroupPhase.REDUCE, median_step_s=0.01)
        driver.pass_time(1.0)
    assert longest <= seconds < longest + 30
    for one in (hung, first):
        driver.report(one, 1, at(driver, 1))
        out(driver, one, GroupPhase.UNREADY if one is hung else GroupPhase.OUT)
    assert (driver.record.number, driver.names()) == (2, ["t0"])


def test_hung_script_disturbs_nobody_while_it_hangs():
    """It is neither planned for nor listed in the record after the next loss."""
    driver, (first, second, hung) = hanging("t0", "t1")
    for one in (hung, first, second):
        driver.report(one, 1, at(driver, 1))
    for begun in range(2, 200):
        out(driver, hung, GroupPhase.UNREADY)
        for one in (first, second):
            driver.progress(one, 2, 5, GroupPhase.REDUCE, steps_begun=begun)
        driver.pass_time(1.0)
    assert (driver.record.number, driver.names()) == (2, ["t0", "t1"])
    driver.report(second, 2, at(driver, 5, 2))
    driver.report(first, 2, at(driver, 5, 2))
    assert (driver.record.number, driver.names()) == (3, ["t0", "t1"])


def test_script_that_asks_again_joins_by_a_plan():
    """It was slow, or its process was stopped (rule 92): the others train on while it connects."""
    driver, (first, hung) = hanging("t0")
    driver.report(first, 1, at(driver, 1))
    driver.report(hung, 1, at(driver, 1))
    driver.progress(first, 2, 2)
    driver.pass_time(5.0)
    assert driver.names() == ["t0"]
    out(driver, hung, GroupPhase.OUT)
    driver.pass_time(1.5)
    assert (driver.names(), driver.record.planned_from) == (["t0", "t9"], 2)


def test_next_master_plans_for_no_script_that_has_not_asked():
    """A registration does not say where the script is; the report behind it does."""
    driver, (first, hung) = hanging("t0")
    driver.report(first, 1, at(driver, 1))
    driver.report(hung, 1, at(driver, 1))
    driver.start()
    driver.say(first, registration(first, generation=2, left=1, state=at(driver, 2, 2)))
    driver.say(hung, registration(hung, left=1, state=at(driver, 1)))
    for begun in range(3, 20):
        out(driver, hung, GroupPhase.UNREADY)
        driver.progress(first, 2, 5, steps_begun=begun)
        driver.pass_time(1.0)
    assert (driver.record.number, driver.names()) == (2, ["t0"])
    out(driver, hung, GroupPhase.OUT)
    driver.pass_time(1.5)
    assert (driver.record.planned_from, driver.names()) == (2, ["t0", "t9"])


def test_survivor_is_listed_wherever_its_script_is():
    """A loss interrupts steps, so survivors are in their scripts: their reports are enough."""
    driver, (first, second, third) = training("t0", "t1", "t2")
    for one in (first, second):
        driver.progress(one, 1, 1, GroupPhase.COMPUTE)
    driver.break_stream(third)
    driver.pass_time(2.5)
    for one in (first, second):
        driver.report(one, 1, at(driver, 1))
        out(driver, one, GroupPhase.UNREADY)
    assert (driver.record.number, driver.names()) == (2, ["t0", "t1"])


def test_status_tells_of_a_script_that_hangs_until_it_asks():
    """People learn which trainer to look at, and that the others train on."""
    driver, (first, hung) = hanging("t0")
    driver.report(first, 1, at(driver, 1))
    driver.report(hung, 1, at(driver, 1))
    out(driver, hung, GroupPhase.UNREADY)
    assert trainers_problem(driver) == "", "it may be slow"
    driver.pass_time(11.0)
    told = trainers_problem(driver)
    assert told.startswith("t9 is in its script's own code")
    assert told.endswith("without it for less than a minute")
    for begun in range(2, 190):
        out(driver, hung, GroupPhase.UNREADY)
        driver.progress(first, 2, 5, steps_begun=begun)
        driver.pass_time(1.0)
    assert trainers_problem(driver).endswith("for 3 min")
    out(driver, hung, GroupPhase.OUT)
    assert trainers_problem(driver) == ""


def test_status_tells_of_a_script_that_hangs_that_nobody_else_trains():
    """The others are lost, too: it said that they had trained on without it."""
    driver, (first, hung) = hanging("t0")
    driver.report(first, 1, at(driver, 1))
    driver.report(hung, 1, at(driver, 1))
    out(driver, hung, GroupPhase.UNREADY)
    driver.break_stream(first)
    driver.pass_time(12.0)
    told = trainers_problem(driver)
    assert told.startswith("t9 is in its script's own code")
    assert told.endswith("No other trainer is there: nothing is trained until one is")


def test_status_tells_of_a_process_that_is_stopped():
    """It says nothing, and its stream is open: another thing to look for than a script that hangs."""
    driver, (first, _) = training("t0", "t1")
    while not broken_number(driver, first):
        driver.progress(first, 1, 1, GroupPhase.REDUCE)
        driver.pass_time(1.0)
    driver.report(first, 1, at(driver, 1))
    assert driver.names() == ["t0"]
    driver.pass_time(11.0)
    assert trainers_problem(driver).startswith("t1 says nothing")
