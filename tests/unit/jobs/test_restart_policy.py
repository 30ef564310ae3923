"""When a silent master counts as hung, never for what passes by itself; and the pauses between restarts."""

import math

import pytest

from autoscaler.jobs.restart_policy import (
    LONGEST_PAUSE_S,
    LONGEST_POLL_GAP_S,
    SILENCE_LIMIT_S,
    START_LIMIT_S,
    observe_answer,
    pause_s,
)

FAULT_S = 18.0  # the longest that a member is stopped or cut off and still comes back (tests.chaos.fault_injector)
AGAIN_S = 6.0  # until a new connection is made after it


def asked(*answers, every_s=1.25, process="m#1", heard=None, from_s=0.0):
    """One question after another."""
    for number, has_answered in enumerate(answers):
        heard = observe_answer(heard, process, has_answered=has_answered, now_s=from_s + number * every_s)
    return heard


def silent(seconds, *, every_s=1.25):
    """As many unanswered questions."""
    return [False] * math.ceil(seconds / every_s)


def test_a_master_that_fell_silent_is_hung_after_the_limit():
    """It is the same process that answered before."""
    assert not asked(True, *silent(SILENCE_LIMIT_S - 2.5)).is_hung
    assert asked(True, *silent(SILENCE_LIMIT_S)).is_hung


def test_a_fault_that_passes_by_itself_is_not_taken_for_a_hung_master():
    """A stop, a partition or a lost lease of 18 s, and the time that a new connection takes."""
    heard = asked(True, *silent(FAULT_S + AGAIN_S), True)
    assert not heard.is_hung
    assert heard.silent_s == 0


def test_a_master_that_has_never_answered_is_given_the_time_to_start():
    """A machine may have much else to do."""
    assert not asked(*silent(SILENCE_LIMIT_S * 2)).is_hung
    assert asked(False, *silent(START_LIMIT_S)).is_hung


def test_one_answer_is_enough_to_begin_anew():
    """A refusal is an answer: without the store, or beside another leader, it lives."""
    heard = asked(True, *silent(25), True, *silent(25))
    assert not heard.is_hung


def test_the_next_process_has_a_clock_of_its_own():
    """Nothing of the one before is held against it."""
    heard = asked(True, *silent(29))
    after = asked(*silent(29), process="m#2", heard=heard, from_s=heard.polled_at_s + 1)
    assert not after.is_hung
    assert not after.has_answered


@pytest.mark.parametrize("gap_s", [LONGEST_POLL_GAP_S + 0.1, 3600.0])
def test_time_in_which_nobody_asked_is_not_silence(gap_s):
    """The run itself was stopped, or the machine slept: its masters are not killed for that."""
    heard = asked(True, *silent(20))
    heard = observe_answer(heard, "m#1", has_answered=False, now_s=heard.polled_at_s + gap_s)
    assert heard.silent_s == 0
    assert heard.has_answered
    assert not heard.is_hung


def test_pauses_begin_at_once_and_end_at_half_a_minute():
    """0, 1, 2, 4, ... 30 s."""
    assert [pause_s(n) for n in range(9)] == [0, 0, 1, 2, 4, 8, 16, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    assert pause_s(10_000) == LONGEST_PAUSE_S
