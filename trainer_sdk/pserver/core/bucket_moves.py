"""Moves of buckets between servers: warm copy, FREEZE, HANDOVER, ACTIVATE, FORGET on one server (rules 38 to 48, 59).

The problem: a bucket changes its server while trainers push to it, any of these messages may be late, lost or
repeated, and either server or the master may die at any moment.  Two rules solve it.  *A frozen version never thaws*:
what was handed over is all that version will ever be.  *Every end of a move raises the version*, so the floor refuses
messages for an earlier one.  Servers need no time-outs here.

    live, active --FREEZE--> live, frozen --FORGET--> gone            and, on the other server,
                                  `--ACTIVATE v + 1--> live, active   staged --ACTIVATE v + 1--> live, active

The shell sends, stages and serves contents (`SendCopy`, `StageCopy`, `ServeStaged`).  A move never waits for a cut
(`fork`).  Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from master.api.identities import BucketId, ServerPlace, Version
from master.api.messages.checkpoint_files import BucketMarks
from master.api.messages.from_members import Activated, CutRefusal, Installed
from master.api.messages.to_members import Activate, Forget, Freeze
from master.api.positions import PositionSet, union
from trainer_sdk.pserver.core import fork
from trainer_sdk.pserver.core.messages import CopyHead
from trainer_sdk.pserver.core.server_events import (
    CopyArrived,
    DropLive,
    DropStaged,
    FullCopyRequested,
    NotifyMaster,
    RequestFullCopy,
    SendCopy,
    ServerEffect,
    ServeStaged,
    StageCopy,
    WarmCopyRequested,
)
from trainer_sdk.pserver.core.server_state import (
    BucketGroup,
    CutState,
    ServerState,
    ServerStep,
    merge_groups,
    split_groups,
)
from trainer_sdk.pserver.core.staged import StagedCopy, with_floor, with_staged, without_staged

_MOST_AHEAD: Final = 1 << 20
"""Versions by which a copy may be ahead of the floor: far more moves than a server can have missed.  A copy of an
impossible version would keep all true ones away for the rest of the lineage."""

# ---- the source -----------------------------------------------------------------------------------------------------


def handle_warm_copy_requested(state: ServerState, event: WarmCopyRequested) -> ServerStep:
    """Sends a copy ahead; the bucket takes pushes as before (rule 42)."""
    group = _try_live(state, event.bucket)
    if event.lineage != state.lineage or group is None or group.version != event.version:
        return ServerStep(state)
    if group.is_frozen or group.is_backup:
        return ServerStep(state)
    return ServerStep(state, (_copy_order(state, group, event.bucket, event.target, is_final=False, is_full=True),))


def handle_freeze(state: ServerState, event: Freeze) -> ServerStep:
    """Freezes the bucket, then hands it over; a repeat hands over the same again (rule 43).

    A fork that still wants a position of this bucket ends first: the push would go to the new owner (rule 59).
    """
    group = _try_live(state, event.bucket)
    if event.lineage != state.lineage or group is None or group.version != event.version or group.is_backup:
        return ServerStep(state)
    state, effects = _end_fork_that_wants(state, group)
    inside, outside = split_groups(state.groups, PositionSet.of(event.bucket))
    frozen = replace(inside[0], is_frozen=True)
    after = replace(state, groups=merge_groups((*outside, frozen)))
    return ServerStep(
        after, (*effects, _copy_order(state, frozen, event.bucket, event.target, is_final=True, is_full=False))
    )


def handle_full_copy_requested(state: ServerState, event: FullCopyRequested) -> ServerStep:
    """Hands the frozen bucket over once more, whole."""
    group = _try_live(state, event.bucket)
    is_meant = group is not None and group.is_frozen and event.version == group.version + 1
    if group is None or not is_meant or event.lineage != state.lineage:
        return ServerStep(state)
    return ServerStep(state, (_copy_order(state, group, event.bucket, event.target, is_final=True, is_full=True),))


def try_current(state: ServerState, order: SendCopy) -> SendCopy | None:
    """The order with the bucket's marks as of now; None: its move is over."""
    group = _try_live(state, order.bucket)
    is_meant = group is not None and group.version + 1 == order.version and (group.is_frozen or not order.is_final)
    if group is None or not is_meant or order.lineage != state.lineage:
        return None
    return replace(order, applied=group.applied, skipped=group.skipped)


def _copy_order(
    state: ServerState, group: BucketGroup, bucket: BucketId, target: ServerPlace, *, is_final: bool, is_full: bool
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


def can_stage(state: ServerState, head: CopyHead) -> bool:
    """True if this copy would be staged, so that its body is worth receiving."""
    known = state.moves.try_staged(head.bucket)
    return _is_for_us(state, head) and not _is_known(known, head)


def has_base(state: ServerState, head: CopyHead) -> bool:
    """True if the base of a difference is staged here; a whole copy needs none (rule 42)."""
    known = state.moves.try_staged(head.bucket)
    return not head.base or (known is not None and known.digest == head.base)


def handle_copy_arrived(state: ServerState, event: CopyArrived) -> ServerStep:
    """Stages the copy and, if it is final, reports INSTALLED, again to a repeat (rule 44); other copies are ignored."""
    head = event.head
    if not _is_for_us(state, head):
        return ServerStep(state)
    known = state.moves.try_staged(head.bucket)
    if known is not None and _is_known(known, head):
        return ServerStep(state, _installed(state, known) if known.version == head.version and head.is_final else ())
    if not has_base(state, head):
        return ServerStep(state, (RequestFullCopy(head=head),))
    staged = StagedCopy(
        bucket=head.bucket,
        version=head.version,
        is_final=head.is_final,
        applied=head.applied,
        skipped=head.skipped,
        digest=head.digest,
    )
    after = replace(state, moves=with_staged(state.moves, staged))
    return ServerStep(after, (StageCopy(head=head), *_installed(state, staged)))


def _is_known(known: StagedCopy | None, head: CopyHead) -> bool:
    return known is not None and (known.version > head.version or (known.version == head.version and known.is_final))


def _is_for_us(state: ServerState, head: CopyHead) -> bool:
    group = _try_live(state, head.bucket)
    return (
        state.is_ready
        and head.lineage == state.lineage
        and head.target == state.incarnation
        and 0 <= head.version - state.moves.floor(head.bucket) <= _MOST_AHEAD
        and (group is None or group.version < head.version)
    )


def _installed(state: ServerState, staged: StagedCopy) -> tuple[ServerEffect, ...]:
    if not staged.is_final:
        return ()
    return (
        NotifyMaster(
            message=Installed(lineage=state.lineage, bucket=staged.bucket, version=staged.version, digest=staged.digest)
        ),
    )


# ---- the table has changed ------------------------------------------------------------------------------------------


def handle_activate(state: ServerState, event: Activate) -> ServerStep:
    """Serves staged copies, or live ones of an earlier version, at this version; reports which (rules 47, 62)."""
    if not state.is_ready or event.lineage != state.lineage:
        return ServerStep(state)
    effects: list[ServerEffect] = []
    for bucket in event.buckets:
        state, done = _activated(state, BucketId(bucket), event)
        effects += done
    inside, _ = split_groups(state.groups, event.buckets)
    meant = (g for g in inside if g.version == event.version and g.is_backup is event.is_backup)
    if served := union(g.buckets for g in meant if not g.is_frozen):
        effects.append(
            NotifyMaster(
                message=Activated(
                    lineage=state.lineage, buckets=served, version=event.version, is_backup=event.is_backup
                )
            )
        )
    return ServerStep(state, tuple(effects))


def _activated(state: ServerState, bucket: BucketId, order: Activate) -> tuple[ServerState, tuple[ServerEffect, ...]]:
    live, staged = _try_live(state, bucket), state.moves.try_staged(bucket)
    if order.version < state.moves.floor(bucket) or (live is not None and live.version >= order.version):
        return state, ()
    if _may_serve(staged, order):
        assert staged is not None
        return _with_staged_served(state, staged, order)
    if live is None or not _is_own(live, order):
        return state, ()
    inside, outside = split_groups(state.groups, PositionSet.of(bucket))
    served = _as_ordered(inside[0], order)
    cut = _with_departed(state, inside) if order.is_backup else state.cut  # a backup's fork counts as departed
    after = _raise_floor(replace(state, groups=merge_groups((*outside, served)), cut=cut), bucket, order.version)
    return after, _dropped(state, after)


def _may_serve(staged: StagedCopy | None, order: Activate) -> bool:
    """True for a final copy since whose version the table names this server: nothing was applied without it (62)."""
    return staged is not None and staged.is_final and order.since <= staged.version <= order.version


def _is_own(live: BucketGroup, order: Activate) -> bool:
    """True if the table has named this server at the live version and ever since."""
    return order.since <= live.version


def _as_ordered(group: BucketGroup, order: Activate) -> BucketGroup:
    fork = None if order.is_backup else group.fork
    return replace(
        group, version=order.version, is_frozen=False, fork=fork, backup=order.backup, is_backup=order.is_backup
    )


def _with_staged_served(
    state: ServerState, staged: StagedCopy, order: Activate
) -> tuple[ServerState, tuple[ServerEffect, ...]]:
    buckets = PositionSet.of(staged.bucket)
    state, effects = _without_live(state, buckets)
    content = BucketGroup(buckets=buckets, version=staged.version, applied=staged.applied, skipped=staged.skipped)
    groups = merge_groups((*state.groups, _as_ordered(content, order)))
    after = replace(state, groups=groups, moves=without_staged(state.moves, buckets))
    return _raise_floor(after, staged.bucket, order.version), (*effects, ServeStaged(buckets=buckets))


def _raise_floor(state: ServerState, bucket: BucketId, version: Version) -> ServerState:
    """Raises the floor above this version and drops a staged copy below it."""
    moving, staged = state.moves, state.moves.try_staged(bucket)
    if staged is not None and staged.version <= version:
        moving = without_staged(moving, PositionSet.of(bucket))
    return replace(state, moves=with_floor(moving, (bucket,), Version(version + 1)))


def handle_forget(state: ServerState, event: Forget) -> ServerStep:
    """Drops live copies below this version and staged copies up to it (rule 48)."""
    if not state.is_ready or event.lineage != state.lineage:
        return ServerStep(state)
    inside, _ = split_groups(state.groups, event.buckets)
    older = union(group.buckets for group in inside if group.version < event.version)
    after, effects = _without_live(state, older)
    staged = (one.bucket for one in state.moves.staged if one.version <= event.version)
    moving = without_staged(after.moves, PositionSet.of(*staged) & event.buckets)
    after = replace(after, moves=with_floor(moving, event.buckets, Version(event.version + 1)))
    return ServerStep(after, (*effects, *_dropped(state, after)))


def _dropped(before: ServerState, after: ServerState) -> tuple[ServerEffect, ...]:
    dropped = before.moves.staged_buckets - after.moves.staged_buckets
    return (DropStaged(buckets=dropped),) if dropped else ()


# ---- cuts -----------------------------------------------------------------------------------------------------------


def _end_fork_that_wants(state: ServerState, group: BucketGroup) -> tuple[ServerState, tuple[ServerEffect, ...]]:
    """Ends the open fork if it still wants positions of this group."""
    if group.fork is None or not group.fork.wanted:
        return state, ()
    return fork.end_fork(state, CutRefusal.GONE, "a bucket that it still wants something of is being moved")


def _without_live(state: ServerState, buckets: PositionSet) -> tuple[ServerState, tuple[ServerEffect, ...]]:
    """Drops live buckets; the file of a complete fork of them is written all the same (rule 59)."""
    if not buckets:
        return state, ()
    effects: tuple[ServerEffect, ...] = ()
    for group in split_groups(state.groups, buckets)[0]:
        state, ended = _end_fork_that_wants(state, group)
        effects += ended
    inside, outside = split_groups(state.groups, buckets)
    if not inside:
        return state, effects
    removed = union(group.buckets for group in inside)
    return replace(state, groups=outside, cut=_with_departed(state, inside)), (*effects, DropLive(buckets=removed))


def _with_departed(state: ServerState, groups: Iterable[BucketGroup]) -> CutState | None:
    """The cut once these groups have left: their complete forks stay in its file."""
    left = tuple(
        BucketMarks(buckets=g.buckets, applied=g.fork.applied, skipped=g.fork.skipped) for g in groups if g.fork
    )
    return replace(state.cut, departed=(*state.cut.departed, *left)) if state.cut is not None and left else state.cut


def versions_of(state: ServerState, buckets: Collection[int]) -> dict[int, Version]:
    """Version by bucket, of those that are live here."""
    return {bucket: group.version for group in state.groups for bucket in buckets if bucket in group.buckets}


def _try_live(state: ServerState, bucket: int) -> BucketGroup | None:
    return next((group for group in state.groups if bucket in group.buckets), None)
