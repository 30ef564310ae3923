"""Pushes in the parameter server's core: rule 6, in its order, for each bucket by itself."""

from dataclasses import replace

import pytest

from master.api.identities import Incarnation, Lineage, Version
from master.api.messages.checkpoint_files import BucketMarks
from master.api.messages.from_members import MarksReport, Restored, RestoreFailed, SkipAnswer
from master.api.messages.to_members import AskMarks, Restore, Skip
from master.api.positions import EMPTY, PositionSet
from trainer_sdk.pserver.core.event_table import handle
from trainer_sdk.pserver.core.messages import Push, PushTarget, PushVerdict, Ruling
from trainer_sdk.pserver.core.pushes import handle_push
from trainer_sdk.pserver.core.server_events import ApplyLive, LoadFailed, LoadModel, ModelLoaded, NotifyMaster
from trainer_sdk.pserver.core.server_state import ServerState, check_state

ALL = PositionSet.span(0, 8)
RESTORE = Restore(
    incarnation=Incarnation("i"),
    lineage=Lineage(1),
    base=None,
    files=(),
    data=EMPTY,
    quarantine=EMPTY,
    tables=(),
    bucket_count=8,
    buckets=ALL,
    version=Version(0),
)


def span(start, stop):
    return PositionSet.span(start, stop)


def batch(positions, buckets=ALL, *, lineage=1, version=0):
    target = PushTarget(buckets=buckets, version=Version(version))
    return Push(lineage=Lineage(lineage), positions=positions, targets=(target,))


@pytest.fixture
def empty():
    return ServerState(incarnation=Incarnation("i"))


@pytest.fixture
def ready(empty):
    return loaded(empty, RESTORE)


def loaded(state, order, marks=()):
    taken = handle(state, order, 0.0)
    assert LoadModel(restore=order) in taken.effects
    done = handle(taken.state, ModelLoaded(lineage=order.lineage, marks=marks), 0.0)
    assert done.effects == (NotifyMaster(message=Restored(lineage=order.lineage)),)
    check_state(done.state)
    return done.state


def pushed(state, event):
    step = handle_push(state, event)
    check_state(step.state)
    return step


def verdicts(step):
    return {(r.verdict, str(r.buckets), str(r.positions)) for r in step.answer.rulings}


def test_first_push_is_applied_to_every_bucket_and_marked(ready):
    """APPLIED: the gradient goes to all buckets once, and all are marked (rules 5 to 7)."""
    step = pushed(ready, batch(span(0, 4)))
    assert step.answer.rulings == (Ruling(buckets=ALL, verdict=PushVerdict.APPLIED),)
    assert step.effects == (ApplyLive(buckets=ALL),)
    assert [g.applied for g in step.state.groups] == [span(0, 4)]


def test_push_that_comes_twice_is_a_repeat_and_applies_nothing(ready):
    """M1: each position at most once."""
    first = pushed(ready, batch(span(0, 4)))
    second = pushed(first.state, batch(span(0, 4)))
    assert verdicts(second) == {(PushVerdict.REPEAT, "0-7", "none")}
    assert second.effects == ()
    assert second.state == first.state


def test_push_of_some_applied_positions_names_the_missing_ones(ready):
    """OVERLAP names what is to be computed; nothing is applied (rule 11)."""
    first = pushed(ready, batch(span(0, 4)))
    second = pushed(first.state, batch(span(2, 6)))
    assert verdicts(second) == {(PushVerdict.OVERLAP, "0-7", "4-5")}
    assert second.state == first.state


def test_push_to_some_buckets_leaves_the_others_to_be_judged_by_themselves(ready):
    """Verdicts are per bucket (rule 6), and buckets that become equal share their sets again (rule 5)."""
    first = pushed(ready, batch(span(0, 4), span(0, 3)))
    assert len(first.state.groups) == 2
    second = pushed(first.state, batch(span(0, 4)))
    assert verdicts(second) == {(PushVerdict.REPEAT, "0-2", "none"), (PushVerdict.APPLIED, "3-7", "none")}
    assert second.effects == (ApplyLive(buckets=span(3, 8)),)
    assert len(second.state.groups) == 1


def test_bucket_named_by_two_targets_gets_the_gradient_once(ready):
    """However a push is put together, a bucket is in one Apply effect at most."""
    target = PushTarget(buckets=span(0, 3), version=Version(0))
    step = pushed(ready, replace(batch(span(0, 4)), targets=(target, target)))
    assert step.effects == (ApplyLive(buckets=span(0, 3)),)


def test_push_without_positions_applies_nothing(ready):
    """It could not be recognised when it comes again."""
    step = pushed(ready, batch(EMPTY))
    assert verdicts(step) == {(PushVerdict.REPEAT, "0-7", "none")}
    assert step.effects == ()


@pytest.mark.parametrize(
    ("event", "verdict"),
    [
        (batch(span(0, 4), lineage=2, version=9), PushVerdict.STALE_LINEAGE),
        (batch(span(0, 4), version=9), PushVerdict.MOVED),
        (batch(span(0, 4), span(8, 9)), PushVerdict.MOVED),
        (batch(span(2, 6)), PushVerdict.SKIPPED),
        (batch(span(0, 2)), PushVerdict.REPEAT),
        (batch(span(0, 2) | span(9, 11)), PushVerdict.OVERLAP),
    ],
)
def test_refusals_are_asked_in_the_order_of_rule_6(ready, event, verdict):
    """Lineage before version before skipped before applied."""
    applied = pushed(ready, batch(span(0, 4))).state
    state = handle(applied, Skip(lineage=Lineage(1), positions=span(4, 6)), 0.0).state
    step = pushed(state, event)
    assert {r.verdict for r in step.answer.rulings} == {verdict}
    assert step.effects == ()


def test_push_to_a_server_without_a_model_is_not_ready(empty):
    """NOT_READY comes first, also while a model is being loaded."""
    loading = handle(empty, RESTORE, 0.0).state
    for state in (empty, loading):
        assert verdicts(handle_push(state, batch(span(0, 4)))) == {(PushVerdict.NOT_READY, "0-7", "none")}


def test_skip_reports_buckets_that_applied_and_buckets_that_never_will(ready):
    """Rule 31: some buckets have it, some skip it; the same answer to a repeat."""
    state = pushed(ready, batch(span(0, 2), span(0, 3))).state
    order = Skip(lineage=Lineage(1), positions=span(0, 2))
    first = handle(state, order, 0.0)
    check_state(first.state)
    answer = SkipAnswer(lineage=Lineage(1), positions=span(0, 2), skipped=span(3, 8), applied=span(0, 3))
    assert first.effects == (NotifyMaster(message=answer),)
    assert handle(first.state, order, 0.0).effects == first.effects
    assert verdicts(handle_push(first.state, batch(span(0, 2)))) == {
        (PushVerdict.REPEAT, "0-2", "none"),
        (PushVerdict.SKIPPED, "3-7", "0-1"),
    }


def test_restore_is_for_this_process_and_for_newer_lineages_only(ready):
    """Rule 27: a repeat must not wipe newer work."""
    state = pushed(ready, batch(span(0, 4))).state
    for stale in (
        replace(RESTORE, incarnation=Incarnation("another")),
        replace(RESTORE, incarnation=Incarnation("another"), lineage=Lineage(5)),
    ):
        assert handle(state, stale, 0.0).state == state
    again = handle(state, RESTORE, 0.0)
    assert again.state == state
    assert again.effects == (NotifyMaster(message=Restored(lineage=Lineage(1))),)


def test_restore_takes_marks_of_the_files_and_the_quarantine(ready):
    """Rules 26 and 27: marks come with the parameters, the quarantine holds for every bucket."""
    newer = replace(RESTORE, lineage=Lineage(2), quarantine=span(9, 10))
    marks = (BucketMarks(buckets=span(0, 6), applied=span(0, 4), skipped=span(5, 6)),)
    state = loaded(ready, newer, marks)
    by_bucket = {str(g.buckets): (str(g.applied), str(g.skipped)) for g in state.groups}
    assert by_bucket == {"0-5": ("0-3", "5,9"), "6-7": ("none", "9")}
    assert verdicts(handle_push(state, batch(span(0, 4)))) == {(PushVerdict.STALE_LINEAGE, "0-7", "none")}


def test_failed_restore_may_be_tried_again_but_no_older_one(ready):
    """The server holds no model then, and an order that is late is not taken."""
    newer = replace(RESTORE, lineage=Lineage(3))
    taken = handle(ready, newer, 0.0).state
    failed = handle(taken, LoadFailed(lineage=Lineage(3), message="file x: cut short"), 0.0)
    assert failed.effects == (NotifyMaster(message=RestoreFailed(lineage=Lineage(3), message="file x: cut short")),)
    assert handle(failed.state, replace(RESTORE, lineage=Lineage(2)), 0.0).effects == ()
    assert loaded(failed.state, newer).lineage == 3


def test_model_of_an_overtaken_restore_is_not_used(ready):
    """A newer RESTORE arrives while an older one is being loaded."""
    older = handle(ready, replace(RESTORE, lineage=Lineage(2)), 0.0).state
    newer = handle(older, replace(RESTORE, lineage=Lineage(3)), 0.0).state
    late = handle(newer, ModelLoaded(lineage=Lineage(2), marks=()), 0.0)
    assert late.state == newer
    assert not late.state.is_ready


def test_marks_are_reported_for_the_lineage_asked_for_only(ready):
    """Rule 17; of another lineage this server holds nothing."""
    state = pushed(ready, batch(span(0, 4))).state
    marks = (BucketMarks(buckets=ALL, applied=span(0, 4)),)
    asked = handle(state, AskMarks(lineage=Lineage(1)), 0.0)
    assert asked.effects == (NotifyMaster(message=MarksReport(lineage=Lineage(1), marks=marks)),)
    other = handle(state, AskMarks(lineage=Lineage(2)), 0.0)
    assert other.effects == (NotifyMaster(message=MarksReport(lineage=Lineage(2), marks=())),)
