"""When a server that was told to go ends: not before its buckets are elsewhere, unless that cannot come about."""

import math

import pytest

from trainer_sdk.pserver.core.shutdown import (
    MASTER_WAIT_S,
    MasterJoined,
    MasterLost,
    ParentDied,
    RefusedByMaster,
    ReleasedByMaster,
    ShutdownState,
    SigintReceived,
    SigtermReceived,
    after_event,
    at_time,
)

GRACE_S = 8.0
TOLD = SigtermReceived()


def story(*facts, grace_s=GRACE_S, would_lose=True):
    """The state after these facts, one second apart."""
    state = ShutdownState(grace_s=grace_s)
    for now_s, fact in enumerate(facts):
        state = after_event(at_time(state, float(now_s)), fact, float(now_s), would_lose=would_lose)
    return state


def test_told_to_go_it_stays_until_its_grace_is_nearly_over():
    """Nobody takes its buckets: it ends then, and what it has is a loss."""
    state = story(MasterJoined(), TOLD)
    assert state.is_leaving
    assert state.due_s == 1.0 + GRACE_S
    assert not at_time(state, 1.0 + GRACE_S - 0.1).has_ended
    assert at_time(state, 1.0 + GRACE_S).has_ended


@pytest.mark.parametrize(
    "last",
    [ReleasedByMaster(), TOLD, SigintReceived(), ParentDied(), RefusedByMaster(reason="another server has its place")],
)
def test_released_told_again_or_refused_it_ends_at_once(last):
    """Rule 49, and whoever loses patience."""
    state = story(MasterJoined(), TOLD, last)
    assert state.has_ended
    assert not state.is_leaving
    assert state.refusal == (last.reason if isinstance(last, RefusedByMaster) else "")
    assert state.is_released == isinstance(last, ReleasedByMaster)


@pytest.mark.parametrize("facts", [[TOLD], [MasterJoined(), MasterLost(), TOLD], [MasterJoined(), TOLD, MasterLost()]])
def test_where_nothing_would_be_lost_no_master_is_waited_for(facts):
    """Never heard, not heard now, or not heard any more."""
    assert story(*facts, would_lose=False).has_ended


def test_without_a_grace_it_ends_at_once():
    assert story(MasterJoined(), TOLD, grace_s=0.0).has_ended


def test_where_nothing_would_be_lost_a_master_that_is_heard_is_asked_all_the_same():
    """Copies may be on their way here: the master knows, and releases it as soon as none is."""
    state = story(MasterJoined(), TOLD, would_lose=False)
    assert state.is_leaving
    assert after_event(state, ReleasedByMaster(), 2.0, would_lose=False).has_ended


@pytest.mark.parametrize(
    "facts",
    [
        [MasterJoined(), TOLD, MasterLost()],
        [MasterJoined(), MasterLost(), TOLD],
        [MasterJoined(), MasterLost(), MasterLost(), TOLD],
    ],
)
def test_a_master_that_is_away_is_waited_for_as_long_as_another_may_take(facts):
    """A leader dies or etcd elects: another one leads within the lease and 2 s, 8 s (M5)."""
    state = story(*facts, grace_s=60.0)
    told_s = len(facts) - 1.0
    assert not at_time(state, told_s + 10.0).has_ended
    again = after_event(state, MasterJoined(), told_s + 10.0, would_lose=True)
    assert again.due_s == facts.index(TOLD) + 60.0
    assert at_time(state, told_s + MASTER_WAIT_S).has_ended


def test_each_attempt_that_fails_does_not_begin_the_wait_anew():
    state = story(MasterJoined(), TOLD, MasterLost(), MasterLost(), MasterLost(), grace_s=60.0)
    assert state.due_s == 2.0 + MASTER_WAIT_S


def test_the_grace_ends_the_wait_for_a_master():
    assert story(MasterJoined(), MasterLost(), TOLD, grace_s=5.0).due_s == 2.0 + 5.0


def test_a_server_that_was_not_told_to_go_outlives_its_master():
    """It keeps the model for the next one (M5), and ends when it is released."""
    state = story(MasterJoined(), MasterLost())
    assert not state.has_ended
    assert state.due_s == math.inf
    assert story(MasterJoined(), ReleasedByMaster()).has_ended
