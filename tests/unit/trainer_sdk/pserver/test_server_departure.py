"""When a server that was told to go ends: not before its buckets are elsewhere, unless that cannot come about."""

import math

import pytest

from trainer_sdk.pserver.core.shutdown import (
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
TOLD = Told()


def story(*facts, grace_s=GRACE_S, would_lose=True):
    """The state after these facts, one second apart."""
    state = Departure(grace_s=grace_s)
    for now_s, fact in enumerate(facts):
        state = after(passed(state, float(now_s)), fact, float(now_s), would_lose=would_lose)
    return state


def test_told_to_go_it_stays_until_its_grace_is_nearly_over():
    """Nobody takes its buckets: it ends then, and what it has is a loss."""
    state = story(Heard(), TOLD)
    assert state.is_leaving
    assert state.due_s == 1.0 + GRACE_S
    assert not passed(state, 1.0 + GRACE_S - 0.1).has_ended
    assert passed(state, 1.0 + GRACE_S).has_ended


@pytest.mark.parametrize(
    "last", [Let(), TOLD, Interrupted(), Orphaned(), Turned(reason="another server has its place")]
)
def test_released_told_again_or_refused_it_ends_at_once(last):
    """Rule 49, and whoever loses patience."""
    state = story(Heard(), TOLD, last)
    assert state.has_ended
    assert not state.is_leaving
    assert state.refusal == (last.reason if isinstance(last, Turned) else "")
    assert state.is_released == isinstance(last, Let)


@pytest.mark.parametrize("facts", [[TOLD], [Heard(), Apart(), TOLD], [Heard(), TOLD, Apart()]])
def test_where_nothing_would_be_lost_no_master_is_waited_for(facts):
    """Never heard, not heard now, or not heard any more."""
    assert story(*facts, would_lose=False).has_ended


def test_without_a_grace_it_ends_at_once():
    assert story(Heard(), TOLD, grace_s=0.0).has_ended


def test_where_nothing_would_be_lost_a_master_that_is_heard_is_asked_all_the_same():
    """Copies may be on their way here: the master knows, and releases it as soon as none is."""
    state = story(Heard(), TOLD, would_lose=False)
    assert state.is_leaving
    assert after(state, Let(), 2.0, would_lose=False).has_ended


@pytest.mark.parametrize(
    "facts", [[Heard(), TOLD, Apart()], [Heard(), Apart(), TOLD], [Heard(), Apart(), Apart(), TOLD]]
)
def test_a_master_that_is_away_is_waited_for_as_long_as_another_may_take(facts):
    """A leader dies or etcd elects: another one leads within the lease and 2 s, 8 s (M5)."""
    state = story(*facts, grace_s=60.0)
    told_s = len(facts) - 1.0
    assert not passed(state, told_s + 10.0).has_ended
    again = after(state, Heard(), told_s + 10.0, would_lose=True)
    assert again.due_s == facts.index(TOLD) + 60.0
    assert passed(state, told_s + APART_S).has_ended


def test_each_attempt_that_fails_does_not_begin_the_wait_anew():
    state = story(Heard(), TOLD, Apart(), Apart(), Apart(), grace_s=60.0)
    assert state.due_s == 2.0 + APART_S


def test_the_grace_ends_the_wait_for_a_master():
    assert story(Heard(), Apart(), TOLD, grace_s=5.0).due_s == 2.0 + 5.0


def test_a_server_that_was_not_told_to_go_outlives_its_master():
    """It keeps the model for the next one (M5), and ends when it is released."""
    state = story(Heard(), Apart())
    assert not state.has_ended
    assert state.due_s == math.inf
    assert story(Heard(), Let()).has_ended
