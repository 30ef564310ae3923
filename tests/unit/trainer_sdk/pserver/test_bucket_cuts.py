"""HOLD, CUT and the fork in the parameter server's core: rules 19 to 21."""

from dataclasses import replace

import pytest

from master.api.identities import CutId, Incarnation, Lineage, Term, Version
from master.api.messages.checkpoint_files import BucketMarks, FileRecord
from master.api.messages.from_members import CutRefusal, CutRefused, CutTaken, Held, Written
from master.api.messages.to_members import Cut, Drop, Hold, Skip
from master.api.positions import PositionSet
from trainer_sdk.pserver.core.event_table import handle, next_deadline
from trainer_sdk.pserver.core.messages import Push, PushTarget, PushVerdict
from trainer_sdk.pserver.core.pushes import handle_push
from trainer_sdk.pserver.core.server_events import (
    ApplyBoth,
    ApplyLive,
    DropFork,
    FileFailed,
    FileWritten,
    ForkTimedOut,
    HoldTimedOut,
    NotifyMaster,
    OpenFork,
    WriteFork,
)
from trainer_sdk.pserver.core.server_state import BucketGroup, CutPhase, ServerState, check_state

ALL = PositionSet.span(0, 8)


def span(start, stop):
    return PositionSet.span(start, stop)


def cut_id(sequence, *, lineage=1, term=1):
    return CutId(term=Term(term), lineage=Lineage(lineage), sequence=sequence)


FIRST = cut_id(1)


def batch(start, stop, buckets=ALL):
    target = PushTarget(buckets=buckets, version=Version(0))
    return Push(lineage=Lineage(1), positions=span(start, stop), targets=(target,))


def after(state, *events):
    """The state after these, and the effects of the last one."""
    effects = ()
    for event in events:
        step = handle_push(state, event) if isinstance(event, Push) else handle(state, event, 10.0)
        state, effects = step.state, step.effects
        check_state(state)
    return state, effects


def told(effects):
    return [effect.message for effect in effects if isinstance(effect, NotifyMaster)]


def refused(cut, reason):
    return [(CutRefused, cut, reason)]


def refusals(effects):
    return [(type(m), m.cut, m.reason) for m in told(effects) if isinstance(m, CutRefused)]


def record(cut):
    return FileRecord(name=f"{cut.sequence}", size_bytes=1, digest="d", lineage=cut.lineage, marks=())


@pytest.fixture
def state():
    """A server that has applied positions 0 to 3."""
    group = BucketGroup(buckets=ALL, version=Version(0), applied=span(0, 4), skipped=PositionSet())
    return ServerState(incarnation=Incarnation("i"), lineage=Lineage(1), newest_restore=Lineage(1), groups=(group,))


def test_hold_answers_marks_and_stops_pushes_but_not_repeats(state):
    """Rule 19: no further push is applied; what needs no applying is answered."""
    held, effects = after(state, Hold(cut=FIRST))
    assert told(effects) == [Held(cut=FIRST, marks=(BucketMarks(buckets=ALL, applied=span(0, 4)),))]
    waiting = handle_push(held, batch(4, 6))
    assert [r.verdict for r in waiting.answer.rulings] == [PushVerdict.HELD]
    assert waiting.state == held
    assert [r.verdict for r in handle_push(held, batch(0, 2)).answer.rulings] == [PushVerdict.REPEAT]


@pytest.mark.parametrize("known", [(), (Hold(cut=FIRST),), (Hold(cut=FIRST), Cut(cut=FIRST, data=span(0, 6)))])
def test_a_hold_that_comes_after_its_own_drop_is_not_taken(state, known):
    """Whatever was under way: the master gave up a cut of which this server has not heard yet (rule 19)."""
    second = cut_id(2)
    _, effects = after(state, *known, Drop(cut=second), Hold(cut=second))
    assert refusals(effects) == refused(second, CutRefusal.GONE)
    _, effects = after(state, *known, Drop(cut=second), Hold(cut=cut_id(3)))
    assert [type(message) for message in told(effects)] == [Held]


def test_hold_and_fork_have_deadlines_of_their_own(state):
    """From when they began (rules 19, 21)."""
    held, _ = after(state, Hold(cut=FIRST))
    assert next_deadline(held) == (10.0 + state.limits.hold_s, HoldTimedOut(cut=FIRST))
    forked, _ = after(held, Cut(cut=FIRST, data=span(0, 6)))
    assert next_deadline(forked) == (10.0 + state.limits.fork_s, ForkTimedOut(cut=FIRST))
    assert next_deadline(after(forked, Drop(cut=FIRST))[0]) is None


def test_hold_that_comes_again_gets_the_first_answer(state):
    """The same id again gets the first answer, also when the fork is open (rule 19)."""
    held, first = after(state, Hold(cut=FIRST))
    assert after(held, Hold(cut=FIRST)) == (held, first)
    _, again = after(held, Cut(cut=FIRST, data=span(0, 6)), batch(6, 8), Hold(cut=FIRST))
    assert told(again) == told(first)


@pytest.mark.parametrize(
    ("cut", "reason"),
    [(cut_id(1, lineage=2), CutRefusal.STALE_LINEAGE), (cut_id(4), CutRefusal.OLD), (cut_id(5), CutRefusal.GONE)],
)
def test_hold_is_refused_for_another_lineage_an_old_id_and_a_dropped_one(state, cut, reason):
    """Rule 19."""
    _, effects = after(state, Hold(cut=cut_id(5)), Drop(cut=cut_id(5)), Hold(cut=cut))
    assert refusals(effects) == refused(cut, reason)


def test_hold_of_a_server_without_a_model_is_not_ready():
    """Rule 19."""
    _, effects = after(ServerState(incarnation=Incarnation("i")), Hold(cut=FIRST))
    assert refusals(effects) == refused(FIRST, CutRefusal.NOT_READY)


def test_drop_that_overtakes_its_hold_is_remembered(state):
    """A cut given up is not taken when its HOLD arrives late."""
    _, effects = after(state, Drop(cut=FIRST), Hold(cut=FIRST))
    assert refusals(effects) == refused(FIRST, CutRefusal.GONE)


def test_newer_hold_drops_an_older_fork(state):
    """A new master's first HOLD displaces the old master's cut (rule 22)."""
    newer = cut_id(1, term=2)
    forked, effects = after(state, Hold(cut=FIRST), Cut(cut=FIRST, data=span(0, 6)), Hold(cut=newer))
    assert effects[0] == DropFork(cut=FIRST)
    assert [type(m) for m in told(effects)] == [Held]
    assert forked.cut.cut == newer


def test_cut_wants_what_others_have_and_this_server_lacks(state):
    """Rule 20: wanted := D less marks; pushes go on."""
    forked, effects = after(state, Hold(cut=FIRST), Cut(cut=FIRST, data=span(0, 6)))
    assert effects == (OpenFork(cut=FIRST, buckets=ALL), NotifyMaster(message=CutTaken(cut=FIRST)))
    assert [g.fork.wanted for g in forked.groups] == [span(4, 6)]
    assert forked.cut.phase is CutPhase.OPEN


def test_cut_without_its_hold_is_gone(state):
    """Rule 20: only who holds this id."""
    assert refusals(after(state, Cut(cut=FIRST, data=span(0, 6)))[1]) == refused(FIRST, CutRefusal.GONE)


def test_cut_that_lacks_a_mark_of_this_server_is_gone_and_the_hold_ends(state):
    """Rule 20: marks inside D."""
    gone, effects = after(state, Hold(cut=FIRST), Cut(cut=FIRST, data=span(0, 3)))
    assert refusals(effects) == refused(FIRST, CutRefusal.GONE)
    assert not gone.is_holding


def test_cut_that_this_server_cannot_complete_is_gone(state):
    """D has a position that this server will never apply: the fork would wait for ever."""
    skip = Skip(lineage=Lineage(1), positions=span(5, 6))
    _, effects = after(state, skip, Hold(cut=FIRST), Cut(cut=FIRST, data=span(0, 6)))
    assert refusals(effects) == refused(FIRST, CutRefusal.GONE)


def test_push_outside_the_cut_goes_to_the_live_bucket_only(state):
    """Rule 21."""
    forked, _ = after(state, Hold(cut=FIRST), Cut(cut=FIRST, data=span(0, 6)))
    step = handle_push(forked, batch(6, 8))
    assert step.effects == (ApplyLive(buckets=ALL),)
    assert [g.fork.applied for g in step.state.groups] == [span(0, 4)]


def test_push_across_the_edge_of_the_cut_is_split(state):
    """Rule 21: nothing is applied, the part inside is named."""
    forked, _ = after(state, Hold(cut=FIRST), Cut(cut=FIRST, data=span(0, 6)))
    step = handle_push(forked, batch(5, 8))
    assert [(r.verdict, r.positions) for r in step.answer.rulings] == [(PushVerdict.SPLIT, span(5, 6))]
    assert step.state == forked


def test_fork_is_written_once_it_has_all_of_the_cut(state):
    """Rule 21: inside goes to both; when nothing is wanted the fork is sealed and says exactly D."""
    forked, _ = after(state, Hold(cut=FIRST), Cut(cut=FIRST, data=span(0, 6)), batch(8, 9), batch(4, 5))
    step = handle_push(forked, batch(5, 6))
    marks = (BucketMarks(buckets=ALL, applied=span(0, 6)),)
    assert step.effects == (ApplyBoth(buckets=ALL), WriteFork(cut=FIRST, marks=marks))
    assert step.state.cut.phase is CutPhase.SEALED
    assert [g.applied for g in step.state.groups] == [span(0, 6) | span(8, 9)]


def test_fork_waits_for_the_last_bucket(state):
    """Buckets get there one by one: the dead trainer's gradient here, another's there."""
    forked, _ = after(state, Hold(cut=FIRST), Cut(cut=FIRST, data=span(0, 6)))
    some, effects = after(forked, batch(4, 6, span(0, 3)))
    assert effects == (ApplyBoth(buckets=span(0, 3)),)
    _, effects = after(some, batch(4, 6))
    assert [type(e) for e in effects] == [ApplyBoth, WriteFork]
    assert effects[0].buckets == span(3, 8)


def test_written_is_said_and_said_again(state):
    """Rule 21: WRITTEN again if asked again; the id is not taken a second time."""
    done, effects = after(
        state, Hold(cut=FIRST), Cut(cut=FIRST, data=span(0, 4)), FileWritten(cut=FIRST, file=record(FIRST))
    )
    assert effects == (DropFork(cut=FIRST), NotifyMaster(message=Written(cut=FIRST, file=record(FIRST))))
    assert told(after(done, Cut(cut=FIRST, data=span(0, 4)))[1]) == [Written(cut=FIRST, file=record(FIRST))]
    assert refusals(after(done, Hold(cut=FIRST))[1]) == refused(FIRST, CutRefusal.GONE)


def test_file_that_cannot_be_written_ends_the_cut_with_the_reason(state):
    """A full disk costs a checkpoint, not the training."""
    gone, effects = after(
        state, Hold(cut=FIRST), Cut(cut=FIRST, data=span(0, 4)), FileFailed(cut=FIRST, message="no room")
    )
    assert effects[0] == DropFork(cut=FIRST)
    assert told(effects) == [CutRefused(cut=FIRST, reason=CutRefusal.FAILED, message="no room")]
    assert after(gone, batch(4, 6))[1] == (ApplyLive(buckets=ALL),)


def test_hold_ends_by_its_own_deadline(state):
    """Rule 19: the server drops the hold and never takes that id again."""
    held, _ = after(state, Hold(cut=FIRST))
    at_s, event = next_deadline(held)
    assert at_s == pytest.approx(10.0 + held.limits.hold_s)
    assert event == HoldTimedOut(cut=FIRST)
    free, effects = after(held, event)
    assert refusals(effects) == refused(FIRST, CutRefusal.GONE)
    assert not free.is_holding
    assert refusals(after(free, Cut(cut=FIRST, data=span(0, 6)))[1]) == refused(FIRST, CutRefusal.GONE)


def test_fork_ends_by_its_own_time_limit_unless_sealed(state):
    """Rule 21; a file that is being written has no deadline."""
    forked, _ = after(state, Hold(cut=FIRST), Cut(cut=FIRST, data=span(0, 6)))
    assert next_deadline(forked)[1] == ForkTimedOut(cut=FIRST)
    assert after(forked, ForkTimedOut(cut=FIRST))[1][0] == DropFork(cut=FIRST)
    sealed, _ = after(forked, batch(4, 6))
    assert next_deadline(sealed) is None
    assert after(sealed, ForkTimedOut(cut=FIRST)) == (sealed, ())


def test_late_deadline_of_an_older_cut_changes_nothing(state):
    """Events of the shell name their cut."""
    held, _ = after(state, Hold(cut=FIRST), Hold(cut=cut_id(2)))
    for late in (HoldTimedOut(cut=FIRST), ForkTimedOut(cut=FIRST), FileWritten(cut=FIRST, file=record(FIRST))):
        assert after(held, late) == (held, ())


def test_quarantine_of_a_wanted_position_ends_the_fork(state):
    """It could only wait for its time limit; live buckets skip at once (rule 31)."""
    forked, _ = after(state, Hold(cut=FIRST), Cut(cut=FIRST, data=span(0, 6)))
    gone, effects = after(forked, Skip(lineage=Lineage(1), positions=span(4, 5)))
    assert refusals(effects) == refused(FIRST, CutRefusal.GONE)
    assert gone.cut.phase is CutPhase.GONE


def test_quarantine_outside_the_cut_leaves_the_fork_as_it_was(state):
    """The fork's own skipped set is of the moment of the cut."""
    forked, _ = after(state, Hold(cut=FIRST), Cut(cut=FIRST, data=span(0, 6)))
    still, _ = after(forked, Skip(lineage=Lineage(1), positions=span(7, 8)))
    assert still.cut.phase is CutPhase.OPEN
    assert [(g.skipped, g.fork.skipped) for g in still.groups] == [(span(7, 8), PositionSet())]


def test_restart_of_terms_in_a_newer_lineage_does_not_make_cuts_old(state):
    """Rule 29: after a loss of etcd terms start anew; they are compared within one lineage only."""
    old = cut_id(7, term=900)
    newer = replace(after(state, Hold(cut=old), Drop(cut=old))[0], lineage=Lineage(2), newest_restore=Lineage(2))
    assert [type(m) for m in told(after(newer, Hold(cut=cut_id(1, lineage=2, term=3)))[1])] == [Held]
