"""Planned generations at a group member: connected beside the training, entered by a switch (rules 76 to 83)."""

from dataclasses import replace

from master.api.messages.generations import (
    BrokenGeneration,
    LeaveRequest,
    LeftGeneration,
    NewGeneration,
)
from master.api.messages.to_members import Released
from tests.unit.trainer_sdk.group.group_world import fresh, record_of
from tests.unit.trainer_sdk.group.member_cases import (
    COPY_WANTED,
    complete,
    entry,
    feed,
    prepared,
    reports,
    sid,
    synced,
    word,
)
from trainer_sdk.group.core.member_events import (
    AbortGroup,
    CloseGroup,
    ConnectGroup,
    DrainAsked,
    FinishScript,
    GiveStep,
    GroupConnected,
    GroupFailed,
    ReportRequested,
    StatesGathered,
    StepApplied,
    StepReduced,
    StreamOpened,
    WordsGathered,
)
from trainer_sdk.group.core.member_state import MemberPhase
from trainer_sdk.group.core.script_work import next_work
from trainer_sdk.group.core.transitions import give
from trainer_sdk.group.port import GroupFinish
from trainer_sdk.protocol.trainer_events import FinishReason


def test_broken_of_a_plan_leaves_the_generation_that_it_is_planned_from():
    """Rule 74: everything up to that number, and the promise is the largest."""
    state, _ = feed(synced(), NewGeneration(record=record_of(2, 0, 1, 2, planned_from=1)))
    state, effects = feed(state, BrokenGeneration(number=2))
    assert {effect.number for effect in effects if isinstance(effect, AbortGroup)} == {1, 2}
    assert (state.phase, state.left) == (MemberPhase.OUT, 2)


def test_broken_of_an_older_generation_is_late():
    """Rule 74: h < g."""
    state = synced(number=4)
    assert feed(state, BrokenGeneration(number=3)) == (state, ())


def test_break_while_a_step_is_applied_waits_for_it():
    """Rules 66, 73: the report names a whole replica, the one after the update."""
    state = synced()
    done = complete(state, word(state))
    told, effects = feed(done, BrokenGeneration(number=1))
    assert effects == (AbortGroup(number=1),)
    after, effects = feed(told, StepApplied())
    assert reports(effects) == [LeftGeneration(left=1, state=sid(1, 1))]
    assert after.phase is MemberPhase.OUT


def test_late_or_repeated_record_does_no_harm():
    """Rule 77: entered once, if number > left and listed."""
    state = synced(number=3)
    for record in (record_of(3, 0, 1), record_of(2, 0), record_of(1, 0, 1)):
        assert feed(state, NewGeneration(record=record)) == (state, ())


def test_member_that_a_newer_record_lists_goes_there():
    """Rules 74, 92: in neither record nor `from`, a member leaves, and enters what lists it."""
    state, effects = feed(synced(), NewGeneration(record=record_of(5, 0, 2)))
    assert (state.phase, state.number, state.left) == (MemberPhase.SYNC, 5, 1)
    assert reports(effects) == [LeftGeneration(left=1, state=sid(0, 0))]
    unlisted, _ = feed(synced(), NewGeneration(record=record_of(5, 2, 3)))
    assert (unlisted.phase, unlisted.left) == (MemberPhase.OUT, 5)


def test_group_trains_on_while_a_plan_is_connected():
    """Rule 79."""
    state, effects = feed(synced(), NewGeneration(record=record_of(2, 0, 1, 2, planned_from=1)))
    assert effects == (ConnectGroup(record=record_of(2, 0, 1, 2, planned_from=1)),)
    assert isinstance(next_work(state), GiveStep)
    _, (contributed,) = feed(give(state), StepReduced())
    assert contributed.word.prepared == 0
    _, (contributed,) = feed(give(state), GroupConnected(number=2), StepReduced())
    assert contributed.word.prepared == 2


def test_plan_that_could_not_be_connected_is_reported_until_there_is_another():
    """Rule 83: the group trains on; the master hears of it, since one member's second attempt would meet nobody."""
    plan, newer = record_of(2, 0, 1, 2, planned_from=1), record_of(3, 0, 1, 2, planned_from=1)
    state, effects = feed(replace(synced(), is_registered=True), NewGeneration(record=plan), GroupFailed(number=2))
    assert effects == (AbortGroup(number=2),)
    assert state.phase is MemberPhase.BOUNDARY
    for _ in range(2):
        (said,) = reports(feed(state, ReportRequested())[1])
        assert (said.generation, said.failed_plan) == (1, 2)
    state, effects = feed(state, NewGeneration(record=newer))
    assert ConnectGroup(record=newer) in effects
    (said,) = reports(feed(state, ReportRequested())[1])
    assert said.failed_plan == 0


def test_old_member_that_failed_does_not_fall_forward_into_the_plan():
    """Rule 80: it reports; entering alone would fork the history."""
    plan = record_of(2, 0, 1, 2, planned_from=1)
    state, _ = feed(synced(), NewGeneration(record=plan), GroupConnected(number=2), GroupFailed(number=1))
    assert state.phase is MemberPhase.OUT
    assert feed(state, NewGeneration(record=plan))[0].phase is MemberPhase.OUT
    joined, _ = feed(fresh(2), NewGeneration(record=plan))
    assert joined.phase is MemberPhase.SYNC


def test_switch_needs_the_same_plan_prepared_at_all():
    """Rule 81: min and max; one member that is not ready keeps all in the old generation."""
    plan = record_of(2, 0, 1, 2, planned_from=1)
    state = prepared(plan)
    stays, _ = feed(complete(state, word(state)), StepApplied())
    assert (stays.number, stays.phase) == (1, MemberPhase.BOUNDARY)
    mixed, _ = feed(complete(state, word(state, prepared=3)), StepApplied())
    assert mixed.number == 1
    goes, _ = feed(complete(state, word(state, prepared=2)), StepApplied())
    assert (goes.number, goes.phase, goes.state) == (2, MemberPhase.SYNC, sid(1, 1))


def test_plan_that_was_promised_keeps_its_connections_until_the_step_ends():
    """Rule 81: a newer plan heard after the word does not take the promise back."""
    plan, newer = record_of(2, 0, 1, 2, planned_from=1), record_of(3, 0, 1, 3, planned_from=1)
    state, _ = feed(give(prepared(plan)), StepReduced())
    state, effects = feed(state, NewGeneration(record=newer))
    assert AbortGroup(number=2) not in effects
    words = (word(state, prepared=2), word(state, prepared=2))
    switched, effects = feed(state, WordsGathered(number=1, words=words), StepApplied())
    assert switched.number == 2
    assert effects == (AbortGroup(number=3),)
    unequal, effects = feed(state, WordsGathered(number=1, words=(words[0], word(state))), StepApplied())
    assert unequal.number == 1
    assert effects == (AbortGroup(number=2),)


def test_old_connections_are_closed_once_the_new_sync_has_its_list():
    """Rule 82: the list shows that the step of the switch is complete at every member."""
    plan = record_of(2, 0, 1, planned_from=1)
    state = prepared(plan)
    state, effects = feed(complete(state, word(state, prepared=2)), StepApplied())
    assert effects == ()
    entries = (entry(plan, sid(1, 1)), entry(plan, sid(1, 1)))
    _, effects = feed(state, StatesGathered(number=2, entries=entries))
    assert effects == (CloseGroup(number=1),)


def test_leaver_goes_with_the_switch_after_its_copy():
    """Rule 83: a drained member trains up to the switch; an unfinished copy of it is still written and answered."""
    state, effects = feed(synced(), StreamOpened(), DrainAsked(grace_s=20, reason="SIGTERM"))
    assert reports(effects) == [LeaveRequest(grace_s=20, reason="SIGTERM")]
    state, _ = feed(state, NewGeneration(record=record_of(2, 1, planned_from=1)))
    state, _ = feed(complete(state, word(state, prepared=2)), COPY_WANTED, StepApplied())
    assert state.phase is MemberPhase.GONE
    assert next_work(state) == FinishScript(finish=GroupFinish(reason=FinishReason.DRAINED))
    assert next_work(feed(synced(), Released())[0]) == next_work(state)
