"""Event table of a parameter server: all decisions except pushes, on the master's orders and the shell's reports.

`handle` is the one table of events; cuts are decided in `fork`, moves in `bucket_moves`, RESTORE in `restore`, SKIP and
the request for marks here.  FREEZE comes by way of `transfer.bucket_transfer`, once the bucket's rows are at the
target.  Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from master.api.messages.from_members import MarksReport, SkipAnswer
from master.api.messages.to_members import Activate, AskMarks, Cut, Drop, Forget, Freeze, Hold, Restore, Skip
from master.api.positions import EMPTY
from trainer_sdk.pserver.core import bucket_moves, fork
from trainer_sdk.pserver.core.restore import handle_load_failed, handle_model_loaded, handle_restore
from trainer_sdk.pserver.core.server_events import (
    CopyArrived,
    FileFailed,
    FileWritten,
    ForkTimedOut,
    FullCopyRequested,
    HoldTimedOut,
    LoadFailed,
    ModelLoaded,
    NotifyMaster,
    ServerEvent,
    WarmCopyRequested,
)
from trainer_sdk.pserver.core.server_state import BucketGroup, ServerState, ServerStep, live_marks, merge_groups


def handle(state: ServerState, event: ServerEvent, now_s: float) -> ServerStep:  # noqa: C901, PLR0912 - one case per event
    """Handles every event but pushes.  `now_s`, on a monotonic clock, only sets new deadlines."""
    match event:
        case Hold():
            return fork.handle_hold(state, event, now_s)
        case Cut():
            return fork.handle_cut(state, event, now_s)
        case Drop():
            return fork.handle_drop(state, event)
        case HoldTimedOut():
            return fork.handle_hold_timed_out(state, event)
        case ForkTimedOut():
            return fork.handle_fork_timed_out(state, event)
        case FileWritten():
            return fork.handle_file_written(state, event)
        case FileFailed():
            return fork.handle_file_failed(state, event)
        case Skip():
            return handle_skip(state, event)
        case WarmCopyRequested():
            return bucket_moves.handle_warm_copy_requested(state, event)
        case Freeze():
            return bucket_moves.handle_freeze(state, event)
        case FullCopyRequested():
            return bucket_moves.handle_full_copy_requested(state, event)
        case CopyArrived():
            return bucket_moves.handle_copy_arrived(state, event)
        case Activate():
            return bucket_moves.handle_activate(state, event)
        case Forget():
            return bucket_moves.handle_forget(state, event)
        case AskMarks():
            marks = live_marks(state) if state.is_ready and state.lineage == event.lineage else ()
            return ServerStep(state, (NotifyMaster(message=MarksReport(lineage=event.lineage, marks=marks)),))
        case Restore():
            return handle_restore(state, event)
        case ModelLoaded():
            return handle_model_loaded(state, event)
        case LoadFailed():
            return handle_load_failed(state, event)
        case _:
            assert_never(event)


def next_deadline(state: ServerState) -> tuple[float, HoldTimedOut | ForkTimedOut] | None:
    """The next deadline (monotonic clock) and the event that the shell hands in then; None: no deadline runs."""
    cut = state.cut
    if cut is None or cut.deadline_s is None:
        return None
    return cut.deadline_s, HoldTimedOut(cut=cut.cut) if state.is_holding else ForkTimedOut(cut=cut.cut)


def handle_skip(state: ServerState, event: Skip) -> ServerStep:
    """SKIP: positions that no bucket is to apply any more (rule 31); it proceeds while a cut holds pushes.

    Positions that are not applied yet become skipped.  The answer names the buckets that skip some and those that have
    applied some; a bucket may be in both, and a repeat gets the same answer.  A server of another lineage names its
    own and no bucket.  Frozen and staged buckets are left out: the master asks their owner again (rule 60).
    """
    skipped = applied = EMPTY
    groups: list[BucketGroup] = []
    if state.is_ready and state.lineage == event.lineage:
        for group in state.groups:
            if group.is_frozen or group.is_backup is not event.of_backups:
                groups.append(group)
                continue
            missing = event.positions - group.applied
            if missing:
                skipped |= group.buckets
            if missing != event.positions:
                applied |= group.buckets
            groups.append(replace(group, skipped=group.skipped | missing))
    answer = NotifyMaster(
        message=SkipAnswer(
            lineage=state.lineage,
            positions=event.positions,
            skipped=skipped,
            applied=applied,
            of_backups=event.of_backups,
        )
    )
    if not skipped:
        return ServerStep(state, (answer,))
    after = replace(state, groups=merge_groups(groups))
    after, effects = fork.end_if_hopeless(after)
    return ServerStep(after, (answer, *effects))
