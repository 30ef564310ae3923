"""Steps of a group member: shares, words, samples, aborts and breaks (rules 63 to 69)."""

from dataclasses import replace

import pytest

from master.api.group_shares import step_positions
from master.api.identities import DatasetSpec
from master.api.messages.from_members import Failed
from master.api.messages.generations import (
    BrokenGeneration,
    GroupPhase,
    LeftGeneration,
    NewGeneration,
)
from master.api.positions import EMPTY, PositionSet
from tests.unit.trainer_sdk.group.group_world import fresh, record_of
from tests.unit.trainer_sdk.group.member_cases import complete, entry, feed, reported_phase, reports, sid, synced, word
from trainer_sdk.group.core.member_events import (
    AbortGroup,
    ContributeWord,
    GiveStep,
    GroupConnected,
    GroupFailed,
    ReportRequested,
    ScriptRaised,
    StatesGathered,
    StepApplied,
    StepReduced,
    WordsGathered,
)
from trainer_sdk.group.core.member_state import MemberPhase, changed
from trainer_sdk.group.core.script_work import next_work
from trainer_sdk.group.core.steps import share_of
from trainer_sdk.group.core.transitions import give


def test_share_is_a_function_of_record_and_step_whatever_was_heard_since():
    """Rule 63: a newer record changes no share of the generation that goes on."""
    state = synced()
    before = next_work(state)
    planned, _ = feed(state, NewGeneration(record=record_of(2, 0, 1, 2, planned_from=1)))
    assert isinstance(before, GiveStep)
    assert before == next_work(planned)


@pytest.mark.parametrize("wrong", [{"step": 5}, {"generation": 9}, {"layout": "another"}])
def test_word_of_another_step_aborts_the_group(wrong):
    """Rule 67: unequal generations, steps or layouts are no sum of one step."""
    state = synced()
    other = replace(word(state), **wrong)
    state = complete(state, other)
    assert (state.phase, state.left, state.state) == (MemberPhase.OUT, 1, sid(0, 0))


def test_step_needs_the_words_of_all_members():
    """Rule 67: a collective that shrank to those still there is no step."""
    assert complete(synced()).phase is MemberPhase.OUT


def test_step_counts_only_once_it_is_applied():
    """Rule 68: complete is not applied; the id follows the update."""
    state = synced()
    done = complete(state, word(state))
    assert (done.phase, done.state) == (MemberPhase.COMPLETE, sid(0, 0))
    assert feed(done, StepApplied())[0].state == sid(1, 1)


def test_end_of_a_step_after_an_abort_is_dropped():
    """Rule 69: who fails stays at s - 1, and its late collective changes nothing."""
    state, _ = feed(give(synced()), StepReduced())
    out, _ = feed(state, BrokenGeneration(number=1))
    late, effects = feed(out, WordsGathered(number=1, words=(word(state), word(state))), StepApplied())
    assert (late, effects) == (out, ())
    assert feed(out, StepReduced())[1] == ()


def test_failed_collective_is_reported_as_a_promise():
    """Rule 73: abort, drop the step, keep the replica, and say so; the number is never entered again."""
    state, effects = feed(give(synced()), GroupFailed(number=1))
    assert effects[0] == AbortGroup(number=1)
    assert reports(effects) == [LeftGeneration(left=1, state=sid(0, 0))]
    assert feed(state, NewGeneration(record=record_of(1, 0, 1)))[0] == state


def test_step_of_a_member_alone_is_complete_before_it_is_computed_and_outlives_a_break():
    """Rules 67, 68: nobody else contributes, so a break while the script computes takes nothing from its model."""
    state = synced(members=(0,))
    begun = complete(state)
    assert [reported_phase(begun, is_in_step=is_in) for is_in in (True, False)] == [
        GroupPhase.COMPUTE,
        GroupPhase.SCRIPT,
    ]
    broken, _ = feed(begun, BrokenGeneration(number=1))
    after, effects = feed(broken, StepApplied())
    assert reports(effects) == [LeftGeneration(left=1, state=sid(1, 1))]
    assert after.step == 1


def test_script_that_raises_names_the_records_of_the_step_in_hand():
    """M4: also of a step that was complete before it was computed, and none once it has ended."""
    alone = complete(synced(members=(0,)))
    mine = share_of(give(synced(members=(0,)))).positions
    for state, is_in_step, positions in ((alone, True, mine), (alone, False, EMPTY), (synced(), True, EMPTY)):
        (failed,) = reports(feed(state, ScriptRaised(message="no", is_in_step=is_in_step))[1])
        assert failed == Failed(positions=positions, message="no")
    (failed,) = reports(feed(give(synced()), ScriptRaised(message="no", is_in_step=True, is_misuse=True))[1])
    assert failed.positions == EMPTY, "whatever the records were"


def test_members_that_have_read_other_data_at_one_position_are_named():
    """Rule 63: the first difference is told with each report, and stops nobody."""
    state = give(synced(members=(0, 1, 2)))
    for samples, told in (
        (("4 aa", "4 aa", ""), ""),
        (("4 aa", "", "4 bb"), "trainer-0 and trainer-2 have read other data at position 4"),
        (("4 aa", "5 bb", ""), ""),
    ):
        own, (contributed,) = feed(state, StepReduced(sample=samples[0]))
        words = tuple(replace(contributed.word, sample=sample) for sample in samples)
        done, _ = feed(own, WordsGathered(number=1, words=words))
        assert done.phase is MemberPhase.COMPLETE
        (report,) = reports(feed(replace(done, is_registered=True), ReportRequested())[1])
        assert told in report.data_problem
        assert bool(told) == bool(report.data_problem)


@pytest.mark.parametrize(
    ("step", "made_in", "members", "is_due"),
    [
        (0, 0, (0, 1), False),
        (1, 1, (0, 1), True),
        (2, 1, (0, 1), False),
        (2, 0, (0, 1), True),
        (2, 0, (0,), False),
    ],
)
def test_sample_is_a_record_that_is_trained_already(step, made_in, members, is_due):
    """Rule 63: of the step before, in a generation's first step and an epoch's second, where there are others."""
    epoch = DatasetSpec(name="samples", size=40, epochs=1, batch_size=4)
    state = replace(synced(members=members), dataset=epoch, state=sid(made_in, step))
    assert share_of(state).sample == (step_positions(epoch, step - 1).first(1) if is_due else EMPTY)
    if is_due:
        skipping = replace(state, record=replace(state.record, quarantine=step_positions(epoch, step - 1)))
        assert not share_of(skipping).sample


def test_quarantine_is_skipped_and_marked_as_the_step_completes():
    """Rule 94."""
    record = record_of(1, 0, quarantine=PositionSet.of(1))
    state, _ = feed(fresh(0), NewGeneration(record=record), GroupConnected(number=1))
    state, _ = feed(state, StatesGathered(number=1, entries=(entry(record, None, is_fresh=True),)))
    share = next_work(state).share
    assert (share.positions, share.records) == (PositionSet.of(0, 2), 2)
    state, _ = feed(complete(state), StepApplied())
    assert state.skipped == PositionSet.of(1)


def test_contribution_without_a_given_step_is_ignored():
    """The flag collective is entered for a step that the script was given in this generation."""
    state = synced()
    assert feed(state, StepReduced()) == (state, ())
    assert any(isinstance(effect, ContributeWord) for effect in feed(give(state), StepReduced())[1])


def test_changed_state_is_that_of_replace_and_leaves_the_old_one():
    """The quick form of what every step does: equal, of equal hash, and no field that a state lacks."""
    state = synced()

    after = changed(state, is_step_given=True, newest_given=4)

    assert after == replace(state, is_step_given=True, newest_given=4)
    assert hash(after) == hash(replace(state, is_step_given=True, newest_given=4))
    assert not state.is_step_given
    with pytest.raises(AssertionError, match="no fields of a member's state"):
        changed(state, step=3)
