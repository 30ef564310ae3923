"""Whom the master holds for lost because the others wait for it, and whom it does not (rule 74)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from master.api.group_shares import steps_per_epoch
from master.api.messages.generations import GroupPhase
from tests.unit.master.group.group_driver import SPEC, broken_number, training

EPOCH = steps_per_epoch(SPEC)


def stands_still(phases: dict[str, GroupPhase], seconds: int, *, step: int = 1, median_s: float = 0.1) -> bool:
    """True if a member is held for lost while all report these phases of this step, once a second."""
    driver, members = training(*phases, step=step)
    for _ in range(seconds):
        for member, phase in zip(members, phases.values(), strict=True):
            driver.progress(member, 1, step, phase, median_step_s=median_s)
        driver.pass_time(1.0)
    return broken_number(driver, members[0]) > 0


def test_last_member_that_has_not_contributed_is_lost_after_ten_median_steps():
    """Two seconds at least; the others have contributed to the step that it is in."""
    late = {"t0": GroupPhase.REDUCE, "t1": GroupPhase.REDUCE, "t2": GroupPhase.COMPUTE}
    assert not stands_still(late, 1)
    assert stands_still(late, 4)
    assert not stands_still(late, 9, median_s=1.0)
    assert stands_still(late, 12, median_s=1.0)


@pytest.mark.parametrize("others", [GroupPhase.REDUCE, GroupPhase.SYNC, GroupPhase.DONE])
def test_member_in_its_script_has_the_time_of_a_progress_deadline(others):
    """It evaluates, takes the last copy, or has not heard of a sync: it reports, and holds nobody back in a step."""
    evaluates = {"t0": others, "t1": others, "t2": GroupPhase.SCRIPT}
    assert not stands_still(evaluates, 110)
    assert stands_still(evaluates, 130)


def test_first_step_of_an_epoch_has_the_time_of_a_progress_deadline():
    """Its data loader begins anew, which no median step tells of."""
    loads = {"t0": GroupPhase.REDUCE, "t1": GroupPhase.COMPUTE}
    assert not stands_still(loads, 110, step=EPOCH)
    assert stands_still(loads, 130, step=EPOCH)


def test_member_that_may_compile_has_the_time_of_a_progress_deadline_in_any_step():
    """Its share has a size that is new to it, as in its second step: in the first one it took the state (ADR 0257)."""
    compiles = {"t0": GroupPhase.REDUCE, "t1": GroupPhase.REDUCE, "t2": GroupPhase.WARM_UP}
    assert not stands_still(compiles, 110)
    assert stands_still(compiles, 130)


def test_member_that_waits_for_its_data_has_the_time_of_slow_storage():
    """Whatever its median step is: it lives and reports, and says what it waits for."""
    loads = {"t0": GroupPhase.REDUCE, "t1": GroupPhase.LOAD}
    assert not stands_still(loads, 590)
    assert stands_still(loads, 610)


def test_member_that_says_nothing_while_it_loads_is_lost_as_any():
    """A stopped process reads nothing."""
    driver, (first, second) = training("t0", "t1")
    driver.progress(second, 1, 1, GroupPhase.LOAD, median_step_s=0.1)
    for _ in range(6):
        driver.progress(first, 1, 1, GroupPhase.REDUCE, median_step_s=0.1)
        driver.pass_time(1.0)
    assert broken_number(driver, first) == 1


def test_who_waits_in_a_sync_has_not_contributed_to_a_step():
    """What is reported of a sync is older than the step: nobody is held back in it."""
    assert not stands_still({"t0": GroupPhase.SYNC, "t1": GroupPhase.COMPUTE}, 20)


def test_two_members_that_hang_are_lost_too():
    """None of them is the last one; both have the time of a progress deadline."""
    hang = {"t0": GroupPhase.REDUCE, "t1": GroupPhase.COMPUTE, "t2": GroupPhase.COMPUTE}
    assert not stands_still(hang, 110)
    assert stands_still(hang, 130)


def test_member_that_applies_a_step_is_waited_for_after_a_break():
    """Its report names a whole replica, so it comes once the script asks for the next step."""
    driver, (first, second, third) = training("t0", "t1", "t2")
    driver.progress(second, 1, 1, GroupPhase.SCRIPT)
    driver.report(first, 1)
    driver.report(third, 1)
    for _ in range(60):
        driver.progress(second, 1, 1, GroupPhase.SCRIPT)
        driver.pass_time(1.0)
    assert driver.record.number == 1
    driver.report(second, 1)
    assert (driver.record.number, driver.names()) == (2, ["t0", "t1", "t2"])


@pytest.mark.parametrize(
    "last", [GroupPhase.COMPUTE, GroupPhase.REDUCE, GroupPhase.SCRIPT, GroupPhase.LOAD, GroupPhase.WARM_UP]
)
def test_stopped_process_is_lost_two_seconds_after_the_others_wait_for_it(last):
    """Its last report is of an older step, in any phase; theirs say for how long they have waited."""
    driver, (first, second, stopped) = training("t0", "t1", "t2")
    driver.progress(stopped, 1, 1, last, median_step_s=0.05)
    driver.pass_time(0.9)
    for one in (first, second):
        driver.progress(one, 1, 3, GroupPhase.REDUCE, median_step_s=0.05, reducing_s=0.9)
    is_kept = last in (GroupPhase.SCRIPT, GroupPhase.WARM_UP)  # a library may keep it from reporting
    for waited_s in range(1, 4 if is_kept else 2):
        driver.pass_time(1.0)
        assert broken_number(driver, first) == 0
        driver.progress(first, 1, 3, GroupPhase.REDUCE, median_step_s=0.05, reducing_s=0.9 + waited_s)
    driver.pass_time(0.2)
    assert broken_number(driver, first) == 1


def test_member_that_waits_is_not_held_for_older_than_what_it_last_showed():
    """A wait of any length is told, and moves nothing into the past."""
    driver, (first, second) = training("t0", "t1")
    driver.pass_time(1.0)
    driver.progress(second, 1, 2, GroupPhase.COMPUTE, median_step_s=0.05)
    driver.progress(first, 1, 2, GroupPhase.REDUCE, median_step_s=0.05, reducing_s=1e9)
    driver.pass_time(1.5)
    assert broken_number(driver, first) == 0


def after_a_loss(hanging: GroupPhase, then: GroupPhase = GroupPhase.SCRIPT, *, newer: bool = False):
    """A driver whose member t2 was killed, while t1 was in this phase of a usual step: t0 waits in the next sync."""
    driver, (first, second, killed) = training("t0", "t1", "t2", step=2)
    driver.progress(first, 1, 2, GroupPhase.REDUCE, median_step_s=0.1)
    driver.progress(second, 1, 2, hanging, median_step_s=0.1)
    own = driver.state.try_replica(first).state
    driver.break_stream(killed)
    driver.report(first, 1, own)
    driver.pass_time(0.1)
    driver.report(second, 1, replace(own, step=3) if newer else own)
    assert driver.names() == ["t0", "t1"], "its report proves that the process lives"
    driver.progress(first, 2, 2, GroupPhase.SYNC, made_in=1, median_step_s=0.1)
    driver.progress(second, 2, 2, then, made_in=1, median_step_s=0.1)
    return driver, (first, second)


def is_lost_within(case, seconds: int) -> bool:
    """True if t1 is held for lost; both report once a second, and nothing changes."""
    driver, (first, second) = case
    phase = driver.state.try_replica(second).phase
    for _ in range(seconds):
        driver.progress(first, 2, 2, GroupPhase.SYNC, made_in=1, median_step_s=0.1)
        driver.progress(second, 2, 2, phase, made_in=1, median_step_s=0.1)
        driver.pass_time(1.0)
    return driver.state.try_replica(second).is_lost


@pytest.mark.parametrize("phase", [GroupPhase.COMPUTE, GroupPhase.REDUCE])
def test_script_that_hangs_beside_another_loss_is_lost_in_the_time_of_a_usual_step(phase):
    """Its step was dropped, so it has no more to do than to ask for the next one (ADR 0258)."""
    case = after_a_loss(phase)
    assert not is_lost_within(case, 1)
    assert is_lost_within(case, 3)


@pytest.mark.parametrize(
    "case",
    [
        {"hanging": GroupPhase.SCRIPT},
        {"hanging": GroupPhase.WARM_UP},
        {"hanging": GroupPhase.LOAD},
        {"hanging": GroupPhase.COMPUTE, "newer": True},
        {"hanging": GroupPhase.COMPUTE, "then": GroupPhase.LOAD},
    ],
)
def test_script_that_was_in_no_usual_step_beside_another_loss_keeps_its_time(case):
    """It may evaluate, compile, or wait for its data; a newer state is of another step than the one last told of."""
    assert not is_lost_within(after_a_loss(**case), 110)


def test_script_that_comes_back_after_another_loss_is_in_order():
    """What it owed is paid by asking; later it has the time of any script."""
    driver, (first, second) = after_a_loss(GroupPhase.COMPUTE)
    driver.progress(second, 2, 2, GroupPhase.SYNC, made_in=1, median_step_s=0.1)
    driver.progress(second, 2, 2, GroupPhase.SCRIPT, made_in=1, median_step_s=0.1)
    assert not is_lost_within((driver, (first, second)), 110)


@pytest.mark.parametrize(
    "then",
    [
        {"step": 3, "made_in": 2},  # it has redone the step, and evaluates
        {"step": 2, "made_in": 1},  # it has asked, and the step is not done
    ],
)
def test_script_that_has_asked_between_two_reports_is_in_order(then):
    """Both find it in its code: by the steps that it has begun, it has come back in the meantime (ADR 0258)."""
    driver, (first, second) = after_a_loss(GroupPhase.COMPUTE)
    for _ in range(110):
        driver.progress(first, 2, phase=GroupPhase.REDUCE, median_step_s=0.1, **then)
        driver.progress(second, 2, phase=GroupPhase.SCRIPT, median_step_s=0.1, steps_begun=4, **then)
        driver.pass_time(1.0)
    assert not driver.state.try_replica(second).is_lost


@pytest.mark.parametrize("last", [GroupPhase.SCRIPT, GroupPhase.WARM_UP])
def test_process_that_says_nothing_after_a_break_is_lost_after_four_reports(last):
    """A survivor waits for its report, which its process owes whatever its script does (ADR 0258)."""
    driver, (first, stopped, killed) = training("t0", "t1", "t2", step=2)
    driver.progress(stopped, 1, 2, last, median_step_s=0.1)
    driver.break_stream(killed)
    driver.report(first, 1, driver.state.try_replica(first).state)
    driver.pass_time(3.5)
    assert not driver.state.try_replica(stopped).is_lost
    driver.pass_time(0.6)
    assert driver.state.try_replica(stopped).is_lost
    assert driver.names() == ["t0"]


@pytest.mark.parametrize("phase", [GroupPhase.TRANSFER, GroupPhase.RESTORE])
def test_joiner_that_is_stopped_while_it_takes_the_state_is_lost_after_four_reports(phase):
    """It counted as one that compiles: the others stood still for two minutes."""
    driver, (first, second) = training("t0", "t1")
    joiner = driver.join("t2")
    driver.pass_time(1.0)
    assert driver.names() == ["t0", "t1", "t2"]
    for one in (first, second):
        driver.progress(one, 2, 1, GroupPhase.REDUCE, made_in=1, median_step_s=0.1)
    driver.progress(joiner, 2, 0, phase, state=None, is_synced=False)
    for _ in range(3):
        driver.pass_time(1.0)
        driver.progress(first, 2, 1, GroupPhase.REDUCE, made_in=1, median_step_s=0.1)
    driver.pass_time(0.9)
    assert broken_number(driver, first) == 0
    driver.pass_time(0.2)
    assert broken_number(driver, first) == 2


def hear(driver, generation: int, *members, phase=GroupPhase.REDUCE, step: int = 1) -> None:
    for one in members:
        driver.progress(one, generation, step, phase, median_step_s=0.1)


def test_master_that_hears_nobody_holds_nobody_for_lost():
    """Its own link is to blame: the group trained on, and was broken when it healed (rules 75, 91)."""
    driver, (first, second) = training("t0", "t1")
    hear(driver, 1, first)
    driver.pass_time(0.9)
    hear(driver, 1, second, phase=GroupPhase.COMPUTE)
    driver.pass_time(300.0)
    hear(driver, 1, first)
    driver.pass_time(1.9)
    assert broken_number(driver, first) == 0, "the other one's report is on its way, too"
    hear(driver, 1, second)
    driver.pass_time(0.9)
    assert broken_number(driver, first) == 0


def test_member_that_stays_silent_once_the_others_are_heard_again_is_lost():
    """A link that heals shows who is gone."""
    driver, (first, _) = training("t0", "t1")
    driver.pass_time(300.0)
    for _ in range(2):
        hear(driver, 1, first)
        driver.pass_time(1.0)
    assert broken_number(driver, first) == 1


def test_member_that_is_heard_again_after_a_break_is_waited_for():
    """It was cut off alone; the first to ask trained the whole global batch, and records of the step were suspects."""
    driver, (first, second) = training("t0", "t1")
    while not broken_number(driver, first):
        hear(driver, 1, first)
        driver.pass_time(1.0)
    own = driver.state.try_replica(first).state
    hear(driver, 1, second, phase=GroupPhase.COMPUTE)
    driver.report(first, 1, own)
    driver.progress(first, 0, 1, GroupPhase.OUT, made_in=1)
    assert driver.record.number == 1
    driver.report(second, 1, own)
    assert (driver.record.number, driver.names()) == (2, ["t0", "t1"])
    assert driver.state.failures.is_clear


def test_member_that_is_heard_again_and_does_not_leave_is_not_waited_for_long():
    """Two seconds, as any that owes its report."""
    driver, (first, second) = training("t0", "t1")
    while not broken_number(driver, first):
        hear(driver, 1, first)
        driver.pass_time(1.0)
    hear(driver, 1, second, phase=GroupPhase.COMPUTE, step=2)
    driver.report(first, 1, driver.state.try_replica(first).state)
    driver.pass_time(1.9)
    assert driver.record.number == 1
    driver.pass_time(0.2)
    assert (driver.record.number, driver.names()) == (2, ["t0"])
