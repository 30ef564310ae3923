"""The most that whole pods can use of given rooms: an integer programme over patterns, proved optimal.

Each instant of an experiment needs two bounds.  *Pinned*: servers stay on their nodes, only trainers are free; the
rooms are what everything else leaves.  *Free*: servers and masters may move too, in the same number; web pods stay.
The second minus the first is the price of where servers were put.

Equal rooms are one group; a group of m nodes takes m patterns in total.  Results are cached, because the cluster
rarely changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from experiments.bounds.whole_pod_patterns import Pattern, Vector, list_patterns
from experiments.errors import UnsolvedError


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingItem:
    """Equal pods: at least `least` and at most `most` of them are placed, each worth `worth` to the objective."""

    request: Vector
    worth: int
    least: int = 0
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """The best that exists: how many of each item, and what they are worth together."""

    counts: tuple[int, ...]
    worth: int


def fill(rooms: Sequence[Vector], items: Sequence[PackingItem]) -> Filling | None:
    """Return the worthiest placement of whole items into the rooms; None if not even the least counts fit.

    Raises:
        UnsolvedError: the solver ended without a proof.
        TooManyPatternsError: pods are so small beside rooms that ways to fill one cannot be listed.
    """
    order = sorted((n for n, item in enumerate(items) if item.most > 0), key=lambda n: items[n].request, reverse=True)
    kept = tuple(items[n] for n in order)  # large ones first: fewer ways to list
    requests = tuple(item.request for item in kept)
    groups: Counter[tuple[Pattern, ...]] = Counter()
    for room, count in Counter(map(tuple, rooms)).items() if kept else ():
        groups[_canonical(room, requests)] += count
    answer = _solve(tuple(sorted(groups.items())), kept)
    if answer is None:
        return None
    counts = [0] * len(items)
    for place, count in zip(order, answer, strict=True):
        counts[place] = count
    return Filling(counts=tuple(counts), worth=sum(n * item.worth for n, item in zip(counts, items, strict=True)))


@lru_cache(maxsize=200_000)
def _canonical(room: Vector, requests: tuple[Vector, ...]) -> tuple[Pattern, ...]:
    """Canonical form: rooms with the same patterns become equal."""
    return list_patterns(_without_slack(room, requests), requests)


def _without_slack(room: Vector, requests: tuple[Vector, ...]) -> Vector:
    """Cap amounts that cannot be used up before the first resource is, so that nearly equal rooms become equal."""
    room = tuple(max(0, amount) for amount in room)
    if not all(request[0] > 0 for request in requests):
        return room
    caps = [max(-(-room[0] * request[r] // request[0]) for request in requests) for r in range(1, len(room))]
    return (room[0], *(min(have, cap) for have, cap in zip(room[1:], caps, strict=True)))


@lru_cache(maxsize=20_000)
def _solve(
    groups: tuple[tuple[tuple[Pattern, ...], int], ...], items: tuple[PackingItem, ...]
) -> tuple[int, ...] | None:
    if len(items) == 1:
        fitting = sum(count * patterns[0][0] for patterns, count in groups)
        return (min(items[0].most, fitting),) if fitting >= items[0].least else None
    if not items:
        return ()
    return _solve_programme(groups, items)


def _solve_programme(
    groups: tuple[tuple[tuple[Pattern, ...], int], ...], items: tuple[PackingItem, ...]
) -> tuple[int, ...] | None:
    """Columns: how often each group uses each pattern, then the count of each item."""
    columns = [(number, pattern) for number, (patterns, _) in enumerate(groups) for pattern in patterns]
    width = len(columns) + len(items)
    rows, cols, data = [], [], []
    for column, (group, pattern) in enumerate(columns):
        rows.append(group)
        cols.append(column)
        data.append(1)
        for item, count in enumerate(pattern):
            if count:
                rows.append(len(groups) + item)
                cols.append(column)
                data.append(count)
    for item in range(len(items)):
        rows.append(len(groups) + item)
        cols.append(len(columns) + item)
        data.append(-1)
    matrix = csr_array((data, (rows, cols)), shape=(len(groups) + len(items), width))
    sizes = [count for _, count in groups]
    low = np.concatenate([sizes, np.zeros(len(items))])
    high = np.concatenate([sizes, np.full(len(items), np.inf)])
    most = [sizes[group] for group, _ in columns] + [item.most for item in items]
    least = [0] * len(columns) + [item.least for item in items]
    worth = np.array([0] * len(columns) + [-item.worth for item in items], dtype=float)
    # One part in 10^9 is below one millicore of any cluster here.
    solved = milp(
        worth,
        integrality=np.ones(width),
        bounds=Bounds(least, most),
        constraints=LinearConstraint(matrix, low, high),
        options={"mip_rel_gap": 1e-9, "time_limit": 60.0},
    )
    if solved.status == 2:
        return None
    if solved.status != 0 or solved.x is None:
        raise UnsolvedError(f"no proved optimum for {len(groups)} kinds of rooms: {solved.message}")
    return tuple(round(value) for value in solved.x[len(columns) :])
