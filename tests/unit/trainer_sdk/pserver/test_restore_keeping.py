"""KEEP on one server: what stays, what comes from the base, and what ends (rules 27 and 30)."""

from dataclasses import replace

import pytest

from master.api.identities import BucketId, CutId, Incarnation, Lineage, MemberName, ServerPlace, Term, Version
from master.api.messages.checkpoint_files import BucketMarks
from master.api.messages.from_members import Restored, RestoreFailed
from master.api.messages.to_members import Activate, Cut, Forget, Freeze, Hold, KeptBuckets, Restore
from master.api.positions import EMPTY, PositionSet
from trainer_sdk.pserver.core.event_table import handle
from trainer_sdk.pserver.core.messages import CopyHead, Push, PushTarget, PushVerdict
from trainer_sdk.pserver.core.pushes import handle_push
from trainer_sdk.pserver.core.server_events import (
    CopyArrived,
    DropFork,
    LoadFailed,
    LoadModel,
    ModelLoaded,
    NotifyMaster,
)
from trainer_sdk.pserver.core.server_state import CutPhase, ServerState, check_state

HERE = Incarnation("here")
MINE, LOST = PositionSet.span(0, 4), PositionSet.span(4, 6)
ALL = MINE | LOST
HEAD, NEWER = PositionSet.span(0, 10), PositionSet.span(0, 30)
BASE = (BucketMarks(buckets=ALL, applied=HEAD),)


def span(start, stop):
    return PositionSet.span(start, stop)


def order(lineage, buckets=ALL, **more):
    return Restore(
        incarnation=HERE,
        lineage=Lineage(lineage),
        base=None,
        files=(),
        data=EMPTY,
        quarantine=more.pop("quarantine", EMPTY),
        tables=(),
        bucket_count=6,
        buckets=buckets,
        version=Version(0),
        kept=tuple(more.pop("kept", ())),
    )


def keeping(lineage, *, of=1, version=0, buckets=MINE, **more):
    return order(lineage, kept=[KeptBuckets(lineage=Lineage(of), version=Version(version), buckets=buckets)], **more)


def after(state, *events):
    """The state after these, and the effects of the last."""
    effects = ()
    for event in events:
        state, effects = (step := handle(state, event, 0.0)).state, step.effects
        check_state(state)
    return state, effects


def loaded(state, restore, marks=BASE):
    """RESTORE taken and carried out; which buckets stayed."""
    state, effects = after(state, restore)
    (load,) = [effect for effect in effects if isinstance(effect, LoadModel)]
    state, effects = after(state, ModelLoaded(lineage=restore.lineage, marks=marks))
    assert effects == (NotifyMaster(message=Restored(lineage=restore.lineage)),)
    return state, load.kept


def verdicts(state, positions, *, lineage, buckets=ALL):
    target = PushTarget(buckets=buckets, version=Version(0))
    step = handle_push(state, Push(lineage=Lineage(lineage), positions=positions, targets=(target,)))
    return step.state, {(ruling.verdict, str(ruling.buckets)) for ruling in step.answer.rulings}


@pytest.fixture
def survivor():
    """Of lineage 1, with four buckets that are ahead of the last checkpoint."""
    state, _ = loaded(ServerState(incarnation=HERE), order(1, MINE), marks=())
    return verdicts(state, NEWER, lineage=1, buckets=MINE)[0]


def test_what_is_here_keeps_its_marks_and_what_is_lost_comes_from_the_base(survivor):
    """Rule 30: the buckets differ afterwards, and each says what it has."""
    state, kept = loaded(survivor, keeping(2))
    assert kept == MINE
    assert {(str(g.buckets), g.applied) for g in state.groups} == {(str(MINE), NEWER), (str(LOST), HEAD)}
    assert state.lineage == 2


def test_a_gradient_computed_again_goes_only_to_what_lacks_it(survivor):
    """M1: REPEAT where it was kept, APPLIED where it was lost."""
    state, _ = loaded(survivor, keeping(2))
    state, said = verdicts(state, span(10, 30), lineage=2)
    assert said == {(PushVerdict.REPEAT, "0-3"), (PushVerdict.APPLIED, "4-5")}
    assert [group.applied for group in state.groups] == [NEWER]


def test_a_gradient_of_the_lineage_before_is_discarded_by_what_was_kept_too(survivor):
    """Rules 6, 9: parameters beside it are others now."""
    state, _ = loaded(survivor, keeping(2))
    assert verdicts(state, span(30, 40), lineage=1)[1] == {(PushVerdict.STALE_LINEAGE, "0-5")}


@pytest.mark.parametrize(
    "wrong",
    [
        keeping(3, of=2),
        keeping(2, of=0),
        keeping(2, version=1),
        keeping(2, buckets=LOST),
        replace(keeping(2), buckets=LOST),
        order(2),
    ],
    ids=["later-lineage", "earlier-lineage", "version", "not-here", "not-owned", "not-named"],
)
def test_what_is_not_here_just_so_comes_from_the_base(survivor, wrong):
    """The server looks for itself: an order may name too much."""
    state, kept = loaded(survivor, wrong)
    assert not kept
    assert [(g.buckets, g.applied) for g in state.groups] == [(wrong.buckets, HEAD)]


def test_a_repeat_wipes_nothing_and_an_older_one_is_not_taken(survivor):
    """Rule 27."""
    state, _ = loaded(survivor, keeping(2))
    state, _ = verdicts(state, span(30, 40), lineage=2)
    assert after(state, keeping(2)) == (state, (NotifyMaster(message=Restored(lineage=Lineage(2))),))
    assert after(state, keeping(1, of=0)) == (state, ())
    assert after(state, replace(keeping(3, of=2), incarnation=Incarnation("another"))) == (state, ())


def test_what_is_handed_over_or_was_comes_from_the_base(survivor):
    """Rule 38: a frozen version never thaws, whatever it is called later."""
    there = ServerPlace(name=MemberName("s"), incarnation=Incarnation("there"), address="s:1", ordinal=1)
    freeze = Freeze(lineage=Lineage(1), bucket=BucketId(2), version=Version(0), target=there)
    state, _ = after(survivor, freeze)
    state, kept = loaded(state, keeping(2))
    assert kept == MINE - PositionSet.of(2)
    assert not any(group.is_frozen for group in state.groups)


def test_a_hold_and_a_fork_end(survivor):
    """Rule 30: a cut of the lineage before can become nothing."""
    cut = CutId(term=Term(1), lineage=Lineage(1), sequence=1)
    held, _ = after(survivor, Hold(cut=cut))
    forked, _ = after(held, Cut(cut=cut, data=NEWER | span(50, 51)))
    for state in (held, forked):
        ended, effects = after(state, keeping(2))
        assert ended.cut.phase is CutPhase.GONE
        assert (DropFork(cut=cut) in effects) == (state is forked)
        assert all(group.fork is None for group in ended.kept)


def test_staged_copies_and_floors_end(survivor):
    """Rules 39, 49: in the new lineage versions count from 0 again."""
    head = CopyHead(
        lineage=Lineage(1),
        bucket=BucketId(5),
        version=Version(1),
        target=HERE,
        is_final=True,
        applied=NEWER,
        skipped=EMPTY,
        digest="d",
    )
    state, _ = after(survivor, CopyArrived(head=head), Forget(lineage=Lineage(1), buckets=LOST, version=Version(0)))
    state, _ = loaded(state, keeping(2))
    assert state.moves == ServerState(incarnation=HERE).moves
    state, effects = after(state, Activate(lineage=Lineage(2), buckets=ALL, version=Version(1), since=Version(0)))
    assert {g.version for g in state.groups} == {1}, "the table may move them on as ever"
    assert effects


def test_the_durable_quarantine_holds_for_what_was_kept_too(survivor):
    """Rules 27, 31."""
    out = span(70, 75)
    state, _ = loaded(survivor, keeping(2, quarantine=out))
    assert {group.skipped for group in state.groups} == {out}


def test_while_the_rest_is_read_nobody_is_served_and_what_stays_is_not_lost(survivor):
    """A file that cannot be read leaves what was kept as it is; the same RESTORE may be tried again."""
    state, _ = after(survivor, keeping(2))
    assert verdicts(state, span(30, 40), lineage=2)[1] == {(PushVerdict.NOT_READY, "0-5")}
    state, effects = after(state, LoadFailed(lineage=Lineage(2), message="cut short"))
    assert effects == (NotifyMaster(message=RestoreFailed(lineage=Lineage(2), message="cut short")),)
    state, kept = loaded(state, keeping(2))
    assert kept == MINE
    assert {g.applied for g in state.groups} == {NEWER, HEAD}


def test_a_second_loss_while_the_rest_is_read_keeps_it_too(survivor):
    """Rule 28: what an unfinished RESTORE kept is of that one's lineage, at its version."""
    state, _ = after(survivor, keeping(2))
    state, kept = loaded(state, keeping(3, of=2, buckets=span(1, 6)))
    assert kept == span(1, 4)
    assert {(str(g.buckets), g.applied) for g in state.groups} == {("1-3", NEWER), ("0,4-5", HEAD)}


def test_a_second_order_of_an_earlier_lineage_keeps_nothing(survivor):
    """It would name what the order between has taken away."""
    state, _ = after(survivor, keeping(2))
    _, kept = loaded(state, keeping(3, of=1))
    assert not kept
