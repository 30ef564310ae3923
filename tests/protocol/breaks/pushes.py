"""Left out of buckets and of trainers: how records are named, marks, pushes and their answers (rules 1 to 14, 27)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from master.api.positions import EMPTY, PositionSet
from tests.protocol.breaks.left_out import Break
from tests.protocol.settings import Faults, Setting
from trainer_sdk.protocol import batches, leasing
from trainer_sdk.protocol import trainer_events as said_by_trainers
from trainer_sdk.pserver.core import fork, pushes, restore
from trainer_sdk.pserver.core import messages as server_messages

_push = pushes.handle_push
_verdict_of = pushes.verdict_of
_mark = pushes._PushEvaluation._mark
_file_written = fork.handle_file_written
_group = restore._group
_trainer_push = batches.handle_push_requested


def any_lineage(state: Any, event: Any, said: Any = None) -> Any:
    return _push(state, replace(event, lineage=state.lineage), said)


def first_position_decides(group: Any, positions: PositionSet, *, is_holding: bool) -> Any:
    if positions and positions.first(1) <= group.applied:
        return server_messages.PushVerdict.REPEAT, EMPTY
    return _verdict_of(replace(group, applied=EMPTY), positions, is_holding=is_holding)


def all_below_is_applied(evaluation: Any, group: Any, buckets: PositionSet) -> Any:
    after = _mark(evaluation, group, buckets)
    top = max((b for b in after.applied.bounds), default=0)
    return replace(after, applied=PositionSet.span(0, top))


def marks_dropped_once_written(state: Any, event: Any) -> Any:
    step = _file_written(state, event)
    if step.state is state:
        return step
    written = EMPTY
    for marks in event.file.marks:
        written |= marks.applied
    groups = tuple(replace(group, applied=group.applied - written) for group in step.state.groups)
    return replace(step, state=replace(step.state, groups=groups))


def restored_without_marks(order: Any, buckets: PositionSet, applied: PositionSet, skipped: PositionSet) -> Any:
    return _group(order, buckets, EMPTY, skipped)


def pushed_under_the_newest_lineage(state: Any, number: int) -> Any:
    return _trainer_push(replace(state, pulled=state.lineage), number)


def nothing_forgotten_but_leases(state: Any) -> Any:
    discards = tuple(said_by_trainers.Discard(flight=f.number) for f in state.flights)
    return replace(state, leases=(), parts=(), flights=(), is_acquiring=False), discards


def pushed_where_it_touches(state: Any, number: int) -> Any:
    """Position p touches bucket 0 always, bucket 1 only when p is odd."""
    flight = batches._find(state, number)
    if flight is not None and not flight.buckets and all(p % 2 == 0 for p in flight.positions):
        state = batches._with(state, replace(flight, buckets=PositionSet.of(0)))
    return _trainer_push(state, number)


ONE: Final = {"trainers": 1, "servers": 1, "buckets": 1}

CRASH: Final = Faults(server_crash=1)

BREAKS: Final = (
    Break(
        name="no-generation",
        rule="6: a push of another lineage is STALE_LINEAGE",
        patches=((pushes, "handle_push", any_lineage),),
        setting=Setting(faults=CRASH),
    ),
    Break(
        name="retry-across-rollback",
        rule="9: a push carries the lineage of its pull",
        patches=(
            (batches, "handle_push_requested", pushed_under_the_newest_lineage),
            (leasing, "_drop_all", nothing_forgotten_but_leases),
        ),
        setting=Setting(is_slow=True, trainers=1, faults=CRASH),
    ),
    Break(
        name="batch-identity",
        rule="1: work is named by positions, not by the first of them",
        patches=((pushes, "verdict_of", first_position_decides),),
        setting=Setting(servers=1, buckets=1, batches=(2, 1), pipeline=2, faults=Faults(pause=1)),
    ),
    Break(
        name="high-water",
        rule="8: a set, never one number",
        patches=((pushes._PushEvaluation, "_mark", all_below_is_applied),),
        setting=Setting(trainers=1, pipeline=2),
    ),
    Break(
        name="forget-closed",
        rule="8: marks are kept",
        patches=((fork, "handle_file_written", marks_dropped_once_written),),
        setting=Setting(),
    ),
    Break(
        name="sparse-silent",
        rule="7: every batch goes to every bucket",
        patches=((batches, "handle_push_requested", pushed_where_it_touches),),
        setting=Setting(trainers=1),
    ),
    Break(
        name="marks-not-restored",
        rule="27: marks come from the base",
        patches=((restore, "_group", restored_without_marks),),
        setting=Setting(**ONE, faults=CRASH),
    ),
)
