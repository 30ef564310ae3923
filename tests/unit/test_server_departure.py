"""When a server that was told to go ends: not before its buckets are elsewhere, unless that cannot come about."""

import math

import pytest

from trainer_sdk.pserver.departure import (
    APART_S,
    Apart,
    Departure,
    Heard,
    Interrupted,
    Let,
    Orphaned,
    Told,
    Turned,
    after,
    passed,
)

GRACE_S = 8.0
TOLD = Told(would_lose=True)


def story(*facts, grace_s=GRACE_S):
    """The state after these facts, one second apart."""
    state = Departure(grace_s=grace_s)
    for now_s, fact in enumerate(facts):
        state = after(passed(state, float(now_s)), fact, float(now_s))
    return state


def test_told_to_go_it_stays_until_its_grace_is_nearly_over():
    """Nobody takes its buckets: it ends then, and what it has is a loss."""
    state = story(Heard(), TOLD)
    assert state.is_leaving
    assert state.due_s == 1.0 + GRACE_S
    assert not passed(state, 1.0 + GRACE_S - 0.1).has_ended
    assert passed(state, 1.0 + GRACE_S).has_ended


@pytest.mark.parametrize(
    "last", [Let(), Told(would_lose=True), Interrupted(), Orphaned(), Turned(reason="another server has its place")]
)
def test_released_told_again_or_refused_it_ends_at_once(last):
    """Rule 49, and whoever loses patience."""
    state = story(Heard(), TOLD, last)
    assert state.has_ended
    assert not state.is_leaving
    assert state.refusal == (last.reason if isinstance(last, Turned) else "")


@pytest.mark.parametrize(
    ("facts", "grace_s"),
    [([TOLD], GRACE_S), ([Heard(), Apart(), TOLD], GRACE_S), ([Heard(), TOLD], 0.0)],
    ids=["never heard", "not heard now", "no grace"],
)
def test_where_nobody_could_take_its_buckets_it_ends_at_once(facts, grace_s):
    """Waiting would change nothing."""
    assert story(*facts, grace_s=grace_s).has_ended


def test_where_nothing_would_be_lost_it_ends_at_once():
    """A newcomer, or a server that was emptied (rule 49)."""
    assert story(Heard(), Told(would_lose=False)).has_ended


def test_a_broken_stream_is_waited_for_a_moment_and_no_longer():
    """A network that blinked must not cost a roll-back; without a master nobody moves anything."""
    state = story(Heard(), TOLD, Apart())
    assert state.due_s == 2.0 + APART_S
    assert after(state, Heard(), 2.1).due_s == 1.0 + GRACE_S
    assert passed(state, 2.0 + APART_S).has_ended


def test_a_server_that_was_not_told_to_go_outlives_its_master():
    """It keeps the model for the next one (M5), and ends when it is released."""
    state = story(Heard(), Apart())
    assert not state.has_ended
    assert state.due_s == math.inf
    assert story(Heard(), Let()).has_ended
