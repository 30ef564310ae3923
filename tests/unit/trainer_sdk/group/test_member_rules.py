"""Reports, words and the end of a group member (rules 73, 91 to 97)."""

from dataclasses import replace

import pytest

from master.api.identities import Lineage, ManifestId
from master.api.messages.from_members import Declare
from master.api.messages.generations import (
    BrokenGeneration,
    GroupEnded,
    GroupPhase,
    HeadState,
    NewGeneration,
    RegisterReplica,
    StateId,
)
from master.api.positions import EMPTY, PositionSet
from tests.unit.trainer_sdk.group.group_world import DATASET, LINEAGE, fresh, record_of
from tests.unit.trainer_sdk.group.member_cases import complete, entry, feed, reported_phase, reports, sid, synced, word
from trainer_sdk.errors import WireError
from trainer_sdk.group.core.control_words import (
    StepWord,
    SyncEntry,
    decode_entry,
    decode_word,
    encode_entry,
    encode_word,
)
from trainer_sdk.group.core.member_events import (
    AbortGroup,
    Await,
    FinishScript,
    GroupConnected,
    LoadHead,
    StatesGathered,
    StateTaken,
    StepApplied,
    StepReduced,
    StopAsked,
    StreamOpened,
    TakeCopy,
)
from trainer_sdk.group.core.script_work import next_work
from trainer_sdk.group.core.transitions import give
from trainer_sdk.group.port import GroupFinish
from trainer_sdk.protocol.trainer_events import FinishReason


def test_member_computes_in_a_step_alone_and_is_in_its_script_else():
    """Rule 74: the master suspects a member that holds up a step, and none that evaluates between two."""
    given = give(synced())
    applying = complete(given, word(given))
    entered, _ = feed(fresh(0), NewGeneration(record=record_of(1, 0, 1)), GroupConnected(number=1))
    assert [reported_phase(state) for state in (given, applying)] == [GroupPhase.COMPUTE, GroupPhase.SCRIPT]
    assert [reported_phase(state, is_loading=True) for state in (given, applying)] == [
        GroupPhase.LOAD,
        GroupPhase.SCRIPT,
    ]
    assert [reported_phase(given, is_size_new=True, is_loading=loads) for loads in (False, True)] == [
        GroupPhase.WARM_UP,
        GroupPhase.LOAD,
    ]
    assert [reported_phase(state, is_reducing=True) for state in (given, applying)] == [
        GroupPhase.REDUCE,
        GroupPhase.REDUCE,
    ]
    assert [reported_phase(entered, is_in_script=here) for here in (False, True)] == [
        GroupPhase.SYNC,
        GroupPhase.SCRIPT,
    ]
    assert reported_phase(entered, is_in_script=True, is_loading=True) == GroupPhase.LOAD


def test_member_that_takes_a_state_waits_for_it_or_works_on_it():
    """Rule 74: what a collective waits for is another member's to bring; a load or a copy that hangs is its own."""
    record = record_of(1, 0, 1)
    entered, _ = feed(fresh(1), NewGeneration(record=record), GroupConnected(number=1))
    entries = (entry(record, None, is_fresh=True), entry(record, None))
    taking, _ = feed(entered, StatesGathered(number=1, entries=entries))
    left, _ = feed(taking, BrokenGeneration(number=1))
    again, _ = feed(left, NewGeneration(record=record_of(2, 0, 1)))
    assert [[reported_phase(one, is_working=works) for works in (False, True)] for one in (taking, left, again)] == [
        [GroupPhase.TRANSFER, GroupPhase.RESTORE],
        [GroupPhase.OUT, GroupPhase.UNREADY],
        [GroupPhase.SYNC, GroupPhase.RESTORE],
    ]


def test_member_that_hangs_in_the_last_copy_is_not_done():
    """The others wait for that copy, and are lost to nobody else."""
    state = synced(step=6)
    assert [reported_phase(state, is_working=works) for works in (False, True)] == [GroupPhase.DONE, GroupPhase.SCRIPT]


def test_member_of_no_generation_says_whether_its_script_asks_for_a_step():
    """Rule 75: a process answers BROKEN whatever its script does, and is ready once the script asks."""
    left, _ = feed(give(synced()), BrokenGeneration(number=1))
    assert [reported_phase(left, is_in_script=here) for here in (True, False)] == [GroupPhase.UNREADY, GroupPhase.OUT]


def test_group_trains_on_without_a_master():
    """Rule 91: a broken stream changes nothing; the next one hears what holds now."""
    state = complete(synced(), word(synced()))
    state, _ = feed(state, StepApplied())
    register, declare = reports(feed(state, StreamOpened())[1])
    assert isinstance(register, RegisterReplica)
    assert (register.generation, register.left, register.state) == (1, 0, sid(1, 1))
    assert declare == Declare(dataset=DATASET, layout="layout")


def test_last_step_is_not_the_end():
    """Rules 95, 96: keep group and replica, commit the last state, and finish when the master says END."""
    state = synced(step=6)
    assert isinstance(next_work(state), TakeCopy)
    assert next_work(synced(me=1, step=6)) == Await()
    ended, _ = feed(state, GroupEnded(final_saver=True), GroupEnded())
    finish = GroupFinish(reason=FinishReason.ENDED, final_saver=True)
    assert next_work(ended) == FinishScript(finish=finish)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_who_does_not_hold_the_last_state_loads_it_before_the_script_goes_on(is_stopped):
    """Rule 96: a process that comes when all is trained, or fell behind; its script evaluates or saves afterwards."""
    last = replace(sid(3, 6), is_stopped=is_stopped)
    end = GroupEnded(head=HeadState(state=last, manifest=ManifestId("m")))
    finish = FinishScript(finish=GroupFinish(reason=FinishReason.ENDED))
    for behind in (fresh(0), synced(step=5), give(synced(step=5))):
        ended, _ = feed(behind, end)
        assert next_work(ended) == LoadHead(number=0, head=end.head)
        loaded, _ = feed(ended, StateTaken(number=0, state=last, skipped=EMPTY))
        assert next_work(loaded) == finish
        assert loaded.state == last
    assert next_work(feed(synced(step=6), end)[0]) == finish
    first = GroupEnded(head=HeadState(state=last))  # a job that was stopped before its first step has no checkpoint
    assert next_work(feed(fresh(0), first)[0]) == finish


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
