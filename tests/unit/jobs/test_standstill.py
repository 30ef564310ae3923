"""A job in which no trainer takes part: found from its master's answers, told after a while, with what is awaited."""

import pytest

from autoscaler.jobs.progress import JobProgress, TrainerEntry
from autoscaler.jobs.standstill import (
    STANDSTILL_TOLD_AFTER_S,
    awaited_text,
    is_standstill_told,
    observe_standstill,
    standstill_text,
    takes_part,
)
from master.api.master_status import JobPhase
from master.api.messages.generations import GroupPhase


def entry(name="t-0", **fields):
    return TrainerEntry(**{"name": name, "steps": 3} | fields)


def answer(*entries, phase=JobPhase.TRAINING, term=1, **fields):
    return JobProgress(phase=phase, term=term, ledger=entries, **fields)


LOST = entry(is_connected=False)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (entry(), True),
        (entry(phase=GroupPhase.SCRIPT), True),  # it evaluates, and its group waits for it
        (entry(phase=GroupPhase.OUT), True),  # it waits for the next record
        (LOST, False),
        (entry(phase=GroupPhase.REDUCE, is_left_behind=True), False),
        (entry(phase=GroupPhase.UNREADY), False),
    ],
)
def test_who_takes_part(one, expected):
    assert takes_part(one) is expected


@pytest.mark.parametrize("phase", [JobPhase.TRAINING, JobPhase.COMMITTING])
def test_a_job_stands_still_from_the_first_answer_without_a_trainer(phase):
    since_s = observe_standstill(None, answer(LOST, phase=phase), 100.0)
    assert since_s == 100.0
    assert observe_standstill(since_s, answer(phase=phase), 130.0) == 100.0, "its entry is forgotten, and nobody came"
    assert observe_standstill(since_s, answer(LOST, entry("t-1"), phase=phase), 131.0) is None


@pytest.mark.parametrize(
    "phase", sorted(frozenset(JobPhase) - {JobPhase.TRAINING, JobPhase.COMMITTING}, key=lambda phase: phase.value)
)
def test_other_phases_have_reasons_of_their_own(phase):
    assert observe_standstill(50.0, answer(phase=phase), 100.0) is None


def test_a_master_that_knows_nothing_yet_changes_nothing():
    """A take-over ends no standstill, and begins none."""
    unknowing = answer(phase=JobPhase.STARTING, term=0)
    assert observe_standstill(50.0, unknowing, 100.0) == 50.0
    assert observe_standstill(None, unknowing, 100.0) is None


def test_it_is_told_once_two_answers_that_far_apart_show_it():
    """Not by the clock: while the master is silent nobody knows."""
    assert not is_standstill_told(None, 1_000.0)
    assert not is_standstill_told(100.0, 100.0 + STANDSTILL_TOLD_AFTER_S - 1.0)
    assert is_standstill_told(100.0, 100.0 + STANDSTILL_TOLD_AFTER_S)


@pytest.mark.parametrize(
    ("fields", "cost"),
    [
        ({"generation": 3}, "or else of the last checkpoint"),
        ({"servers": 2}, "the parameter servers keep what was trained"),
        ({}, "what is in no checkpoint is trained again"),
    ],
)
def test_the_text_says_since_when_and_what_it_costs(fields, cost):
    text = standstill_text("since 12:00", answer(**fields))
    assert text.startswith("no trainer takes part since 12:00, so nothing is trained; ")
    assert text.endswith(cost)


def test_each_trainer_pod_is_told_of_by_what_it_does():
    here = answer(
        entry("t-1", is_connected=False),
        entry("t-2", phase=GroupPhase.UNREADY),
        entry("t-3", phase=GroupPhase.REDUCE, is_left_behind=True),
    )
    told = awaited_text(here, ["t-0", "t-1", "t-2", "t-3"], "unused", {}).split("; ")
    assert told[0].startswith("t-0, t-1: not connected to the job's master, ")
    assert told[1] == "t-2: in the script's own code, and no step is asked for"
    assert told[2] == "t-3: silent, as a process that is stopped (edl logs tj/NAME --trainer 0)"


def test_a_pod_whose_containers_do_not_run_has_no_log_to_read():
    creating = dict.fromkeys(("t-0", "t-1"), "ContainerCreating")
    told = awaited_text(answer(LOST), ["t-0", "t-1"], "", creating)
    assert told == "t-0, t-1: its containers do not run yet (ContainerCreating)"
    mixed = awaited_text(answer(), ["t-0", "t-1", "t-2"], "", creating)
    assert mixed.endswith("(edl logs tj/NAME --trainer 2)")


def test_of_many_trainer_pods_some_are_named():
    told = awaited_text(answer(), [f"t-{number}" for number in range(200)], "", {})
    assert told.startswith("t-0, t-1, t-2, t-3, t-4 and 195 more: not connected")
    assert len(told) < 200


def test_without_a_trainer_pod_the_reason_for_that_is_told():
    assert awaited_text(answer(), [], "0 of 2 trainers: no node has room", {}).endswith(
        ": 0 of 2 trainers: no node has room"
    )
    assert awaited_text(answer(), [], "", {}) == "EDL starts a new trainer"
