"""Queue of FREEZE orders: a bucket is frozen once its rows have been sent ahead and its turn has come.

Pushes wait for a frozen bucket, so most of it should travel before the freeze.  A FREEZE is queued here until the
bucket's rows are at the target; after the freeze only the rows that have changed since are sent.  For other processes
this is a late FREEZE, which is always allowed (rule 43).  The bytes that are frozen at once are bounded, because
a batch waits for all of them.  Buckets are not frozen in groups: under load each waited for the others, and the
longest stall was twice as long.

Not here: what a FREEZE does (`bucket_moves`), how copies travel (`transfer.bucket_sender`).  Pure, not thread-safe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from master.api.identities import BucketId, Incarnation, Lineage, Version
from master.api.messages.to_members import Freeze
from trainer_sdk.pserver.core.server_events import SendCopy

FROZEN_BYTES: Final = 8 << 20
"""Bytes that are frozen and on their way to one target; the next buckets wait for more, but one may always go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _QueuedFreeze:
    order: Freeze
    goes_ahead: bool


class _Copy(NamedTuple):
    """Copy of a frozen bucket on its way.  A whole copy may set out before the difference that it replaces ends."""

    lineage: Lineage
    bucket: BucketId
    version: Version
    target: Incarnation
    is_full: bool

    @classmethod
    def of(cls, order: SendCopy) -> _Copy:
        return cls(order.lineage, order.bucket, order.version, order.target.incarnation, order.is_full)


class FreezeQueue:
    """The orders of one server, in one lineage."""

    def __init__(self) -> None:
        self._queue: dict[BucketId, _QueuedFreeze] = {}  # in the order in which they came
        self._under_way: dict[_Copy, int] = {}  # their bytes

    def has(self, order: Freeze) -> bool:
        """True if this order is queued."""
        return (kept := self._queue.get(order.bucket)) is not None and kept.order == order

    def add(self, order: Freeze) -> None:
        """Queues the order in place of an earlier one for its bucket; it is not due before `mark_ready`."""
        self._queue.pop(order.bucket, None)
        self._queue[order.bucket] = _QueuedFreeze(order=order, goes_ahead=True)

    def mark_ready(self, order: Freeze) -> None:
        """The bucket's rows are at the target, or there are none.  No effect if another order took its place."""
        if self.has(order):
            self._queue[order.bucket] = replace(self._queue[order.bucket], goes_ahead=False)

    def drop(self, order: Freeze) -> None:
        """Removes the order: no bucket is frozen for a target that cannot be reached.  The master sends it again."""
        if self.has(order):
            del self._queue[order.bucket]

    def mark_sent(self, order: SendCopy, size_bytes: int) -> None:
        """The frozen bucket is on its way."""
        self._under_way[_Copy.of(order)] = size_bytes

    def mark_ended(self, order: SendCopy) -> None:
        """The copy has arrived, or is not sent any more."""
        self._under_way.pop(_Copy.of(order), None)

    def take_due(self, weigh: Callable[[BucketId], int]) -> list[Freeze]:
        """Removes and returns the orders whose turn it is.  `weigh`: bytes of a bucket that are still to be sent.

        Some may not get under way because their moves are over, so call again until there are none.
        """
        frozen: Counter[Incarnation] = Counter()
        for copy, size_bytes in self._under_way.items():
            frozen[copy.target] += size_bytes
        found: list[Freeze] = []
        full: set[Incarnation] = set()
        for kept in self._queue.values():
            target = kept.order.target.incarnation
            if kept.goes_ahead or target in full:
                continue
            size_bytes = weigh(kept.order.bucket)
            if target in frozen and frozen[target] + size_bytes > FROZEN_BYTES:
                full.add(target)
                continue
            frozen[target] += size_bytes
            found.append(kept.order)
        for order in found:
            del self._queue[order.bucket]
        return found
