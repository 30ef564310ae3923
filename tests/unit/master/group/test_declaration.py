"""Other epochs and settings at a new start of a group's job (rule 98), and a stop that holds until more are there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from master import group
from master.api.group_shares import step_positions, total_steps
from master.api.master_status import JobPhase
from master.api.messages.from_members import Declare, Failed
from master.api.messages.generations import GroupEnded, GroupPhase, StateId
from master.api.messages.to_members import Declared, Refused
from master.api.positions import EMPTY
from master.api.replica_layout import LayoutDifference, compare_layouts, layout_text
from tests.unit.master.group.group_driver import (
    SPEC,
    STEPS,
    GroupDriver,
    key,
    lose_records,
    offer_of,
    registration,
    training,
)

FORM = {"model.weight": "float32[2,3]", "optimizer": "SGD"}
SETTINGS = {"model": "Net", "optimizer.0.lr": "0.1", "optimizer.0.weight_decay": "0.0"}


def of_epochs(epochs: int) -> Declare:
    return Declare(
        dataset=replace(SPEC, epochs=epochs), layout="l" if epochs == SPEC.epochs else f"schedule-of-{epochs}"
    )


def ended(step=STEPS, *, is_stopped=False, has_final_hook=False):
    """A group whose head holds this step, and whose trainers are gone."""
    driver, (first,) = training("t0", step=step)
    own = StateId(lineage=driver.state.number, generation=1, step=step, is_stopped=is_stopped)
    driver.say(first, registration(first, generation=1, state=own, has_final_hook=has_final_hook))
    driver.progress(first, 1, step, state=own, phase=GroupPhase.DONE)
    driver.say(first, offer_of(own, 1))
    assert driver.durable.head.state == own
    driver.break_stream(first)
    driver.pass_time(30)
    return driver


def come(driver, epochs, name="t1"):
    """A new trainer declares so many epochs; what it is answered."""
    member = key(name)
    driver.say(member, registration(member))
    driver.say(member, of_epochs(epochs))
    return [said for to, said in driver.sent if to == member and isinstance(said, Declared | Refused | GroupEnded)]


def phase(driver):
    return group.status(driver.state, driver.now).phase


def test_more_epochs_go_on_from_the_last_step():
    """END is not said before it is known how many epochs the new start declares."""
    driver = ended()
    assert come(driver, 3) == [Declared(dataset=replace(SPEC, epochs=3), tables=())]
    driver.pass_time(1.5)
    assert driver.record.head.state.step == STEPS
    assert (driver.state.steps, phase(driver)) == (STEPS * 3 // 2, JobPhase.TRAINING)
    driver.start()  # the next master reads the head of two epochs and the declaration of three
    assert (driver.state.failed, driver.state.is_complete) == ("", False)


def test_script_without_the_final_hook_of_the_start_before_ends_too():
    """Nobody is owed a hook that no script has."""
    driver = ended(has_final_hook=True)
    assert come(driver, 3) == [Declared(dataset=replace(SPEC, epochs=3), tables=())]
    driver.pass_time(1.5)
    number, last = driver.record.number, driver.state.steps
    own = StateId(lineage=driver.state.number, generation=number, step=last)
    driver.progress(key("t1"), number, last, phase=GroupPhase.DONE)
    driver.say(key("t1"), offer_of(own, number, spec=replace(SPEC, epochs=3)))
    assert driver.told(GroupEnded, key("t1")) == [GroupEnded(head=driver.state.head_state)]


def test_the_same_epochs_are_done():
    driver = ended()
    assert come(driver, SPEC.epochs)[-1] == GroupEnded(head=driver.state.head_state)


@pytest.mark.parametrize("epochs", [3, 1])
def test_other_epochs_are_refused_while_a_trainer_trains(epochs):
    """It would end at another step; the error says what to do."""
    driver, (first,) = training("t0", step=3)
    (answer,) = come(driver, epochs)
    assert (type(answer), answer.field) == (Refused, "dataset.epochs")
    assert f"is {epochs}, and t0 declared 2 and is here. End all trainers" in answer.message
    assert driver.state.dataset.dataset == SPEC
    assert not driver.told(GroupEnded, first)


def test_more_epochs_with_another_seed_are_refused_by_the_seed():
    """The epochs may be others at a new start: told to declare the same, a user would mend what is right."""
    driver = ended()
    driver.say(key("t1"), registration(key("t1")))
    driver.say(key("t1"), Declare(dataset=replace(SPEC, epochs=3, seed=SPEC.seed + 1), layout="l"))
    (answer,) = driver.told(Refused, key("t1"))
    assert answer.field == "dataset.seed"


def test_fewer_epochs_than_are_done_are_refused():
    """With the least number that may be declared."""
    driver = ended(step=total_steps(replace(SPEC, epochs=1)) + 1)
    (answer,) = come(driver, 1)
    assert (type(answer), answer.field) == (Refused, "dataset.epochs")
    assert "Declare 2 or more" in answer.message


def test_fewer_epochs_than_before_end_earlier():
    """As many as head holds: the job is complete."""
    driver = ended(step=total_steps(replace(SPEC, epochs=1)))
    assert come(driver, 1)[-1] == GroupEnded(head=driver.state.head_state)
    assert phase(driver) is JobPhase.COMPLETE


@pytest.mark.parametrize(("epochs", "then"), [(2, JobPhase.COMPLETE), (3, JobPhase.STARTING)])
def test_a_job_that_begins_where_another_ended_has_not_ended_before_it_declares(epochs, then):
    """Its epochs may be more: a job that is said to be over gets a minute for its last words, and no more trainers."""
    driver = ended()
    lose_records(driver, driver.durable.head)  # as another job of the same folder
    assert driver.state.is_complete
    assert phase(driver) is JobPhase.STARTING
    come(driver, epochs)
    assert phase(driver) is then


def test_fewer_epochs_than_lost_trainers_had_done_count_from_head():
    """Steps beyond the last checkpoint died with the trainers that did them, and so did what failed there (M4, 98)."""
    driver, (first,) = training("t0", step=2)
    driver.offer(first, 2, 1)
    driver.progress(first, 1, STEPS - 1, made_in=1)
    driver.say(first, Failed(positions=step_positions(SPEC, STEPS - 1), message="ValueError"))
    driver.break_stream(first)
    driver.pass_time(30)
    assert driver.state.failures.suspects
    assert come(driver, 1) == [Declared(dataset=replace(SPEC, epochs=1), tables=())]
    driver.pass_time(1.5)
    assert driver.record.suspects == EMPTY
    status = group.status(driver.state, driver.now)
    assert (status.group_step, status.group_steps, status.phase) == (2, STEPS // 2, JobPhase.TRAINING)
    late = key("t0")  # had been cut off: what it holds is no part of the job
    driver.say(late, registration(late, left=1, state=StateId(lineage=1, generation=1, step=STEPS - 1)))
    assert group.status(driver.state, driver.now).group_step == 2


def test_a_trainer_that_may_come_back_is_waited_for():
    """By a new master too: other epochs are answered once the old trainers are back, or lost."""
    driver, (first,) = training("t0", step=3)
    driver.start()
    assert come(driver, 3) == []
    driver.say(first, registration(first, generation=1, state=StateId(lineage=1, generation=1, step=3)))
    driver.pass_time(30)
    (answer,) = driver.told(Refused, key("t1"))
    assert answer.field == "dataset.epochs"
    driver.break_stream(first)
    assert come(driver, 3, "t2") == []
    driver.pass_time(30)
    assert driver.told(Declared, key("t2")) == [Declared(dataset=replace(SPEC, epochs=3), tables=())]


def test_a_stop_holds_until_more_epochs_are_declared():
    """The same script started again trains no more; one that declares more trains the rest, and then the new ones."""
    driver = ended(step=3, is_stopped=True)
    assert group.status(driver.state, driver.now).stopped_at == 3
    assert come(driver, SPEC.epochs)[-1] == GroupEnded(head=driver.state.head_state)
    driver = ended(step=3, is_stopped=True)
    assert come(driver, 3) == [Declared(dataset=replace(SPEC, epochs=3), tables=())]
    driver.pass_time(1.5)
    assert driver.record.head.state == StateId(lineage=driver.state.number, generation=1, step=3)
    assert (phase(driver), group.status(driver.state, driver.now).stopped_at) == (JobPhase.TRAINING, None)


# ---- the replica ----------------------------------------------------------------------------------------------------


def started(recorded=""):
    """A group of one that has declared this layout, or FORM and SETTINGS, and has committed a step."""
    driver, first = GroupDriver().start(), key("t0")
    driver.say(first, registration(first))
    driver.say(first, Declare(dataset=SPEC, layout=recorded or layout_text(FORM, SETTINGS)))
    driver.pass_time(1.5)
    driver.progress(first, 1, 3)
    driver.offer(first, 3, 1)
    assert driver.record.number == 1
    return driver, first


def declare(driver, layout, name="t1"):
    """A new trainer declares it; what it is answered."""
    member = key(name)
    driver.say(member, registration(member))
    return driver.say(member, Declare(dataset=SPEC, layout=layout))


def with_rate(rate):
    return layout_text(FORM, SETTINGS | {"optimizer.0.lr": rate, "model": "Renamed"})


def test_other_settings_are_refused_while_a_trainer_is_there_that_has_the_old():
    """The answer names them, and who has others (ADR 0273)."""
    driver, _ = started()
    (answer,) = declare(driver, with_rate("0.2"))
    assert (type(answer), answer.field) == (Refused, "layout")
    assert answer.message.startswith(
        "model is Renamed, and was Net; optimizer.0.lr is 0.2, and was 0.1; t0, which is here, has what was. Run the "
    )


def test_refused_joiner_is_told_and_fails_no_job_that_trains():
    """However many of its processes raise one after another, without a step of the others between them (M4)."""
    driver, _ = started()
    for process in range(1, 20):
        member = key("t1", process)
        driver.say(member, registration(member))
        (answer,) = driver.say(member, Declare(dataset=SPEC, layout="other"))
        driver.say(member, Failed(positions=EMPTY, message="UsageError: the master refuses this trainer"))
        driver.break_stream(member)
        driver.pass_time(1.0)
    status = group.status(driver.state, driver.now)
    assert (status.problem, status.failures_in_a_row, status.failures) == ("", 0, ())
    (told,) = status.refusals
    assert (told.member, told.process, told.message) == ("t1", "t1/19", f"layout: {answer.message}")
    member = key("t1", 20)
    driver.say(member, registration(member))
    driver.say(member, Declare(dataset=SPEC, layout=layout_text(FORM, SETTINGS)))
    assert group.status(driver.state, driver.now).refusals == ()


def test_refused_trainers_without_others_fail_the_job():
    """Nobody trains: their next processes would be refused as well."""
    driver, first = started()
    driver.break_stream(first)
    driver.pass_time(30)
    for process in range(1, driver.state.config.backoff_limit + 1):
        member = key("t1", process)
        driver.say(member, registration(member))
        driver.say(member, Declare(dataset=SPEC, layout="other"))
        driver.say(member, Failed(positions=EMPTY, message="UsageError"))
    assert group.status(driver.state, driver.now).phase is JobPhase.FAILED
    assert group.status(driver.state, driver.now).refusals == ()


def test_other_settings_begin_with_a_new_start():
    """Once nobody is there that could come back; all trainers of this start have them, under each master."""
    driver, first = started()
    driver.break_stream(first)
    assert declare(driver, with_rate("0.2")) == []
    driver.pass_time(30)
    assert driver.told(Declared, key("t1")) == [Declared(dataset=SPEC, tables=())]
    assert driver.durable.dataset.layout == with_rate("0.2")
    driver.pass_time(1.5)
    assert driver.record.head.state.step == 3
    (answer,) = declare(driver, layout_text(FORM, SETTINGS), "t2")
    assert answer.message.startswith("model is Net, and was Renamed; optimizer.0.lr is 0.1, and was 0.2; t1, which is")
    driver.start()
    driver.say(key("t1"), registration(key("t1"), generation=driver.record.number))
    (answer,) = declare(driver, with_rate("0.2"), "t3")
    assert isinstance(answer, Declared)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (
            FORM | {"model.weight": "float32[5,3]"},
            "model.weight is float32[5,3], and was float32[2,3]. Declare the same",
        ),
        (FORM | {"schedule": "StepLR"}, "schedule is new (StepLR). Declare the same"),
        ({"optimizer": "SGD"}, "model.weight is missing, and was float32[2,3]. Declare the same"),
        (
            {f"model.{number}": "float32[1]" for number in range(9)},
            "model.0 is new (float32[1]); model.1 is new (float32[1]); model.2 is new (float32[1]) (and 8 more). ",
        ),
    ],
)
def test_another_form_is_refused_at_once(form, message):
    """No checkpoint of the job could be loaded; the answer names the first entries."""
    driver, first = started()
    driver.break_stream(first)
    (answer,) = declare(driver, layout_text(form, SETTINGS))
    assert (type(answer), answer.field) == (Refused, "layout")
    assert answer.message.startswith(message)


def test_job_that_an_earlier_release_declared_goes_on():
    """Its layout has digests of whole parts, which say nothing of what differs; a state that does not fit is refused
    by the trainer that loads it.
    """
    driver, first = started("model=0123456789abcdef optimizer=0123456789abcdef device=cuda")
    (answer,) = declare(driver, with_rate("0.2"))
    assert answer.message.startswith("the replica is described by another release of EDL; t0, which is here")
    driver.break_stream(first)
    driver.pass_time(30)
    assert Declared(dataset=SPEC, tables=()) in declare(driver, with_rate("0.2"), "t2")
    assert driver.durable.dataset.layout == with_rate("0.2")


@pytest.mark.parametrize("text", ["a b", "x=1:2~", "\n", "ü"])
def test_entries_of_any_text_come_back(text):
    known = layout_text({text: text}, {text: text})
    assert compare_layouts(known, known) == LayoutDifference()
    assert compare_layouts(layout_text({text: "1"}, {text: text}), known).form == (f"{text} is 1, and was {text}",)


@pytest.mark.parametrize("older", [0, 1])
def test_one_that_has_stopped_and_one_that_works_on_break_the_generation(older):
    """Rule 97: the other waits in vain for the next step; not if it is still applying the last one, or stops too.

    The other's state is of the same step, though its id is that of an older checkpoint.
    """
    driver, (first, second) = training("t0", "t1", step=3)
    stopped = StateId(lineage=driver.state.number, generation=1, step=4, is_stopped=True)
    driver.progress(first, 1, 4, state=stopped, phase=GroupPhase.DONE)
    driver.progress(second, 1, 3, phase=GroupPhase.SCRIPT)
    driver.progress(second, 1, 4, phase=GroupPhase.SCRIPT)
    assert driver.state.broken == 0
    loaded = StateId(lineage=driver.state.number - older, generation=1, step=4)
    driver.progress(second, 1, 4, phase=GroupPhase.REDUCE, state=loaded)
    assert driver.state.broken == 1
