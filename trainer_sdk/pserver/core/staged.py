"""Staged copies of buckets, and floors: the lowest version of a bucket that this process still takes (rule 39).

A staged copy waits until the routing table names this server; it is never pulled, pushed to or cut.  A *floor* keeps a
late HANDOVER or ACTIVATE of an old move from reviving anything; it outlives the copy and ends with the lineage.  The
transitions are in `bucket_moves`.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from master.api.identities import BucketId, Version
from master.api.positions import EMPTY, PositionSet
from trainer_sdk.errors import InvariantViolationError


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedCopy:
    """A bucket that this server may come to own, at the version that it would then have."""

    bucket: BucketId
    version: Version
    is_final: bool  # made after the freeze; only such a copy may be activated
    applied: PositionSet
    skipped: PositionSet
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveState:
    """At most one staged copy a bucket; floors as (version, the buckets whose floor it is), 0 where none is named."""

    staged: tuple[StagedCopy, ...] = ()
    floors: tuple[tuple[Version, PositionSet], ...] = ()

    @property
    def staged_buckets(self) -> PositionSet:
        return PositionSet.of(*(one.bucket for one in self.staged)) if self.staged else EMPTY

    def try_staged(self, bucket: int) -> StagedCopy | None:
        return next((one for one in self.staged if one.bucket == bucket), None)

    def floor(self, bucket: int) -> Version:
        return next((version for version, buckets in self.floors if bucket in buckets), Version(0))


NO_MOVES: Final = MoveState()


def with_staged(moving: MoveState, staged: StagedCopy) -> MoveState:
    """The staged copy takes the place of an earlier one of its bucket."""
    others = without_staged(moving, PositionSet.of(staged.bucket)).staged
    return replace(moving, staged=tuple(sorted((*others, staged), key=lambda one: one.bucket)))


def without_staged(moving: MoveState, buckets: PositionSet) -> MoveState:
    return replace(moving, staged=tuple(one for one in moving.staged if one.bucket not in buckets))


def with_floor(moving: MoveState, buckets: Iterable[int], version: Version) -> MoveState:
    """Raises the floor of these buckets to this version; a floor never sinks."""
    lower = PositionSet.of(*(bucket for bucket in buckets if moving.floor(bucket) < version))
    if not lower:
        return moving
    floors = {at: rest for at, held in moving.floors if (rest := held - lower)}
    floors[version] = floors.get(version, EMPTY) | lower
    return replace(moving, floors=tuple(sorted(floors.items())))


def check_moves(moving: MoveState) -> None:
    """Raises InvariantViolationError where a bucket is staged twice or below its floor, or has two floors."""
    buckets = [one.bucket for one in moving.staged]
    below = [one for one in moving.staged if one.version < moving.floor(one.bucket)]
    seen = EMPTY
    for _, held in moving.floors:
        if not held or not held.isdisjoint(seen):
            raise InvariantViolationError(f"a bucket has one floor; seen: {moving}")
        seen |= held
    if len(set(buckets)) < len(buckets) or below:
        raise InvariantViolationError(f"one staged copy a bucket, at its floor or above; seen: {moving}")
