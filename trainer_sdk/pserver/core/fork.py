"""A cut on one server: HOLD, CUT, the fork, and its end (rules 19 to 21).

The problem: a checkpoint must be of one data state in all buckets of all servers while trainers keep pushing.  At HOLD
pushes wait.  At CUT, one round trip later, every bucket is forked by copy on write, and the fork *wants* the cut's
positions D less those that it has applied.  A push of wanted positions goes to the live bucket *and* to the fork, any
other push to the live bucket alone: the fork becomes exactly D, and no push waits.  Then its file is written, once.

    HELD -> OPEN -> SEALED -> WRITTEN, and from each of the first three -> GONE: the id is never taken again

Verdicts on pushes are in `pushes`; copy on write is in `tables`, the file in `transfer.checkpoint_file`.  Pure.
"""

from __future__ import annotations

from dataclasses import replace

from master.api.identities import CutId
from master.api.messages.from_members import CutRefusal, CutRefused, CutTaken, Held, Written
from master.api.messages.to_members import Cut, Drop, Hold
from master.api.positions import PositionSet
from trainer_sdk.pserver.core.server_events import (
    DropFork,
    FileFailed,
    FileWritten,
    ForkTimedOut,
    HoldTimedOut,
    NotifyMaster,
    OpenFork,
    ServerEffect,
    WriteFork,
)
from trainer_sdk.pserver.core.server_state import (
    FORKED,
    BucketGroup,
    CutPhase,
    CutState,
    ForkMarks,
    ServerState,
    ServerStep,
    fork_marks,
    live_marks,
    merge_groups,
    split_groups,
)


def age(cut: CutId) -> tuple[int, int, int]:
    """Sort key: newer cuts are larger.  Lineage comes first: terms are compared within one lineage only (rule 29)."""
    return cut.lineage, cut.term, cut.sequence


def handle_hold(state: ServerState, event: Hold, now_s: float) -> ServerStep:
    """Answers HELD with the marks, the first answer again, or a refusal; a newer id ends an older cut (rule 19)."""
    known = state.cut
    if not state.is_ready:
        return _refuse(state, event.cut, CutRefusal.NOT_READY)
    if event.cut.lineage != state.lineage:
        return _refuse(state, event.cut, CutRefusal.STALE_LINEAGE)
    if known is not None and age(event.cut) < age(known.cut):
        return _refuse(state, event.cut, CutRefusal.OLD)
    if known is not None and event.cut == known.cut:
        if known.held_answer is None or known.phase in {CutPhase.GONE, CutPhase.WRITTEN}:
            return _refuse(state, event.cut, CutRefusal.GONE)
        return ServerStep(state, (NotifyMaster(message=known.held_answer),))
    after, effects = end_cut(state)
    held = Held(cut=event.cut, marks=live_marks(after))
    deadline_s = now_s + state.limits.hold_s
    holding = CutState(cut=event.cut, phase=CutPhase.HELD, held_answer=held, deadline_s=deadline_s, listed=after.active)
    return ServerStep(replace(after, cut=holding), (*effects, NotifyMaster(message=held)))


def handle_cut(state: ServerState, event: Cut, now_s: float) -> ServerStep:
    """Forks the buckets that HELD listed and no others (20, 58); a repeat gets the same answer, other cuts GONE."""
    known = state.cut
    if known is None or known.cut != event.cut:
        return _refuse(state, event.cut, CutRefusal.GONE)
    match known.phase:
        case CutPhase.OPEN | CutPhase.SEALED:
            return ServerStep(state, (NotifyMaster(message=CutTaken(cut=event.cut)),))
        case CutPhase.WRITTEN if known.file is not None:
            return ServerStep(state, (NotifyMaster(message=Written(cut=event.cut, file=known.file)),))
        case CutPhase.HELD if _can_fork_all(state, known, event.data):
            return _forked(state, known, event.data, now_s)
        case CutPhase.HELD:
            after, effects = end_cut(state)
            return ServerStep(after, (*effects, *_refuse(after, event.cut, CutRefusal.GONE).effects))
        case _:
            return _refuse(state, event.cut, CutRefusal.GONE)


def handle_drop(state: ServerState, event: Drop) -> ServerStep:
    """Ends the cut; one that is not known yet is refused when its HOLD arrives."""
    known = state.cut
    if known is not None and age(event.cut) < age(known.cut):
        return ServerStep(state)
    after, effects = end_cut(state)
    if known is None or known.cut != event.cut:
        after = replace(after, cut=CutState(cut=event.cut, phase=CutPhase.GONE))
    return ServerStep(after, effects)


def handle_hold_timed_out(state: ServerState, event: HoldTimedOut) -> ServerStep:
    """Ends the hold: a server holds pushes no longer than its own deadline (rule 19)."""
    return _end_if_in(state, event.cut, CutPhase.HELD, CutRefusal.GONE, "no CUT came in time")


def handle_fork_timed_out(state: ServerState, event: ForkTimedOut) -> ServerStep:
    """Ends the fork: the wanted positions did not come in time (rule 21)."""
    return _end_if_in(state, event.cut, CutPhase.OPEN, CutRefusal.GONE, "the positions of the cut did not come in time")


def handle_file_written(state: ServerState, event: FileWritten) -> ServerStep:
    """Drops the fork and reports WRITTEN, again if CUT is repeated."""
    known = state.cut
    if known is None or known.cut != event.cut or known.phase is not CutPhase.SEALED:
        return ServerStep(state)
    after, effects = end_cut(state)
    written = replace(known, phase=CutPhase.WRITTEN, file=event.file, deadline_s=None)
    return ServerStep(
        replace(after, cut=written), (*effects, NotifyMaster(message=Written(cut=event.cut, file=event.file)))
    )


def handle_file_failed(state: ServerState, event: FileFailed) -> ServerStep:
    """Ends the cut; training continues."""
    return _end_if_in(state, event.cut, CutPhase.SEALED, CutRefusal.FAILED, event.message)


def mark_fork(fork: ForkMarks, positions: PositionSet) -> ForkMarks:
    """The fork's marks after a push of wanted positions."""
    return ForkMarks(applied=fork.applied | positions, skipped=fork.skipped, wanted=fork.wanted - positions)


def seal_if_complete(state: ServerState) -> tuple[ServerState, tuple[WriteFork, ...]]:
    """Seals an open fork that wants nothing any more: it changes no more, and its file may be written."""
    known = state.cut
    if known is None or known.phase is not CutPhase.OPEN or any(g.fork and g.fork.wanted for g in state.groups):
        return state, ()
    sealed = replace(state, cut=replace(known, phase=CutPhase.SEALED, deadline_s=None))
    return sealed, (WriteFork(cut=known.cut, marks=fork_marks(state.groups, known.departed)),)


def end_if_hopeless(state: ServerState) -> tuple[ServerState, tuple[ServerEffect, ...]]:
    """Ends a fork that wants skipped positions: they are never applied, so it would wait for its time limit."""
    known = state.cut
    if known is None or known.phase is not CutPhase.OPEN:
        return state, ()
    if all(g.fork is None or g.fork.wanted.isdisjoint(g.skipped) for g in state.groups):
        return state, ()
    return end_fork(state, CutRefusal.GONE, "a position of the cut was quarantined")


def end_cut(state: ServerState) -> tuple[ServerState, tuple[ServerEffect, ...]]:
    """Ends hold and fork; the cut's id is remembered, so that it is never taken again."""
    known = state.cut
    if known is None or known.phase in {CutPhase.GONE, CutPhase.WRITTEN}:
        return state, ()
    dropped = CutState(cut=known.cut, phase=CutPhase.GONE)
    if known.phase not in FORKED:
        return replace(state, cut=dropped), ()
    groups = merge_groups(replace(group, fork=None) for group in state.groups)
    return replace(state, cut=dropped, groups=groups), (DropFork(cut=known.cut),)


def _forked(state: ServerState, known: CutState, data: PositionSet, now_s: float) -> ServerStep:
    listed, others = split_groups(state.groups, known.listed)
    groups = merge_groups((*others, *(_forked_group(group, data) for group in listed)))
    opened = replace(known, phase=CutPhase.OPEN, deadline_s=now_s + state.limits.fork_s)
    after, writes = seal_if_complete(replace(state, groups=groups, cut=opened))
    return ServerStep(
        after, (OpenFork(cut=known.cut, buckets=known.listed), NotifyMaster(message=CutTaken(cut=known.cut)), *writes)
    )


def _can_fork_all(state: ServerState, known: CutState, data: PositionSet) -> bool:
    """True if every listed bucket is still here and can be forked."""
    listed, _ = split_groups(state.groups, known.listed)
    return state.has(known.listed) and all(_can_fork(group, data) for group in listed)


def _can_fork(group: BucketGroup, data: PositionSet) -> bool:
    """True if the marks lie inside D and the bucket may still apply the rest: not frozen, not skipped (rule 58)."""
    missing = data - group.applied
    return group.applied <= data and missing.isdisjoint(group.skipped) and not (missing and group.is_frozen)


def _forked_group(group: BucketGroup, data: PositionSet) -> BucketGroup:
    forked = ForkMarks(applied=group.applied, skipped=group.skipped, wanted=data - group.applied)
    return replace(group, fork=forked)


def end_fork(state: ServerState, reason: CutRefusal, message: str) -> tuple[ServerState, tuple[ServerEffect, ...]]:
    """Ends the open fork and notifies the master."""
    if state.cut is None:
        return state, ()
    step = _end_if_in(state, state.cut.cut, CutPhase.OPEN, reason, message)
    return step.state, step.effects


def _end_if_in(state: ServerState, cut: CutId, phase: CutPhase, reason: CutRefusal, message: str) -> ServerStep:
    """Ends this cut if it is in that phase, and notifies the master."""
    if state.cut is None or state.cut.cut != cut or state.cut.phase is not phase:
        return ServerStep(state)
    after, effects = end_cut(state)
    return ServerStep(after, (*effects, NotifyMaster(message=CutRefused(cut=cut, reason=reason, message=message))))


def _refuse(state: ServerState, cut: CutId, reason: CutRefusal) -> ServerStep:
    return ServerStep(state, (NotifyMaster(message=CutRefused(cut=cut, reason=reason)),))
