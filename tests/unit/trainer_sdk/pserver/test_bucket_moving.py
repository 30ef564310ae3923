"""Buckets that come and go on one parameter server: rules 38 to 50, 52 and 57 to 60."""

from __future__ import annotations

from dataclasses import replace

import pytest

from master.api.identities import CutId, Incarnation, Lineage, MemberName, ServerPlace, Term, Version
from master.api.messages.checkpoint_files import BucketMarks, FileRecord
from master.api.messages.from_members import (
    Activated,
    CutRefusal,
    CutRefused,
    Held,
    Installed,
    MarksReport,
    SkipAnswer,
    Written,
)
from master.api.messages.to_members import Activate, AskMarks, Cut, Forget, Freeze, Hold, Restore, Skip
from master.api.positions import EMPTY, PositionSet
from trainer_sdk.pserver.core.bucket_moves import can_stage, try_current
from trainer_sdk.pserver.core.event_table import handle
from trainer_sdk.pserver.core.messages import CopyHead, Push, PushTarget, PushVerdict
from trainer_sdk.pserver.core.pushes import handle_push
from trainer_sdk.pserver.core.server_events import (
    ApplyLive,
    CopyArrived,
    DropLive,
    DropStaged,
    FileWritten,
    FullCopyRequested,
    NotifyMaster,
    OpenFork,
    RequestFullCopy,
    SendCopy,
    ServeStaged,
    StageCopy,
    WarmCopyRequested,
    WriteFork,
)
from trainer_sdk.pserver.core.server_state import BucketGroup, CutPhase, ServerState, check_state

G = Lineage(1)
HERE, THERE = Incarnation("here"), Incarnation("there")
TARGET = ServerPlace(name=MemberName("s1"), incarnation=THERE, address="there:1", ordinal=1)
B = PositionSet.of(2)
CUT = CutId(term=Term(1), lineage=G, sequence=1)


def span(start, stop):
    return PositionSet.span(start, stop)


def version(number):
    return Version(number)


FREEZE = Freeze(lineage=G, bucket=2, version=version(0), target=TARGET)


def activate(w, buckets=B):
    return Activate(lineage=G, buckets=buckets, version=version(w), since=version(max(0, w - 1)))


def forget(w, buckets=B):
    return Forget(lineage=G, buckets=buckets, version=version(w))


def handed(w, **parts):
    """What another server hands over: bucket 2 with positions 0 to 3, 9 skipped."""
    head = CopyHead(
        lineage=G,
        bucket=2,
        version=version(w),
        target=HERE,
        is_final=True,
        applied=span(0, 4),
        skipped=span(9, 10),
        digest="whole",
    )
    return CopyArrived(head=replace(head, **parts))


def batch(start, stop, buckets=B, w=0):
    return Push(lineage=G, positions=span(start, stop), targets=(PushTarget(buckets=buckets, version=version(w)),))


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


def verdicts(state, event):
    return {ruling.verdict: ruling.buckets for ruling in handle_push(state, event).answer.rulings}


@pytest.fixture
def source():
    """Owns buckets 0 to 3 at version 0, all with positions 0 to 3."""
    group = BucketGroup(buckets=span(0, 4), version=version(0), applied=span(0, 4), skipped=EMPTY)
    return ServerState(incarnation=HERE, lineage=G, newest_restore=G, groups=(group,))


@pytest.fixture
def target():
    """In the lineage with no bucket."""
    return ServerState(incarnation=HERE, lineage=G, newest_restore=G)


# ---- the source -----------------------------------------------------------------------------------------------------


def test_freeze_stops_pushes_of_its_bucket_alone_and_hands_it_over(source):
    """Rules 43, 50."""
    state, effects = after(source, FREEZE)
    (sent,) = effects
    assert sent == SendCopy(
        lineage=G,
        bucket=2,
        version=version(1),
        target=TARGET,
        is_final=True,
        is_full=False,
        applied=span(0, 4),
        skipped=EMPTY,
    )
    assert verdicts(state, batch(4, 5, span(0, 4))) == {PushVerdict.FROZEN: B, PushVerdict.APPLIED: span(0, 4) - B}


@pytest.mark.parametrize(("pushed", "verdict"), [((0, 2), PushVerdict.REPEAT), ((2, 6), PushVerdict.FROZEN)])
def test_a_frozen_bucket_confirms_what_it_has_and_nothing_else(source, pushed, verdict):
    """Rule 50: partly applied is for the new owner to judge, whose marks decide."""
    state, _ = after(source, FREEZE)
    assert verdicts(state, batch(*pushed)) == {verdict: B}


def test_a_frozen_bucket_says_what_it_skips(source):
    """Rule 50."""
    state, _ = after(source, Skip(lineage=G, positions=span(7, 8)), FREEZE)
    assert verdicts(state, batch(7, 9)) == {PushVerdict.SKIPPED: B}


def test_freeze_again_hands_over_the_same_again(source):
    """Rule 43: whatever came in between."""
    frozen, first = after(source, FREEZE)
    pushed, _ = after(frozen, batch(4, 5, span(0, 4)))
    _, again = after(pushed, FREEZE)
    assert again == first


@pytest.mark.parametrize(
    "late", [replace(FREEZE, version=version(1)), replace(FREEZE, lineage=Lineage(2)), replace(FREEZE, bucket=7)]
)
def test_freeze_of_another_version_lineage_or_bucket_is_nothing(source, late):
    """Rule 43: only if live at exactly that version of that lineage."""
    assert after(source, late) == (source, ())


def test_what_a_copy_was_sent_for_is_asked_again_before_each_step(source):
    """The bucket may have gone, been opened or moved on meanwhile: what was copied is worthless then (rules 43, 46)."""
    frozen, effects = after(source, FREEZE)
    (order,) = (effect for effect in effects if isinstance(effect, SendCopy))
    assert try_current(frozen, order) == order
    ahead = replace(order, is_final=False)
    assert try_current(source, ahead) == ahead, "it goes ahead of the freeze"
    assert try_current(source, order) is None
    for late in ({"version": version(2)}, {"version": version(0)}, {"lineage": Lineage(2)}, {"bucket": 7}):
        assert try_current(frozen, replace(order, **late)) is None
    trained, _ = after(source, batch(4, 6))
    assert try_current(trained, ahead).applied == span(0, 6), "with the marks that it has now"


def test_a_late_freeze_does_not_freeze_the_next_version(source):
    """Rule 38."""
    state, _ = after(source, FREEZE, activate(1))
    assert after(state, FREEZE) == (state, ())
    assert verdicts(state, batch(4, 5, w=1)) == {PushVerdict.APPLIED: B}


def test_a_frozen_bucket_may_be_pulled(source):
    """Rule 52."""
    assert after(source, FREEZE)[0].has(span(0, 4))


def test_undone_it_serves_under_the_next_version_only(source):
    """Rules 38, 47: the old version never thaws."""
    state, effects = after(source, FREEZE, activate(1))
    assert told(effects) == [Activated(lineage=G, buckets=B, version=version(1))]
    assert verdicts(state, batch(4, 5, w=0)) == {PushVerdict.MOVED: B}
    assert verdicts(state, batch(4, 5, w=1)) == {PushVerdict.APPLIED: B}


def test_undone_before_the_freeze_came_it_serves_likewise(source):
    """Rule 46: at any time."""
    state, _ = after(source, activate(1))
    assert after(state, FREEZE) == (state, ())


def test_forget_drops_what_is_older_and_remembers_the_floor(source):
    """Rule 48: a late HANDOVER of the version forgotten is not taken."""
    state, effects = after(source, FREEZE, forget(1))
    assert effects == (DropLive(buckets=B),)
    assert verdicts(state, batch(4, 5)) == {PushVerdict.MOVED: B}
    assert after(state, handed(1)) == (state, ())
    assert after(state, activate(1)) == (state, ())


def test_a_late_forget_does_not_touch_a_later_version(source):
    """Rule 48: live copies below that version only."""
    state, _ = after(source, FREEZE, activate(1), FREEZE, activate(2))
    assert after(state, forget(1))[0].groups == state.groups


def test_warm_sends_a_copy_and_goes_on(source):
    """Rule 42."""
    state, (sent,) = after(source, WarmCopyRequested(lineage=G, bucket=2, version=version(0), target=TARGET))
    assert state == source
    assert (sent.is_final, sent.is_full) == (False, True)


def test_what_was_handed_over_can_be_had_in_full(source):
    """Rule 42: NEED_FULL; of an active bucket nothing is handed over."""
    wanted = FullCopyRequested(lineage=G, bucket=2, version=version(1), target=TARGET)
    assert after(source, wanted) == (source, ())
    _, (sent,) = after(source, FREEZE, wanted)
    assert (sent.is_final, sent.is_full) == (True, True)


# ---- the target -----------------------------------------------------------------------------------------------------


def test_a_hand_over_is_staged_and_not_served(target):
    """Rules 44, 50, 52, 58: neither pushed to nor pulled nor listed."""
    state, effects = after(target, handed(1))
    assert effects == (
        StageCopy(head=handed(1).head),
        NotifyMaster(message=Installed(lineage=G, bucket=2, version=version(1), digest="whole")),
    )
    assert verdicts(state, batch(4, 5, w=1)) == {PushVerdict.NOT_YET: B}
    assert not state.has(B)
    assert told(after(state, Hold(cut=CUT))[1]) == [Held(cut=CUT, marks=())]


def test_a_repeated_hand_over_is_answered_and_changes_nothing(target):
    """Rule 44."""
    state, _ = after(target, handed(1))
    again, effects = after(state, handed(1))
    assert again == state
    assert told(effects) == [Installed(lineage=G, bucket=2, version=version(1), digest="whole")]


@pytest.mark.parametrize("wrong", [{"lineage": Lineage(2)}, {"target": THERE}])
def test_a_hand_over_for_somebody_else_is_not_taken(target, wrong):
    """Rule 44: this lineage, this process."""
    assert after(target, handed(1, **wrong)) == (target, ())


def test_a_hand_over_below_a_live_copy_is_not_taken(source):
    """Rule 44."""
    state, _ = after(source, activate(1))
    assert after(state, handed(1)) == (state, ())


def test_active_it_serves_with_the_marks_that_came_along(target):
    """Rules 47, 51: what was confirmed before the move is a REPEAT after it."""
    state, effects = after(target, handed(1), activate(1))
    assert effects == (
        ServeStaged(buckets=B),
        NotifyMaster(message=Activated(lineage=G, buckets=B, version=version(1))),
    )
    assert verdicts(state, batch(0, 2, w=1)) == {PushVerdict.REPEAT: B}
    assert verdicts(state, batch(9, 10, w=1)) == {PushVerdict.SKIPPED: B}
    assert after(state, batch(4, 5, w=1))[1] == (ApplyLive(buckets=B),)
    assert told(after(state, activate(1))[1]) == [Activated(lineage=G, buckets=B, version=version(1))]


def test_activate_with_nothing_to_serve_is_not_confirmed(target):
    """Rule 47: asked again later."""
    assert after(target, activate(1)) == (target, ())
    assert after(target, handed(2), activate(1))[1] == ()


def test_a_warm_copy_is_never_served(target):
    """Rules 42, 47."""
    state, effects = after(target, handed(1, is_final=False))
    assert effects == (StageCopy(head=handed(1, is_final=False).head),)
    assert after(state, activate(1)) == (state, ())


def test_a_difference_on_another_base_needs_the_whole(target):
    """Rule 42."""
    warm = handed(1, is_final=False, digest="early")
    late = handed(1, base="elsewhere")
    state, _ = after(target, warm)
    assert after(state, late) == (state, (RequestFullCopy(head=late.head),))
    final, _ = after(state, handed(1, base="early"))
    assert final.moves.staged[0].is_final


def test_a_copy_of_a_version_that_cannot_be_does_not_keep_the_true_one_away(target):
    """Rule 44 leaves copies below a staged one lying, so a false one far above would do so for the whole lineage."""
    state, effects = after(target, handed(1 << 62))
    assert (state, effects) == (target, ())
    assert not can_stage(target, handed(1 << 62).head)
    assert can_stage(target, handed(1).head)
    assert told(after(state, handed(1))[1])


def test_the_body_of_a_copy_that_is_here_already_is_not_wanted_again(target):
    """It is said that it is here, which needs the head alone (rule 44)."""
    state, _ = after(target, handed(1))
    assert not can_stage(state, handed(1).head)
    assert can_stage(state, handed(2).head)


def test_a_later_hand_over_takes_the_place_of_an_earlier_one(target):
    """Rule 39: one staged copy a bucket."""
    state, _ = after(target, handed(1), handed(3, digest="later"))
    assert [one.version for one in state.moves.staged] == [3]
    assert after(state, handed(1)) == (state, ())


def test_a_bucket_that_comes_back_replaces_the_frozen_copy(source):
    """S to T to S: the version decides, not who held it first."""
    state, effects = after(source, FREEZE, handed(2), activate(2))
    assert effects[:2] == (DropLive(buckets=B), ServeStaged(buckets=B))
    assert verdicts(state, batch(9, 10, w=2)) == {PushVerdict.SKIPPED: B}


def test_the_loser_of_an_undone_move_drops_what_was_staged(target):
    """Rules 46, 48."""
    state, effects = after(target, handed(1), forget(1))
    assert effects == (DropStaged(buckets=B),)
    assert after(state, handed(1)) == (state, ())


def test_restore_drops_staged_copies_and_floors(target):
    """Rules 39, 49."""
    state, _ = after(target, handed(1), forget(5, span(0, 1)))
    order = Restore(
        incarnation=HERE,
        lineage=Lineage(2),
        base=None,
        files=(),
        data=EMPTY,
        quarantine=EMPTY,
        tables=(),
        bucket_count=4,
        buckets=EMPTY,
        version=version(0),
    )
    restored, _ = after(state, order)
    assert restored.moves == ServerState(incarnation=HERE).moves


# ---- cuts and skips -------------------------------------------------------------------------------------------------


def opened(state, data):
    """Held and cut with this D."""
    return after(state, Hold(cut=CUT), Cut(cut=CUT, data=data))


def test_a_frozen_bucket_is_not_listed(source):
    """Rule 58: in HELD and in the answer to a new master."""
    state, _ = after(source, FREEZE)
    marks = (BucketMarks(buckets=span(0, 4) - B, applied=span(0, 4)),)
    assert told(after(state, Hold(cut=CUT))[1]) == [Held(cut=CUT, marks=marks)]
    assert told(after(state, AskMarks(lineage=G))[1]) == [MarksReport(lineage=G, marks=marks)]


def test_a_bucket_activated_in_a_hold_stays_outside_the_cut(target):
    """Rule 58: its pushes go on, and it is not forked."""
    state, _ = after(target, handed(1), Hold(cut=CUT), activate(1))
    assert verdicts(state, batch(4, 5, w=1)) == {PushVerdict.APPLIED: B}
    _, effects = after(state, Cut(cut=CUT, data=span(0, 4)))
    assert OpenFork(cut=CUT, buckets=EMPTY) in effects
    assert WriteFork(cut=CUT, marks=()) in effects


def test_freeze_ends_a_fork_that_still_wants_something_of_the_bucket(source):
    """Rule 59: GONE before the HANDOVER leaves."""
    state, _ = opened(source, span(0, 6))
    frozen, effects = after(state, FREEZE)
    assert frozen.cut.phase is CutPhase.GONE
    (refused,) = told(effects)
    assert (refused.cut, refused.reason) == (CUT, CutRefusal.GONE)
    assert isinstance(effects[-1], SendCopy)


def test_a_complete_fork_is_written_whatever_becomes_of_the_bucket(source):
    """Rule 59: frozen and forgotten before the file is there, and named in it once."""
    state, effects = opened(source, span(0, 4))
    assert WriteFork(cut=CUT, marks=(BucketMarks(buckets=span(0, 4), applied=span(0, 4)),)) in effects
    state, _ = after(state, FREEZE, forget(1))
    file = FileRecord(name="f", size_bytes=0, digest="", lineage=G, marks=())
    _, effects = after(state, FileWritten(cut=CUT, file=file))
    assert told(effects) == [Written(cut=CUT, file=file)]


def test_a_forgotten_bucket_of_an_open_fork_is_in_its_file(source):
    """Rule 59: others of the fork still want something."""
    lagging, _ = after(source, batch(4, 6))
    state, _ = opened(lagging, span(0, 6))
    state, _ = after(state, FREEZE, forget(1))
    _, effects = after(state, batch(4, 6, span(0, 4) - B))
    (written,) = (effect for effect in effects if isinstance(effect, WriteFork))
    assert {tuple(marks.buckets) for marks in written.marks} == {(0, 1, 2, 3)}


@pytest.mark.parametrize("events", [(FREEZE, forget(1)), (FREEZE,)])
def test_cut_refuses_what_it_listed_and_cannot_fork(source, events):
    """Rule 58: no longer here, or frozen and lacking a position of D."""
    state, _ = after(source, Hold(cut=CUT), *events)
    _, effects = after(state, Cut(cut=CUT, data=span(0, 6)))
    assert told(effects) == [CutRefused(cut=CUT, reason=CutRefusal.GONE)]


def test_cut_forks_a_frozen_bucket_that_lacks_nothing(source):
    """Rule 58."""
    state, _ = after(source, Hold(cut=CUT), FREEZE)
    _, effects = after(state, Cut(cut=CUT, data=span(0, 4)))
    assert OpenFork(cut=CUT, buckets=span(0, 4)) in effects


def test_skip_is_taken_by_active_copies_only(source):
    """Rule 60: of a frozen bucket nothing is said."""
    state, _ = after(source, FREEZE)
    state, effects = after(state, Skip(lineage=G, positions=span(7, 8)))
    others = span(0, 4) - B
    assert told(effects) == [SkipAnswer(lineage=G, positions=span(7, 8), skipped=others, applied=EMPTY)]
    assert not any(group.skipped for group in state.groups if group.is_frozen)
