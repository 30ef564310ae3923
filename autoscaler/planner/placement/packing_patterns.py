"""Packing patterns: fillings of a node's free capacity by whole pods, and the waste that a pod causes (ADR 0113).

Placement leaves fragments too small for any trainer, and best fit alone makes more of them. A node's free capacity,
its *room*, is worth the best filling by whole pods that jobs want (`fill`); the rest of it is waste. A pod makes the
waste grow by what that worth falls beyond the pod's own (`growth`): by nothing if it is part of a best filling, by up
to a whole trainer if it breaks one, and by less than nothing if it uses what no pattern could.

A few shapes decide the worth of a room, and the time to fill it grows with each, so only the shapes that would take
most of the cluster are used (`most_wanted`). Which node is taken is `node_choice`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import comb, gcd, lcm
from typing import Final

from autoscaler.domain import Resources, Shape
from autoscaler.planner.working_copy.shapes import ColumnAmounts, sort_key

MOST_FILLINGS: Final = 2_000
"""Most fillings computed for one room; a room with more is far from full and wastes nothing yet."""

MOST_KEPT: Final = 100_000
"""Most cached results of `worth`."""

MOST_KINDS: Final = 4
"""Most shapes that patterns are made of.  The 2017 jobs have three: trainer, server, master."""


@lru_cache(maxsize=64)
def patterns_of(pods: tuple[tuple[ColumnAmounts, int], ...]) -> Patterns:
    """Return the patterns of these pods, with what earlier plans have worked out of them."""
    return Patterns(pods)


class Patterns:
    """The pods that jobs want, and the worth of each. Caches its results, since rooms repeat."""

    def __init__(self, pods: Sequence[tuple[ColumnAmounts, int]]) -> None:
        """`pods`: (requests, worth); the worth of a filling is the sum. Pods without requests are left out."""
        kinds = sorted({(requests, worth) for requests, worth in pods if any(requests)}, reverse=True)
        columns = list(zip(*(requests for requests, _ in kinds), strict=True))
        self._units = tuple((at, gcd(*amounts)) for at, amounts in enumerate(columns) if any(amounts))
        self._kinds = tuple((self._in_units(requests), worth) for requests, worth in kinds)
        self._fills: dict[ColumnAmounts, int] = {}
        self._growths: dict[tuple[ColumnAmounts, ColumnAmounts, int], int] = {}
        self._worths: dict[ColumnAmounts, int | None] = {}

    def fill(self, free: ColumnAmounts) -> int:
        """Return the worth of the best filling; 0 where nothing fits."""
        room = self._usable(self._in_units(free))
        known = self._fills.get(room)
        if known is None:
            known = self._fills[room] = self._best(room, 0)
        return known

    def worth(self, free: ColumnAmounts) -> int | None:
        """Return the same; None for a room far from full, where it is not computed."""
        if free not in self._worths:
            if len(self._worths) >= MOST_KEPT:
                self._worths.clear()
                self._fills.clear()
            self._worths[free] = None if self.is_wide(free) else self.fill(free)
        return self._worths[free]

    def growth(self, free: ColumnAmounts, requests: ColumnAmounts, worth: int) -> int:
        """Return by how much the room's waste grows when the pod comes: from -worth up; 0 in a room far from full."""
        question = (free, requests, worth)
        known = self._growths.get(question)
        if known is None:
            known = 0
            if not self.is_wide(free):
                known = self.fill(free) - self.fill(minus(free, requests)) - worth
            self._growths[question] = known
        return known

    def least_growth(self, requests: ColumnAmounts, worth: int) -> int:
        """Return a lower bound of `growth` in any room: the best filling never gains worth by a pattern's pod."""
        return 0 if (self._in_units(requests), worth) in self._kinds else -worth

    def _in_units(self, amounts: ColumnAmounts) -> ColumnAmounts:
        """Return amounts of the resources that the pods ask for, in the largest units in which all requests are
        integers."""
        return tuple(amounts[at] // unit for at, unit in self._units)

    def _usable(self, room: ColumnAmounts) -> ColumnAmounts:
        """Cut off what no filling can use, so that rooms which are alike for the pods are one room."""
        counts = [copies(requests, room) for requests, _ in self._kinds]
        most = [sum(n * amount for n, amount in zip(counts, column, strict=True)) for column in self._columns()]
        return tuple(max(0, min(amount, limit)) for amount, limit in zip(room, most, strict=True))

    def _columns(self) -> Iterator[ColumnAmounts]:
        return zip(*(requests for requests, _ in self._kinds), strict=True)

    def _best(self, room: ColumnAmounts, first: int) -> int:
        """Return the worth of the best filling by the kinds from `first` on."""
        if first == len(self._kinds):
            return 0
        requests, worth = self._kinds[first]
        most = copies(requests, room)
        if first == len(self._kinds) - 1:
            return most * worth
        return max(
            count * worth + self._best(minus(room, requests, times=count), first + 1) for count in range(most + 1)
        )

    def is_wide(self, free: ColumnAmounts) -> bool:
        """True if there are more fillings than `MOST_FILLINGS`: multisets of the pods of each kind."""
        room = self._in_units(free)
        most = max((copies(requests, room) for requests, _ in self._kinds), default=0)
        return comb(most + len(self._kinds), most) > MOST_FILLINGS


def minus(free: ColumnAmounts, requests: ColumnAmounts, *, times: int = 1) -> ColumnAmounts:
    """Return the room that is left."""
    return tuple(room - times * amount for room, amount in zip(free, requests, strict=True))


def copies(requests: ColumnAmounts, free: ColumnAmounts) -> int:
    """Return how many such pods the room holds; a request of 0 always fits."""
    return min((max(0, room) // amount for amount, room in zip(requests, free, strict=True) if amount), default=0)


def most_wanted(wanted: Mapping[Shape, int], capacity: Resources) -> tuple[tuple[Shape, int], ...]:
    """Return the few shapes of which most of the cluster is wanted, and the worth of one pod of each.

    `wanted`: how many pods of the shape the jobs would take; shapes without requests that the cluster has are left
    out. Worths have no unit: they compare with one another, exactly.
    """
    worths = worths_of(wanted, capacity)
    kinds = [shape for shape, count in wanted.items() if count > 0 and worths[shape] > 0]
    kinds.sort(key=lambda shape: (-wanted[shape] * worths[shape], sort_key(shape)))
    return tuple((shape, worths[shape]) for shape in kinds[:MOST_KINDS])


def worths_of(shapes: Iterable[Shape], capacity: Resources) -> dict[Shape, int]:
    """Return each shape's dominant part of the capacity, as whole numbers in one unit."""
    held = {name: amount for name, amount in capacity.amounts() if amount > 0 and name != "pods"}
    unit = lcm(*held.values())
    worths = {
        shape: max(
            (amount * (unit // held[name]) for name, amount in shape.requests.amounts() if name in held), default=0
        )
        for shape in shapes
    }
    common = gcd(*worths.values()) or 1
    return {shape: worth // common for shape, worth in worths.items()}
