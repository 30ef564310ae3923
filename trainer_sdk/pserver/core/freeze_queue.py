"""When a bucket that has to go is frozen: once what may go ahead of it has gone, and as its turn comes.

Pushes wait for a frozen bucket, so it should travel while it is not frozen yet: a FREEZE that has come is kept here
until the bucket's rows are at the target, and only what has changed since is sent after it.  For everybody else it is
a FREEZE that came late, which is always allowed (rule 43).  No more is frozen at once than its bytes allow: a batch
waits for all of it.  Nothing is frozen later so that several could be together: under load each waited for the others,
and the longest stall was twice as long.

Not here: what the core does with a FREEZE (`moving`), how copies travel (`couriers`).  Pure, not thread-safe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from master.api.identities import BucketId, Incarnation, Lineage, Version
from master.api.messages import Freeze
from trainer_sdk.pserver.core.effects import SendCopy

FROZEN_BYTES: Final = 8 << 20
"""Frozen and on their way to one target: for more the next ones wait, but one may always go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    order: Freeze
    goes_ahead: bool


class _Copy(NamedTuple):
    """Of a frozen bucket, on its way.  In full it may set out before the difference that it replaces has ended."""

    lineage: Lineage
    bucket: BucketId
    version: Version
    target: Incarnation
    is_full: bool

    @classmethod
    def of(cls, order: SendCopy) -> _Copy:
        return cls(order.lineage, order.bucket, order.version, order.target.incarnation, order.is_full)


class FreezeQueue:
    """Of one server, in one lineage."""

    def __init__(self) -> None:
        self._kept: dict[BucketId, _Kept] = {}  # in the order in which they came
        self._under_way: dict[_Copy, int] = {}  # their bytes

    def has(self, order: Freeze) -> bool:
        """It has come before, and its turn has not."""
        return (kept := self._kept.get(order.bucket)) is not None and kept.order == order

    def add(self, order: Freeze) -> None:
        """In place of an earlier one for that bucket; until `ready` it is not due."""
        self._kept.pop(order.bucket, None)
        self._kept[order.bucket] = _Kept(order=order, goes_ahead=True)

    def mark_ready(self, order: Freeze) -> None:
        """What goes ahead of it has arrived, or nothing has to.  Nothing, if another one took its place."""
        if self.has(order):
            self._kept[order.bucket] = replace(self._kept[order.bucket], goes_ahead=False)

    def drop(self, order: Freeze) -> None:
        """It cannot go ahead: it is not frozen for a target that cannot be reached.  The master asks again."""
        if self.has(order):
            del self._kept[order.bucket]

    def mark_sent(self, order: SendCopy, size_bytes: int) -> None:
        """Frozen, and on its way."""
        self._under_way[_Copy.of(order)] = size_bytes

    def mark_ended(self, order: SendCopy) -> None:
        """It has arrived, or is not sent any more."""
        self._under_way.pop(_Copy.of(order), None)

    def take_due(self, weigh: Callable[[BucketId], int]) -> list[Freeze]:
        """Those whose turn it is; they are kept no longer.  `weigh`: bytes that are still to be sent of a bucket.

        Not all of them need get under way: their moves may be over.  So it is to be asked again until there are none.
        """
        frozen: Counter[Incarnation] = Counter()
        for copy, size_bytes in self._under_way.items():
            frozen[copy.target] += size_bytes
        found: list[Freeze] = []
        full: set[Incarnation] = set()
        for kept in self._kept.values():
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
            del self._kept[order.bucket]
        return found
