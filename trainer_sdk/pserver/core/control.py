"""Everything that a parameter server decides besides pushes: the master's orders, and what the shell reports.

`handle` is the one table of events; cuts are decided in `fork`, moves in `bucket_moves`, RESTORE in `restore`, SKIP and
the question for marks here.  Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from master.api.messages import (
    Activate,
    AskMarks,
    Cut,
    Drop,
    Forget,
    Freeze,
    Hold,
    MarksReport,
    Restore,
    Skip,
    SkipAnswer,
    Warm,
)
from master.api.positions import EMPTY
from trainer_sdk.pserver.core import bucket_moves, fork
from trainer_sdk.pserver.core.effects import (
    CopyArrived,
    Event,
    FileFailed,
    FileWritten,
    ForkExpired,
    FullWanted,
    HoldExpired,
    LoadFailed,
    ModelLoaded,
    Tell,
)
from trainer_sdk.pserver.core.restore import load_failed, model_loaded, restore
from trainer_sdk.pserver.core.server_state import Group, ServerState, Step, live_marks, merged


def handle(state: ServerState, event: Event, now_s: float) -> Step:  # noqa: C901, PLR0912 - one case per event
    """Takes everything but pushes.  `now_s` is a monotonic clock, read for nothing but new deadlines."""
    match event:
        case Hold():
            return fork.hold(state, event, now_s)
        case Cut():
            return fork.cut(state, event, now_s)
        case Drop():
            return fork.drop(state, event)
        case HoldExpired():
            return fork.hold_expired(state, event)
        case ForkExpired():
            return fork.fork_expired(state, event)
        case FileWritten():
            return fork.file_written(state, event)
        case FileFailed():
            return fork.file_failed(state, event)
        case Skip():
            return skip(state, event)
        case Warm():
            return bucket_moves.warm(state, event)
        case Freeze():
            return bucket_moves.freeze(state, event)
        case FullWanted():
            return bucket_moves.full_wanted(state, event)
        case CopyArrived():
            return bucket_moves.copy_arrived(state, event)
        case Activate():
            return bucket_moves.activate(state, event)
        case Forget():
            return bucket_moves.forget(state, event)
        case AskMarks():
            marks = live_marks(state) if state.is_ready and state.lineage == event.lineage else ()
            return Step(state, (Tell(message=MarksReport(lineage=event.lineage, marks=marks)),))
        case Restore():
            return restore(state, event)
        case ModelLoaded():
            return model_loaded(state, event)
        case LoadFailed():
            return load_failed(state, event)
        case _:
            assert_never(event)


def deadline(state: ServerState) -> tuple[float, HoldExpired | ForkExpired] | None:
    """When the shell is to hand in which event unless the state has changed by then; None: no deadline runs."""
    cut = state.cut
    if cut is None or cut.deadline_s is None:
        return None
    return cut.deadline_s, HoldExpired(cut=cut.cut) if state.is_holding else ForkExpired(cut=cut.cut)


def skip(state: ServerState, event: Skip) -> Step:
    """Marks what is not applied yet as skipped, and answers which buckets skip some of it and which have applied some.

    A bucket may be in both.  A repeat gets the same answer.  A server of another lineage names its own and no bucket;
    of a bucket that is frozen or staged nothing is said: its owner is asked again (rule 60).
    """
    skipped = applied = EMPTY
    groups: list[Group] = []
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
    answer = Tell(
        message=SkipAnswer(
            lineage=state.lineage,
            positions=event.positions,
            skipped=skipped,
            applied=applied,
            of_backups=event.of_backups,
        )
    )
    if not skipped:
        return Step(state, (answer,))
    after = replace(state, groups=merged(groups))
    after, effects = fork.given_up_if_hopeless(after)
    return Step(after, (answer, *effects))
