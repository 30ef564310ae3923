"""The member's core, rule by rule (protocol of collective jobs, rules 63 to 96)."""

from dataclasses import replace

import pytest

from master.api.group_shares import step_positions
from master.api.identities import DatasetSpec, Incarnation, Lineage, ManifestId
from master.api.messages.checkpoint_files import FileRecord
from master.api.messages.from_members import Declare, Failed
from master.api.messages.generations import (
    BrokenGeneration,
    CopyFailed,
    GroupEnded,
    GroupPhase,
    HeadState,
    LeaveRequest,
    LeftGeneration,
    NewGeneration,
    OfferState,
    RegisterReplica,
    ReplicaRegistered,
    StateId,
)
from master.api.messages.to_members import OfferAnswered, Released
from master.api.positions import EMPTY, PositionSet
from tests.unit.trainer_sdk.group.group_world import DATASET, LINEAGE, fresh, record_of
from trainer_sdk.errors import WireError
from trainer_sdk.group.core.control_words import (
    CANNOT_COPY,
    StepWord,
    SyncEntry,
    decode_entry,
    decode_word,
    encode_entry,
    encode_word,
    layout_digest,
    record_digest,
)
from trainer_sdk.group.core.member_events import (
    AbortGroup,
    Await,
    CloseGroup,
    ConnectGroup,
    ContributeWord,
    CopyDue,
    CopyNow,
    CopyTaken,
    CopyWritten,
    DrainAsked,
    FinishScript,
    GatherStates,
    GiveStep,
    GroupConnected,
    GroupFailed,
    LoadHead,
    ReceiveState,
    RefuseScript,
    ReportRequested,
    ScriptRaised,
    SendState,
    StatesGathered,
    StateTaken,
    StepApplied,
    StepReduced,
    StopAsked,
    StreamOpened,
    TakeCopy,
    TellMaster,
    WordsGathered,
)
from trainer_sdk.group.core.member_state import MemberPhase, changed, check_member
from trainer_sdk.group.core.script_work import next_work
from trainer_sdk.group.core.steps import share_of
from trainer_sdk.group.core.sync import choose_transfer
from trainer_sdk.group.core.transitions import give, handle_member
from trainer_sdk.group.port import GroupFinish
from trainer_sdk.protocol.trainer_events import FinishReason


def feed(state, *events):
    """The state after these events, and the effects of the last."""
    effects = ()
    for event in events:
        state, effects = (step := handle_member(state, event)).state, step.effects
        check_member(state)
    return state, effects


def reports(effects):
    return [e.message for e in effects if isinstance(e, TellMaster)]


def sid(generation, step):
    return StateId(lineage=LINEAGE, generation=generation, step=step)


def entry(record, state, **kw):
    return SyncEntry(digest=record_digest(record, "layout"), state=state, **kw)


def synced(*, members=(0, 1), number=1, me=0, step=0, **kw):
    """Member `me` at the boundary of this step, in this generation."""
    record = record_of(number, *members)
    state = replace(fresh(me), state=sid(number - 1, step), is_fresh=False, **kw)
    entries = tuple(entry(record, sid(number - 1, step)) for _ in members)
    state, _ = feed(
        state,
        NewGeneration(record=record),
        GroupConnected(number=number),
        StatesGathered(number=number, entries=entries),
    )
    assert state.phase is MemberPhase.BOUNDARY
    return state


def word(state, **kw):
    return StepWord(generation=state.number, step=state.step, layout=layout_digest("layout"), **kw)


def complete(state, *others):
    """The state with its step complete, its own word first."""
    state, effects = feed(give(state), StepReduced())
    (contributed,) = effects
    return feed(state, WordsGathered(number=state.number, words=(contributed.word, *others)))[0]


def test_share_is_a_function_of_record_and_step_whatever_was_heard_since():
    """Rule 63: a newer record changes no share of the generation that goes on."""
    state = synced()
    before = next_work(state)
    planned, _ = feed(state, NewGeneration(record=record_of(2, 0, 1, 2, planned_from=1)))
    assert isinstance(before, GiveStep)
    assert before == next_work(planned)


def test_record_with_another_process_of_this_name_is_not_entered():
    """Rule 64: a new process stands in no old record."""
    restarted = replace(fresh(0), incarnation=Incarnation("new"))
    state, effects = feed(restarted, NewGeneration(record=record_of(1, 0, 1)))
    assert state.phase is MemberPhase.OUT
    assert effects == ()


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


def test_source_is_the_largest_id_generation_first():
    """Rule 70: generation before step, a live replica before the head, then the lowest rank."""
    record = record_of(5, 0, 1, 2, head=HeadState(state=sid(3, 4), manifest=ManifestId("m")))
    older, newer = entry(record, sid(3, 6)), entry(record, sid(4, 5))
    assert choose_transfer(record, (older, newer, newer), 0).source == 1
    assert choose_transfer(record, (older, newer, newer), 1).receivers == (0,)
    assert choose_transfer(record, (older, newer, newer), 2).receivers == ()
    behind = (entry(record, sid(2, 9)), entry(record, None), entry(record, None))
    assert all(choose_transfer(record, behind, rank).is_from_head for rank in range(3))
    tied = (entry(record, sid(3, 4)), entry(record, None), entry(record, None))
    assert choose_transfer(record, tied, 0).receivers == (1, 2)


def test_many_receivers_are_shared_by_all_who_hold_the_state():
    """Rule 71: any member with that id may send."""
    record = record_of(2, *range(6))
    entries = (*(entry(record, sid(1, 3)) for _ in range(2)), *(entry(record, None) for _ in range(4)))
    assert choose_transfer(record, entries, 0).receivers == (2, 4)
    assert choose_transfer(record, entries, 1).receivers == (3, 5)
    assert [choose_transfer(record, entries, rank).source for rank in range(2, 6)] == [0, 1, 0, 1]


def test_first_state_is_one_members_and_named_by_its_generation():
    """Rules 65, 70: two processes may make the first state differently, so its id names who chose it."""
    record = record_of(7, 0, 1, 2)
    entries = (entry(record, None), entry(record, None, is_fresh=True), entry(record, None, is_fresh=True))
    sender, receiver = choose_transfer(record, entries, 1), choose_transfer(record, entries, 2)
    assert sender.state == receiver.state == sid(7, 0)
    assert (sender.receivers, receiver.source) == ((0, 2), 1)


def test_first_state_that_nobody_holds_is_refused():
    """A replica that has trained cannot become the first state again: the processes start again."""
    state = replace(synced(), phase=MemberPhase.SYNC, has_synced=False, state=None)
    entries = (entry(state.record, None),) * 2
    state, effects = feed(state, StatesGathered(number=1, entries=entries))
    assert any(isinstance(effect, RefuseScript) for effect in effects)
    assert state.phase is MemberPhase.OUT


def test_other_digest_aborts_the_sync():
    """Rule 70: members that mean different records or layouts do not start."""
    record = record_of(1, 0, 1)
    state, _ = feed(fresh(0), NewGeneration(record=record), GroupConnected(number=1))
    assert isinstance(next_work(state), GatherStates)
    wrong = SyncEntry(digest="other", state=None, is_fresh=True)
    state, _ = feed(state, StatesGathered(number=1, entries=(entry(record, None, is_fresh=True), wrong)))
    assert (state.phase, state.left) == (MemberPhase.OUT, 1)


def receiving(me=1):
    record = record_of(3, 0, 1)
    own = replace(fresh(me), state=sid(1, 2), is_fresh=False)
    entries = (entry(record, sid(2, 2), skipped=PositionSet.of(1)), entry(record, sid(1, 2)))
    return feed(own, NewGeneration(record=record), GroupConnected(number=3), StatesGathered(number=3, entries=entries))[
        0
    ]


def test_equal_step_of_another_generation_is_received():
    """Rule 71: the same step is not the same state."""
    state = receiving()
    assert next_work(state) == ReceiveState(number=3, source=0, state=sid(2, 2), skipped=PositionSet.of(1))
    kept = receiving(me=0)
    assert next_work(kept) == SendState(number=3, to=(1,))


def test_failed_transfer_leaves_what_was_there():
    """Rule 71: until the swap a member keeps what it had."""
    state, effects = feed(receiving(), GroupFailed(number=3))
    assert state.state == sid(1, 2)
    assert reports(effects) == [LeftGeneration(left=3, state=sid(1, 2))]


def test_swap_that_ends_after_an_abort_still_counts():
    """The replica is what it is: the swap was whole though the group had broken meanwhile."""
    state, _ = feed(receiving(), BrokenGeneration(number=3))
    state, _ = feed(state, StateTaken(number=3, state=sid(2, 2), skipped=PositionSet.of(1)))
    assert (state.phase, state.state, state.skipped) == (MemberPhase.OUT, sid(2, 2), PositionSet.of(1))


def test_nothing_is_contributed_before_the_own_sync_is_over():
    """Rule 72."""
    state = receiving()
    assert feed(state, StepReduced()) == (state, ())


def test_failed_collective_is_reported_as_a_promise():
    """Rule 73: abort, drop the step, keep the replica, and say so; the number is never entered again."""
    state, effects = feed(give(synced()), GroupFailed(number=1))
    assert effects[0] == AbortGroup(number=1)
    assert reports(effects) == [LeftGeneration(left=1, state=sid(0, 0))]
    assert feed(state, NewGeneration(record=record_of(1, 0, 1)))[0] == state


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


def test_step_of_a_member_alone_is_complete_before_it_is_computed_and_outlives_a_break():
    """Rules 67, 68: nobody else contributes, so a break while the script computes takes nothing from its model."""
    state = synced(members=(0,))
    begun = complete(state)
    assert [phase(begun, is_in_step=is_in) for is_in in (True, False)] == [GroupPhase.COMPUTE, GroupPhase.SCRIPT]
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


def phase(state, **said):
    (report,) = reports(feed(replace(state, is_registered=True), ReportRequested(**said))[1])
    return report.phase


def test_member_computes_in_a_step_alone_and_is_in_its_script_else():
    """Rule 74: the master suspects a member that holds up a step, and none that evaluates between two."""
    given = give(synced())
    applying = complete(given, word(given))
    entered, _ = feed(fresh(0), NewGeneration(record=record_of(1, 0, 1)), GroupConnected(number=1))
    assert [phase(state) for state in (given, applying)] == [GroupPhase.COMPUTE, GroupPhase.SCRIPT]
    assert [phase(state, is_loading=True) for state in (given, applying)] == [GroupPhase.LOAD, GroupPhase.SCRIPT]
    assert [phase(state, is_reducing=True) for state in (given, applying)] == [GroupPhase.REDUCE, GroupPhase.REDUCE]
    assert [phase(entered, is_in_script=here) for here in (False, True)] == [GroupPhase.SYNC, GroupPhase.SCRIPT]


def test_member_of_no_generation_says_whether_its_script_asks_for_a_step():
    """Rule 75: a process answers BROKEN whatever its script does, and is ready once the script asks."""
    left, _ = feed(give(synced()), BrokenGeneration(number=1))
    assert [phase(left, is_in_script=here) for here in (True, False)] == [GroupPhase.UNREADY, GroupPhase.OUT]


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


def prepared(plan):
    return feed(synced(), NewGeneration(record=plan), GroupConnected(number=plan.number))[0]


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
    state, _ = feed(complete(state, word(state, prepared=2)), CopyDue(), StepApplied())
    assert state.phase is MemberPhase.GONE
    assert next_work(state) == FinishScript(finish=GroupFinish(reason=FinishReason.DRAINED))
    assert next_work(feed(synced(), Released())[0]) == next_work(state)


def file_of(name="copy"):
    return FileRecord(name=name, size_bytes=1, digest="d", lineage=LINEAGE, marks=())


def with_copy(*, written=True):
    state = synced(step=2, is_registered=True)
    state, _ = feed(state, CopyNow())
    work = next_work(state)
    assert work == TakeCopy(number=1, stamp=1, state=sid(0, 2), skipped=EMPTY)
    state, effects = feed(state, CopyTaken(work=work), *([CopyWritten(number=1, file=file_of())] if written else []))
    return state, effects


def test_copy_is_offered_with_its_stamp_until_it_is_answered():
    """Rules 84, 85, 87: again after each broken stream."""
    state, effects = with_copy()
    (offered,) = reports(effects)
    assert (offered.stamp, offered.state, offered.offer) == (1, sid(0, 2), 1)
    registered = ReplicaRegistered(term=2, lineage=LINEAGE, dataset=DATASET, report_every_s=1)
    assert reports(feed(state, registered)[1]) == [offered]
    done, _ = feed(state, OfferAnswered(offer=1, manifest=ManifestId("m")))
    assert (done.copy, done.committed) == (None, (2, False))
    assert feed(done, registered)[1] == ()


def test_sync_restamps_the_copy_of_who_keeps_its_state():
    """Rule 86: an ancestor of the group's state gets the new stamp, under a new offer; the old answer is late."""
    state, _ = with_copy()
    state, _ = feed(state, BrokenGeneration(number=1))
    record = record_of(2, 0, 1)
    kept = (entry(record, sid(0, 2)), entry(record, sid(0, 2)))
    state, _ = feed(state, NewGeneration(record=record), GroupConnected(number=2))
    again, effects = feed(state, StatesGathered(number=2, entries=kept))
    (offered,) = [message for message in reports(effects) if isinstance(message, OfferState)]
    assert (offered.stamp, offered.offer) == (2, 2)
    assert feed(again, OfferAnswered(offer=1, manifest=None))[0].copy is not None
    other = (entry(record, sid(0, 2)), entry(record, sid(1, 3)))
    assert feed(state, StatesGathered(number=2, entries=other))[0].copy is None


def said_of_copy(state, *, replica_bytes=0):
    """What this member's next word says of a copy."""
    (contribution,) = handle_member(give(state), StepReduced(replica_bytes=replica_bytes)).effects
    return contribution.word.copy_shards


def test_wish_of_any_rank_makes_the_first_one_copy_a_small_replica():
    """Rule 84: the step's word carries the wish."""
    for me in (0, 1):
        state = synced(me=me)
        said = [word(state), word(state)]
        said[1 - me] = word(state, copy_shards=1)
        done, _ = feed(give(state), StepReduced(), WordsGathered(number=1, words=tuple(said)), StepApplied())
        assert isinstance(next_work(done), TakeCopy) == (me == 0)
    assert said_of_copy(feed(synced(me=1), CopyDue())[0]) == 1
    assert said_of_copy(synced(me=1)) == 0


@pytest.mark.parametrize(("megabytes", "shards"), [(0, 1), (15, 1), (16, 2), (1000, 2)])
def test_large_replica_is_wished_in_shards(megabytes, shards):
    """Rule 84: one writer below 16 MiB, and no more of them than members."""
    state, _ = feed(synced(), CopyDue())
    assert said_of_copy(state, replica_bytes=megabytes << 20) == shards


def sharded(me=0, words=(2, 0)):
    """A member after a step whose words said this of a copy."""
    state = synced(me=me, is_registered=True)
    said = tuple(word(state, copy_shards=one) for one in words)
    return feed(give(state), StepReduced(), WordsGathered(number=1, words=said), StepApplied())[0]


def test_all_members_copy_their_shards_after_the_same_step():
    """Rule 84: who wishes, and who does not."""
    for me in (0, 1):
        work = next_work(sharded(me))
        assert (work.shard, work.shards, work.state.step) == (me, 2, 1)
        assert [name.split("-")[1] for name in work.writers] == ["0", "1"]


def test_nobody_copies_while_one_still_writes():
    """Rule 84: the wish stays until all can."""
    state, _ = with_copy(written=False)
    assert said_of_copy(state) == CANNOT_COPY
    assert isinstance(next_work(sharded(words=(2, CANNOT_COPY))), GiveStep)
    wishing, _ = feed(synced(), CopyDue())
    said = (word(wishing, copy_shards=2), word(wishing, copy_shards=CANNOT_COPY))
    wishing, _ = feed(give(wishing), StepReduced(), WordsGathered(number=1, words=said), StepApplied())
    assert said_of_copy(wishing) == 1


def test_shard_that_could_not_be_written_is_told():
    """Rule 88: the master gives the others up."""
    state = sharded(1)
    state, effects = feed(
        state, CopyTaken(work=next_work(state)), CopyWritten(number=1, file=None, problem="the disk is full")
    )
    assert reports(effects) == [CopyFailed(state=sid(1, 1), shards=2, reason="the disk is full")]
    assert state.copy is None


def with_shard(me=0):
    state = sharded(me)
    return feed(state, CopyTaken(work=next_work(state)), CopyWritten(number=1, file=file_of()))[0]


def test_shard_is_dropped_where_a_writer_is_not_there():
    """Rules 86, 88: kept in a generation of the same writers, and in one that is planned from its own."""
    for members, planned_from, is_kept in (((0, 1), 0, True), ((0, 2), 0, False), ((0, 2), 1, True)):
        state = with_shard()
        record = record_of(2, *members, planned_from=planned_from)
        if planned_from:
            state, _ = feed(state, NewGeneration(record=record), GroupConnected(number=2))
            said = tuple(word(state, prepared=2) for _ in range(2))
            state, _ = feed(give(state), StepReduced(), WordsGathered(number=1, words=said), StepApplied())
        else:
            state, _ = feed(state, BrokenGeneration(number=1), NewGeneration(record=record), GroupConnected(number=2))
        same = tuple(entry(record, state.state) for _ in range(2))
        state, _ = feed(state, StatesGathered(number=2, entries=same))
        assert (state.copy is not None) == is_kept
        assert state.copy is None or state.copy.stamp == 2


def test_copy_does_not_follow_a_step_of_the_switch():
    """Rule 84: others hold the replica after it; the wish stays."""
    state, _ = feed(prepared(record_of(2, 0, 1, 2, planned_from=1)), CopyDue())
    said = tuple(word(state, prepared=2, copy_shards=2) for _ in range(2))
    state, _ = feed(give(state), StepReduced(), WordsGathered(number=1, words=said), StepApplied())
    assert (state.number, state.copy_shards, state.wants_copy) == (2, 0, True)


def test_newer_shard_takes_the_place_of_one_that_is_not_committed():
    """Rule 88: the other shard of the older copy never came."""
    state, _ = feed(with_shard(), CopyDue())
    said = (word(state, copy_shards=2), word(state, copy_shards=0))
    state, _ = feed(give(state), StepReduced(), WordsGathered(number=1, words=said), StepApplied())
    work = next_work(state)
    assert (work.shards, work.state.step) == (2, 2)
    state, _ = feed(state, CopyTaken(work=work))
    assert feed(state, OfferAnswered(offer=1, manifest=ManifestId("m")))[0].copy == state.copy


def test_head_gives_the_data_position():
    """Rule 90: of the file, not of the record."""
    head = HeadState(state=sid(2, 3), manifest=ManifestId("m"), files=(file_of(),))
    record = record_of(4, 0, head=head)
    state, _ = feed(fresh(0), NewGeneration(record=record), GroupConnected(number=4))
    state, _ = feed(state, StatesGathered(number=4, entries=(entry(record, None, is_fresh=True),)))
    assert next_work(state) == LoadHead(number=4, head=head)
    state, _ = feed(state, StateTaken(number=4, state=sid(2, 3), skipped=PositionSet.of(8)))
    assert (state.state, state.skipped) == (sid(2, 3), PositionSet.of(8))


def test_group_trains_on_without_a_master():
    """Rule 91: a broken stream changes nothing; the next one hears what holds now."""
    state = complete(synced(), word(synced()))
    state, _ = feed(state, StepApplied())
    register, declare = reports(feed(state, StreamOpened())[1])
    assert isinstance(register, RegisterReplica)
    assert (register.generation, register.left, register.state) == (1, 0, sid(1, 1))
    assert declare == Declare(dataset=DATASET, layout="layout")


def test_quarantine_is_skipped_and_marked_as_the_step_completes():
    """Rule 94."""
    record = record_of(1, 0, quarantine=PositionSet.of(1))
    state, _ = feed(fresh(0), NewGeneration(record=record), GroupConnected(number=1))
    state, _ = feed(state, StatesGathered(number=1, entries=(entry(record, None, is_fresh=True),)))
    share = next_work(state).share
    assert (share.positions, share.records) == (PositionSet.of(0, 2), 2)
    state, _ = feed(complete(state), StepApplied())
    assert state.skipped == PositionSet.of(1)


def test_last_step_is_not_the_end():
    """Rules 95, 96: keep group and replica, commit the last state, and finish when the master says END."""
    state = synced(step=6)
    assert isinstance(next_work(state), TakeCopy)
    assert next_work(synced(me=1, step=6)) == Await()
    ended, _ = feed(state, GroupEnded(final_saver=True), GroupEnded())
    finish = GroupFinish(reason=FinishReason.ENDED, final_saver=True)
    assert next_work(ended) == FinishScript(finish=finish)


def test_end_ends_the_wait_for_a_member_that_has_stopped_alone():
    """Rule 97: in the next step, or in a sync; not a collective between two steps, as that of an evaluation."""
    end = GroupEnded()
    assert feed(give(synced(step=2)), end)[1] == (AbortGroup(number=1),)
    contributed, _ = feed(give(synced(step=2)), StepReduced())
    assert feed(contributed, end)[1] == (AbortGroup(number=1),)
    entered, _ = feed(fresh(0), NewGeneration(record=record_of(1, 0, 1)))
    assert feed(entered, end)[1] == (AbortGroup(number=1),)
    assert feed(synced(step=6), end)[1] == ()
    state = give(synced(step=5))
    applying = complete(state, word(state))
    assert feed(applying, end)[1] == ()


def test_stop_at_a_state_of_an_older_lineage_is_named_in_the_generation():
    """Rules 87, 97: the checkpoint that it was loaded from was founded anew, and nothing more of its lineage counts."""
    old = HeadState(state=sid(3, 2), manifest=ManifestId("m"))
    record = replace(record_of(5, 0, 1, head=old), lineage=Lineage(LINEAGE + 1))
    state = replace(fresh(0), lineage=record.lineage)
    nothing = entry(record, None, is_fresh=True)
    state, _ = feed(state, NewGeneration(record=record), GroupConnected(number=5))
    waiting, _ = feed(state, StatesGathered(number=5, entries=(nothing, nothing)), StopAsked())
    assert waiting.must_stop
    state, _ = feed(state, StatesGathered(number=5, entries=(nothing, nothing)))
    state, _ = feed(state, StateTaken(number=5, state=old.state, skipped=EMPTY), StopAsked())
    own = StateId(lineage=record.lineage, generation=5, step=2, is_stopped=True)
    assert (state.state, next_work(state)) == (own, TakeCopy(number=1, stamp=5, state=own, skipped=EMPTY))
    again, _ = feed(replace(state, lineage=Lineage(9)), StopAsked())
    assert again.state == own


def test_words_survive_the_wire_and_garbage_is_refused():
    """What members tell each other is read strictly."""
    entered = SyncEntry(digest="d", state=sid(1, 2), skipped=PositionSet.of(1, 5), is_fresh=True)
    assert decode_entry(encode_entry(entered)) == entered
    said = StepWord(generation=1, step=2, prepared=3, copy_shards=2, layout="l")
    assert decode_word(encode_word(said)) == said
    for garbage in (b"", b"\xff", b"[]", b'{"state": 3}'):
        with pytest.raises(WireError):
            decode_entry(garbage)
        with pytest.raises(WireError):
            decode_word(garbage)


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
