"""Buckets come and go: WARM, FREEZE, HANDOVER, ACTIVATE, FORGET on one server (rules 38 to 48 and 59).

The problem: a bucket changes its server while trainers push to it, any of these messages may be late, lost or
repeated, and either server or the master may die at any moment.  Two rules carry it.  *A frozen version never thaws*:
what was handed over is all that version ever was, whoever asks.  *Every end of a move raises the version*, so what was
meant for an earlier one finds the floor in its way.  Servers have no time-outs in any of this.

    live, active --FREEZE--> live, frozen --FORGET--> gone            and, on the other server,
                                  `--ACTIVATE v + 1--> live, active   staged --ACTIVATE v + 1--> live, active

Contents and sockets are the shell's (`SendCopy`, `StageCopy`, `ServeStaged`, ...).  Pushes: `bucket`; cuts: `fork`,
which a move never waits for.  Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from master.api.identities import BucketId, ServerPlace, Version
from master.api.messages import Activate, Activated, BucketMarks, Forget, Freeze, Installed, Refusal, Warm
from master.api.positions import PositionSet, union
from trainer_sdk.pserver.core import fork
from trainer_sdk.pserver.core.effects import (
    AskFull,
    CopyArrived,
    DropLive,
    DropStaged,
    Effect,
    FullWanted,
    SendCopy,
    ServeStaged,
    StageCopy,
    Tell,
)
from trainer_sdk.pserver.core.messages import CopyHead
from trainer_sdk.pserver.core.server_state import CutState, Group, ServerState, Step, apart, merged
from trainer_sdk.pserver.core.staged import Staged, with_floor, with_staged, without_staged

_MOST_AHEAD: Final = 1 << 20
"""Ends of moves of one bucket, each of which raises its version by one, that a server may have missed: far more than a
job has.  A copy of a version that cannot be would keep all true ones away for the rest of the lineage."""

# ---- the source -----------------------------------------------------------------------------------------------------


def warm(state: ServerState, event: Warm) -> Step:
    """A copy goes ahead; the bucket goes on as before (rule 42)."""
    group = _try_live(state, event.bucket)
    if event.lineage != state.lineage or group is None or group.version != event.version:
        return Step(state)
    if group.is_frozen or group.is_backup:
        return Step(state)
    return Step(state, (_sent(state, group, event.bucket, event.target, is_final=False, is_full=True),))


def freeze(state: ServerState, event: Freeze) -> Step:
    """Frozen first, then handed over; a repeat hands over the same again (rule 43).

    A fork that still wants a position of it would wait for what goes to the new owner: it ends, before that (rule 59).
    """
    group = _try_live(state, event.bucket)
    if event.lineage != state.lineage or group is None or group.version != event.version or group.is_backup:
        return Step(state)
    state, effects = _let_go(state, group)
    inside, outside = apart(state.groups, PositionSet.of(event.bucket))
    frozen = replace(inside[0], is_frozen=True)
    after = replace(state, groups=merged((*outside, frozen)))
    return Step(after, (*effects, _sent(state, frozen, event.bucket, event.target, is_final=True, is_full=False)))


def full_wanted(state: ServerState, event: FullWanted) -> Step:
    """The whole of what was handed over, once more."""
    group = _try_live(state, event.bucket)
    is_meant = group is not None and group.is_frozen and event.version == group.version + 1
    if group is None or not is_meant or event.lineage != state.lineage:
        return Step(state)
    return Step(state, (_sent(state, group, event.bucket, event.target, is_final=True, is_full=True),))


def try_current(state: ServerState, order: SendCopy) -> SendCopy | None:
    """The order with the marks that the bucket has now; None: what it was given for is over."""
    group = _try_live(state, order.bucket)
    is_meant = group is not None and group.version + 1 == order.version and (group.is_frozen or not order.is_final)
    if group is None or not is_meant or order.lineage != state.lineage:
        return None
    return replace(order, applied=group.applied, skipped=group.skipped)


def _sent(
    state: ServerState, group: Group, bucket: BucketId, target: ServerPlace, *, is_final: bool, is_full: bool
) -> SendCopy:
    return SendCopy(
        lineage=state.lineage,
        bucket=bucket,
        version=Version(group.version + 1),
        target=target,
        is_final=is_final,
        is_full=is_full,
        applied=group.applied,
        skipped=group.skipped,
    )


# ---- the target -----------------------------------------------------------------------------------------------------


def wants(state: ServerState, head: CopyHead) -> bool:
    """Whether this copy would be staged: worth to be received."""
    known = state.moving.try_staged(head.bucket)
    return _is_for_us(state, head) and not _is_known(known, head)


def has_base(state: ServerState, head: CopyHead) -> bool:
    """Whether what a difference builds on is staged here; a copy of everything needs nothing (rule 42)."""
    known = state.moving.try_staged(head.bucket)
    return not head.base or (known is not None and known.digest == head.base)


def copy_arrived(state: ServerState, event: CopyArrived) -> Step:
    """Staged and, if it is final, INSTALLED; said again to a repeat (rule 44).  Anything else is left lying."""
    head = event.head
    if not _is_for_us(state, head):
        return Step(state)
    known = state.moving.try_staged(head.bucket)
    if known is not None and _is_known(known, head):
        return Step(state, _installed(state, known) if known.version == head.version and head.is_final else ())
    if not has_base(state, head):
        return Step(state, (AskFull(head=head),))
    staged = Staged(
        bucket=head.bucket,
        version=head.version,
        is_final=head.is_final,
        applied=head.applied,
        skipped=head.skipped,
        digest=head.digest,
    )
    after = replace(state, moving=with_staged(state.moving, staged))
    return Step(after, (StageCopy(head=head), *_installed(state, staged)))


def _is_known(known: Staged | None, head: CopyHead) -> bool:
    return known is not None and (known.version > head.version or (known.version == head.version and known.is_final))


def _is_for_us(state: ServerState, head: CopyHead) -> bool:
    group = _try_live(state, head.bucket)
    return (
        state.is_ready
        and head.lineage == state.lineage
        and head.target == state.incarnation
        and 0 <= head.version - state.moving.floor(head.bucket) <= _MOST_AHEAD
        and (group is None or group.version < head.version)
    )


def _installed(state: ServerState, staged: Staged) -> tuple[Effect, ...]:
    if not staged.is_final:
        return ()
    return (
        Tell(
            message=Installed(lineage=state.lineage, bucket=staged.bucket, version=staged.version, digest=staged.digest)
        ),
    )


# ---- the table has changed ------------------------------------------------------------------------------------------


def activate(state: ServerState, event: Activate) -> Step:
    """Serves what is staged for this version or what it holds of one before it; says which it serves (47, 62)."""
    if not state.is_ready or event.lineage != state.lineage:
        return Step(state)
    effects: list[Effect] = []
    for bucket in event.buckets:
        state, done = _activated(state, BucketId(bucket), event)
        effects += done
    inside, _ = apart(state.groups, event.buckets)
    meant = (g for g in inside if g.version == event.version and g.is_backup is event.is_backup)
    if served := union(g.buckets for g in meant if not g.is_frozen):
        effects.append(
            Tell(
                message=Activated(
                    lineage=state.lineage, buckets=served, version=event.version, is_backup=event.is_backup
                )
            )
        )
    return Step(state, tuple(effects))


def _activated(state: ServerState, bucket: BucketId, order: Activate) -> tuple[ServerState, tuple[Effect, ...]]:
    live, staged = _try_live(state, bucket), state.moving.try_staged(bucket)
    if order.version < state.moving.floor(bucket) or (live is not None and live.version >= order.version):
        return state, ()
    if _may_serve(staged, order):
        assert staged is not None
        return _with_staged_served(state, staged, order)
    if live is None or not _is_own(live, order):
        return state, ()
    inside, outside = apart(state.groups, PositionSet.of(bucket))
    served = _as_ordered(inside[0], order)
    cut = _with_left(state, inside) if order.is_backup else state.cut  # it was the owner's, and is listed no more
    after = _risen(replace(state, groups=merged((*outside, served)), cut=cut), bucket, order.version)
    return after, _dropped(state, after)


def _may_serve(staged: Staged | None, order: Activate) -> bool:
    """Of an earlier version: the table has named this server since, and nothing was applied without it (rule 62)."""
    return staged is not None and staged.is_final and order.since <= staged.version <= order.version


def _is_own(live: Group, order: Activate) -> bool:
    """The table has named this server at that version and ever since."""
    return order.since <= live.version


def _as_ordered(group: Group, order: Activate) -> Group:
    fork = None if order.is_backup else group.fork
    return replace(
        group, version=order.version, is_frozen=False, fork=fork, backup=order.backup, is_backup=order.is_backup
    )


def _with_staged_served(state: ServerState, staged: Staged, order: Activate) -> tuple[ServerState, tuple[Effect, ...]]:
    buckets = PositionSet.of(staged.bucket)
    state, effects = _without_live(state, buckets)
    content = Group(buckets=buckets, version=staged.version, applied=staged.applied, skipped=staged.skipped)
    groups = merged((*state.groups, _as_ordered(content, order)))
    after = replace(state, groups=groups, moving=without_staged(state.moving, buckets))
    return _risen(after, staged.bucket, order.version), (*effects, ServeStaged(buckets=buckets))


def _risen(state: ServerState, bucket: BucketId, version: Version) -> ServerState:
    """Nothing up to this version is taken any more."""
    moving, staged = state.moving, state.moving.try_staged(bucket)
    if staged is not None and staged.version <= version:
        moving = without_staged(moving, PositionSet.of(bucket))
    return replace(state, moving=with_floor(moving, (bucket,), Version(version + 1)))


def forget(state: ServerState, event: Forget) -> Step:
    """Drops live copies below this version and staged ones up to it (rule 48)."""
    if not state.is_ready or event.lineage != state.lineage:
        return Step(state)
    inside, _ = apart(state.groups, event.buckets)
    older = union(group.buckets for group in inside if group.version < event.version)
    after, effects = _without_live(state, older)
    staged = (one.bucket for one in state.moving.staged if one.version <= event.version)
    moving = without_staged(after.moving, PositionSet.of(*staged) & event.buckets)
    after = replace(after, moving=with_floor(moving, event.buckets, Version(event.version + 1)))
    return Step(after, (*effects, *_dropped(state, after)))


def _dropped(before: ServerState, after: ServerState) -> tuple[Effect, ...]:
    gone = before.moving.staged_buckets - after.moving.staged_buckets
    return (DropStaged(buckets=gone),) if gone else ()


# ---- cuts -----------------------------------------------------------------------------------------------------------


def _let_go(state: ServerState, group: Group) -> tuple[ServerState, tuple[Effect, ...]]:
    """No fork wants anything of this bucket any more."""
    if group.fork is None or not group.fork.wanted:
        return state, ()
    return fork.given_up(state, Refusal.GONE, "a bucket that it still wants something of is being moved")


def _without_live(state: ServerState, buckets: PositionSet) -> tuple[ServerState, tuple[Effect, ...]]:
    """These are not live here any more; the file of a complete fork of them is written all the same (rule 59)."""
    if not buckets:
        return state, ()
    effects: tuple[Effect, ...] = ()
    for group in apart(state.groups, buckets)[0]:
        state, ended = _let_go(state, group)
        effects += ended
    inside, outside = apart(state.groups, buckets)
    if not inside:
        return state, effects
    gone = union(group.buckets for group in inside)
    return replace(state, groups=outside, cut=_with_left(state, inside)), (*effects, DropLive(buckets=gone))


def _with_left(state: ServerState, groups: Iterable[Group]) -> CutState | None:
    """The cut, of whose fork these are not live any more."""
    left = tuple(
        BucketMarks(buckets=g.buckets, applied=g.fork.applied, skipped=g.fork.skipped) for g in groups if g.fork
    )
    return replace(state.cut, left=(*state.cut.left, *left)) if state.cut is not None and left else state.cut


def versions(state: ServerState, buckets: Collection[int]) -> dict[int, Version]:
    """Of those that are live here."""
    return {bucket: group.version for group in state.groups for bucket in buckets if bucket in group.buckets}


def _try_live(state: ServerState, bucket: int) -> Group | None:
    return next((group for group in state.groups if bucket in group.buckets), None)
