"""Placement of buckets on servers: even in bytes and in load, moving the fewest bytes that evenness allows.

Exact balance in two measures with least movement is a hard packing problem, so balance is defined by counts per
class.  Buckets of like size and like load (within an eighth) form a *class*; every server holds its share of each
class, rounded down or up.  Then sizes and loads are even up to one bucket a class and the differences inside a class.
A class with too few buckets to share is joined with its neighbour, heaviest first; that costs at most the heaviest
bucket in all.

*No placement that is even in this sense moves fewer bytes.*  Classes do not touch each other, so one class is enough
to look at.  A server that holds h of its buckets and may have t keeps at most t, so at best its t largest: this
function moves only what that leaves out.  Shares leave one choice: which servers have the odd buckets, at most one
each.  To give server s an odd one saves the size of the next bucket that it could keep, or nothing when it holds no
more, whatever the others get; so the largest savings together are the most that can be saved.

Second copies are placed by `backup_placement`, beside these owners (ADR 0312).  Pure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

SIMILAR_RATIO: Final = 7 / 8
"""What is at least so much of the largest of its class counts as large: below what measured loads differ by chance."""

LEAST_BUCKETS_PER_SERVER: Final = 2
"""A class has at least so many buckets for each server, or is joined with the next: fewer cannot be shared evenly."""

NO_SERVER: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """The cost of one bucket to its server.  `load` is measured, in any unit; 0: unknown."""

    size_bytes: int
    load: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One bucket that goes from one server to another."""

    bucket: int
    source: int
    target: int
    is_backup: bool = False  # the target gets a second copy, the source stays the owner


def place(
    bucket_count: int,
    servers: int,
    previous: Sequence[int] = (),
    *,
    weights: Sequence[Weight] = (),
) -> tuple[int, ...]:
    """The owner (0 to servers - 1) of each bucket.

    `previous`: the owners now; another number is a server that leaves (NO_SERVER: the bucket is nowhere).  Empty or of
    another length: all buckets are placed again in runs, so that a server owns whole slices of a table (ADR 0310).
    `weights`: of each bucket, all alike when empty.  Raises ValueError for no servers, no buckets, or weights that
    are no measure.
    """
    _check(bucket_count, servers, weights)
    held_by = previous if len(previous) == bucket_count else (NO_SERVER,) * bucket_count
    sizes = [weight.size_bytes for weight in weights] or [1] * bucket_count
    placed = _ClassPlacement(servers, sizes=sizes, previous=held_by)
    for members in classes(bucket_count, servers, weights):
        placed.take(members)
    return tuple(placed.owner)


def moves(before: Sequence[int], after: Sequence[int], *, first: Iterable[int] = ()) -> tuple[Move, ...]:
    """The moves from one placement to another; after any number of them every bucket has one owner.

    Sources take turns, so that no server sends everything while the others wait; targets of one source take turns, so
    that no link carries everything.  `first`: servers that have to leave.  No class is less even on the way than at
    both ends.
    """
    urgent, given = frozenset(first), Counter[tuple[int, int]]()
    ranked: list[tuple[bool, int, Move]] = []
    for bucket, (source, target) in enumerate(zip(before, after, strict=True)):
        if source != target:
            ranked.append(
                (source not in urgent, given[source, target], Move(bucket=bucket, source=source, target=target))
            )
            given[source, target] += 1
    return tuple(move for *_, move in sorted(ranked, key=lambda one: (*one[:2], one[2].source, one[2].target)))


def classes(bucket_count: int, servers: int, weights: Sequence[Weight] = ()) -> tuple[tuple[int, ...], ...]:
    """The buckets in classes of which every server gets its share, heaviest class first."""
    if not weights:
        return (tuple(range(bucket_count)),)
    sizes, loads = [weight.size_bytes for weight in weights], [weight.load for weight in weights]
    members = [by_load for by_size in _similar(range(bucket_count), sizes) for by_load in _similar(by_size, loads)]
    joined: list[list[int]] = []
    for one in members:
        if joined and len(joined[-1]) < LEAST_BUCKETS_PER_SERVER * servers:
            joined[-1] += one
        else:
            joined.append(one)
    if len(joined) > 1 and len(joined[-1]) < LEAST_BUCKETS_PER_SERVER * servers:
        joined[-2:] = [joined[-2] + joined[-1]]
    return tuple(tuple(one) for one in joined)


def _similar(buckets: Iterable[int], measured: Sequence[float]) -> list[list[int]]:
    """Largest first; those of equal measure in the order in which they came."""
    found: list[list[int]] = []
    least = math.inf
    for bucket in sorted(buckets, key=measured.__getitem__, reverse=True):
        if measured[bucket] < least:
            found.append([])
            least = SIMILAR_RATIO * measured[bucket]
        found[-1].append(bucket)
    return found


class _ClassPlacement:
    """The owners, filled class by class."""

    def __init__(self, servers: int, *, sizes: Sequence[int], previous: Sequence[int]) -> None:
        self._sizes, self._previous = sizes, previous
        self._filled = [0] * servers  # bytes
        self.owner = [NO_SERVER] * len(previous)

    def take(self, members: Sequence[int]) -> None:
        """Places one class."""
        held = self._held(members)
        targets = self._targets(len(members), held)
        for server, (mine, target) in enumerate(zip(held, targets, strict=True)):
            for bucket in mine[:target]:
                self._give(bucket, server)
        homeless = (bucket for bucket in sorted(members) if self.owner[bucket] == NO_SERVER)
        free = (s for s, target in enumerate(targets) for _ in range(target - min(target, len(held[s]))))
        for bucket, server in zip(homeless, free, strict=True):
            self._give(bucket, server)

    def _held(self, members: Sequence[int]) -> list[list[int]]:
        """Buckets of the class by server, in the order in which it would keep them."""
        held: list[list[int]] = [[] for _ in self._filled]
        for bucket in sorted(sorted(members), key=self._sizes.__getitem__, reverse=True):
            if 0 <= self._previous[bucket] < len(held):
                held[self._previous[bucket]].append(bucket)
        return held

    def _targets(self, count: int, held: Sequence[Sequence[int]]) -> list[int]:
        """Target count by server: extra ones stay where they save most moves, else they go to the emptiest."""
        least, extra = divmod(count, len(held))

        def worth(server: int) -> tuple[bool, int, int, int]:
            could_keep = held[server][least : least + 1]
            saved = self._sizes[could_keep[0]] if could_keep else 0
            return not could_keep, -saved, self._filled[server], server

        has_more = set(sorted(range(len(held)), key=worth)[:extra])
        return [least + (server in has_more) for server in range(len(held))]

    def _give(self, bucket: int, server: int) -> None:
        self.owner[bucket] = server
        self._filled[server] += self._sizes[bucket]


def _check(bucket_count: int, servers: int, weights: Sequence[Weight]) -> None:
    if servers < 1 or bucket_count < 1:
        raise ValueError(f"{bucket_count} buckets cannot be placed on {servers} servers")
    if weights and len(weights) != bucket_count:
        raise ValueError(f"{len(weights)} weights for {bucket_count} buckets")
    if any(one.size_bytes < 0 or one.load < 0 or not math.isfinite(one.load) for one in weights):
        raise ValueError("a weight below 0, or a load that is not a number")
