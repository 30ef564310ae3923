"""A cut on one server: HOLD, CUT, the fork, and its end (rules 19 to 21).

The problem: a checkpoint must be of one data state in all buckets of all servers while trainers go on pushing.  At HOLD
pushes wait; at CUT, one round trip later, every bucket is forked by copy on write and wants what the cut's positions D
name and it has not applied.  A push of wanted positions goes to the live bucket *and* to the fork, any other push to
the live bucket alone; so the fork becomes exactly D without anybody's waiting.  Then its file is written, once.

    HELD -> OPEN -> SEALED -> WRITTEN, and from each of the first three -> GONE: the id is never taken again

The judgement of pushes is in `bucket`, the copies in `tables`, the file in `checkpoint_file`.  Pure.
"""

from __future__ import annotations

from dataclasses import replace

from master.api.identities import CutId
from master.api.messages import Cut, CutRefused, CutTaken, Drop, Held, Hold, Refusal, Written
from master.api.positions import PositionSet
from trainer_sdk.pserver.core.effects import (
    DropFork,
    Effect,
    FileFailed,
    FileWritten,
    ForkExpired,
    HoldExpired,
    OpenFork,
    Tell,
    WriteFork,
)
from trainer_sdk.pserver.core.server_state import (
    FORKED,
    CutState,
    ForkMarks,
    Group,
    Phase,
    ServerState,
    Step,
    apart,
    fork_marks,
    live_marks,
    merged,
)


def age(cut: CutId) -> tuple[int, int, int]:
    """Newer cuts are larger.  Lineage first: terms are compared within one lineage only (rule 29)."""
    return cut.lineage, cut.term, cut.sequence


def hold(state: ServerState, event: Hold, now_s: float) -> Step:
    """HELD with the marks, or the first answer again, or refused; a newer id ends an older hold or fork (rule 19)."""
    known = state.cut
    if not state.is_ready:
        return _refuse(state, event.cut, Refusal.NOT_READY)
    if event.cut.lineage != state.lineage:
        return _refuse(state, event.cut, Refusal.STALE_LINEAGE)
    if known is not None and age(event.cut) < age(known.cut):
        return _refuse(state, event.cut, Refusal.OLD)
    if known is not None and event.cut == known.cut:
        if known.held is None or known.phase in {Phase.GONE, Phase.WRITTEN}:
            return _refuse(state, event.cut, Refusal.GONE)
        return Step(state, (Tell(message=known.held),))
    after, effects = ended(state)
    held = Held(cut=event.cut, marks=live_marks(after))
    deadline_s = now_s + state.limits.hold_s
    holding = CutState(cut=event.cut, phase=Phase.HELD, held=held, deadline_s=deadline_s, listed=after.active)
    return Step(replace(after, cut=holding), (*effects, Tell(message=held)))


def cut(state: ServerState, event: Cut, now_s: float) -> Step:
    """Forks every bucket that was listed and nothing else; the same answer to a repeat; otherwise GONE (20, 58)."""
    known = state.cut
    if known is None or known.cut != event.cut:
        return _refuse(state, event.cut, Refusal.GONE)
    match known.phase:
        case Phase.OPEN | Phase.SEALED:
            return Step(state, (Tell(message=CutTaken(cut=event.cut)),))
        case Phase.WRITTEN if known.file is not None:
            return Step(state, (Tell(message=Written(cut=event.cut, file=known.file)),))
        case Phase.HELD if _can_fork_all(state, known, event.data):
            return _forked(state, known, event.data, now_s)
        case Phase.HELD:
            after, effects = ended(state)
            return Step(after, (*effects, *_refuse(after, event.cut, Refusal.GONE).effects))
        case _:
            return _refuse(state, event.cut, Refusal.GONE)


def drop(state: ServerState, event: Drop) -> Step:
    """The cut is over; if it has not been heard of yet, it will not be taken when its HOLD arrives."""
    known = state.cut
    if known is not None and age(event.cut) < age(known.cut):
        return Step(state)
    after, effects = ended(state)
    if known is None or known.cut != event.cut:
        after = replace(after, cut=CutState(cut=event.cut, phase=Phase.GONE))
    return Step(after, effects)


def hold_expired(state: ServerState, event: HoldExpired) -> Step:
    """Goes on without the cut: a server holds pushes for no longer than its own deadline (rule 19)."""
    return _given_up(state, event.cut, Phase.HELD, Refusal.GONE, "no CUT came in time")


def fork_expired(state: ServerState, event: ForkExpired) -> Step:
    """The copies are released: what the cut wanted did not come in time (rule 21)."""
    return _given_up(state, event.cut, Phase.OPEN, Refusal.GONE, "the positions of the cut did not come in time")


def file_written(state: ServerState, event: FileWritten) -> Step:
    """WRITTEN, and again if CUT is repeated; the fork is dropped."""
    known = state.cut
    if known is None or known.cut != event.cut or known.phase is not Phase.SEALED:
        return Step(state)
    after, effects = ended(state)
    written = replace(known, phase=Phase.WRITTEN, file=event.file, deadline_s=None)
    return Step(replace(after, cut=written), (*effects, Tell(message=Written(cut=event.cut, file=event.file))))


def file_failed(state: ServerState, event: FileFailed) -> Step:
    """The cut is given up, training goes on."""
    return _given_up(state, event.cut, Phase.SEALED, Refusal.FAILED, event.message)


def marked(fork: ForkMarks, positions: PositionSet) -> ForkMarks:
    """The fork after a push that lies inside what it wants."""
    return ForkMarks(applied=fork.applied | positions, skipped=fork.skipped, wanted=fork.wanted - positions)


def sealed_if_complete(state: ServerState) -> tuple[ServerState, tuple[WriteFork, ...]]:
    """An open fork that wants nothing any more is immutable from here on: its file may be written."""
    known = state.cut
    if known is None or known.phase is not Phase.OPEN or any(g.fork and g.fork.wanted for g in state.groups):
        return state, ()
    sealed = replace(state, cut=replace(known, phase=Phase.SEALED, deadline_s=None))
    return sealed, (WriteFork(cut=known.cut, marks=fork_marks(state.groups, known.left)),)


def given_up_if_hopeless(state: ServerState) -> tuple[ServerState, tuple[Effect, ...]]:
    """After a SKIP: a fork that wants what will never be applied would only wait for its time limit."""
    known = state.cut
    if known is None or known.phase is not Phase.OPEN:
        return state, ()
    if all(g.fork is None or g.fork.wanted.isdisjoint(g.skipped) for g in state.groups):
        return state, ()
    return given_up(state, Refusal.GONE, "a position of the cut was quarantined")


def ended(state: ServerState) -> tuple[ServerState, tuple[Effect, ...]]:
    """No hold and no fork any more; the id of the newest cut is remembered, so that it is not taken again."""
    known = state.cut
    if known is None or known.phase in {Phase.GONE, Phase.WRITTEN}:
        return state, ()
    gone = CutState(cut=known.cut, phase=Phase.GONE)
    if known.phase not in FORKED:
        return replace(state, cut=gone), ()
    groups = merged(replace(group, fork=None) for group in state.groups)
    return replace(state, cut=gone, groups=groups), (DropFork(cut=known.cut),)


def _forked(state: ServerState, known: CutState, data: PositionSet, now_s: float) -> Step:
    listed, others = apart(state.groups, known.listed)
    groups = merged((*others, *(_forked_group(group, data) for group in listed)))
    opened = replace(known, phase=Phase.OPEN, deadline_s=now_s + state.limits.fork_s)
    after, writes = sealed_if_complete(replace(state, groups=groups, cut=opened))
    return Step(after, (OpenFork(cut=known.cut, buckets=known.listed), Tell(message=CutTaken(cut=known.cut)), *writes))


def _can_fork_all(state: ServerState, known: CutState, data: PositionSet) -> bool:
    """All that was listed is still here, and can be forked."""
    listed, _ = apart(state.groups, known.listed)
    return state.has(known.listed) and all(_can_fork(group, data) for group in listed)


def _can_fork(group: Group, data: PositionSet) -> bool:
    """Marks inside D; what it lacks of D it may still apply: it is not frozen, and skips nothing of that (rule 58)."""
    missing = data - group.applied
    return group.applied <= data and missing.isdisjoint(group.skipped) and not (missing and group.is_frozen)


def _forked_group(group: Group, data: PositionSet) -> Group:
    forked = ForkMarks(applied=group.applied, skipped=group.skipped, wanted=data - group.applied)
    return replace(group, fork=forked)


def given_up(state: ServerState, reason: Refusal, message: str) -> tuple[ServerState, tuple[Effect, ...]]:
    """Ends the open fork, and tells the master."""
    if state.cut is None:
        return state, ()
    step = _given_up(state, state.cut.cut, Phase.OPEN, reason, message)
    return step.state, step.effects


def _given_up(state: ServerState, cut: CutId, phase: Phase, reason: Refusal, message: str) -> Step:
    """Ends the cut if it is the one meant and in that phase, and tells the master."""
    if state.cut is None or state.cut.cut != cut or state.cut.phase is not phase:
        return Step(state)
    after, effects = ended(state)
    return Step(after, (*effects, Tell(message=CutRefused(cut=cut, reason=reason, message=message))))


def _refuse(state: ServerState, cut: CutId, reason: Refusal) -> Step:
    return Step(state, (Tell(message=CutRefused(cut=cut, reason=reason)),))
