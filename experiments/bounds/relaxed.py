"""An upper bound for clusters of any size: a linear programme, tightened by what whole pods can do on one node.

A plain linear bound also uses fragments of nodes.  Two facts about whole pods take most of that back and keep the
programme linear: no node holds more copies of a shape than fit there alone, and the sum of requests on a node is a
sum of whole requests (a node of 16 holds 15 of pods of 5).  A job takes a fraction of its core with each fraction of
its trainers, so servers and masters use capacity too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from autoscaler.domain import ClusterView
from experiments.bounds.demands import Demands, RoomKind, Worth, read_demands
from experiments.bounds.whole_pod_patterns import copies
from experiments.errors import UnsolvedError

SUM_LIMIT: Final = 200_000
"""Units up to which the reachable sums of a node are listed: 200 cores in millis.  Larger rooms stay as they are."""


def upper_bound(view: ClusterView, worth: Worth = Worth.CPU) -> float:
    """Return the most that EDL's pods can be worth together on this view, in the unit of `worth`.

    No plan, whole or not, of any planner exceeds it; other people's pods stay where they are.

    Raises:
        UnsolvedError: the solver ended without an optimum.
    """
    demands = read_demands(view)
    if not demands.jobs or not demands.rooms:
        return 0.0
    return _RelaxedProgramme(demands, worth).solve()


class _RelaxedProgramme:
    """Columns: pods of a shape on a kind of room; then for each job its started fraction and its trainers."""

    def __init__(self, demands: Demands, worth: Worth) -> None:
        self._demands = demands
        self._worth = worth
        self._rows: list[int] = []
        self._columns: list[int] = []
        self._data: list[float] = []
        self._limits: list[float] = []
        self._high: list[float] = []
        self._cost: list[float] = []

    def solve(self) -> float:
        placed = self._add_rooms()
        self._add_jobs(placed)
        matrix = csr_array(
            (self._data, (self._rows, self._columns)), shape=(len(self._limits), len(self._high)), dtype=float
        )
        solved = linprog(
            self._cost,
            A_ub=matrix,
            b_ub=self._limits,
            bounds=np.column_stack([np.zeros(len(self._high)), self._high]),
            method="highs",
        )
        if solved.status != 0:
            raise UnsolvedError(f"no upper bound: {solved.message}")
        return float(-solved.fun)

    def _add_rooms(self) -> list[list[int]]:
        """Add the rooms; return the columns of each shape."""
        placed: list[list[int]] = [[] for _ in self._demands.shapes]
        for kind in self._demands.rooms:
            columns = []
            for shape in sorted(kind.accepts):
                most = copies(kind.room, self._demands.requests[shape])
                if most > 0:
                    columns.append((shape, self._add_column(most=most * kind.count)))
                    placed[shape].append(columns[-1][1])
            self._add_capacity(kind, columns)
        return placed

    def _add_capacity(self, kind: RoomKind, columns: list[tuple[int, int]]) -> None:
        for resource, amount in enumerate(kind.room):
            asked = [(column, self._demands.requests[shape][resource]) for shape, column in columns]
            requests = tuple(sorted({request for _, request in asked if request > 0}))
            if requests:
                limit = kind.count * largest_sum(amount, requests)
                self._add_row([(column, float(request)) for column, request in asked if request > 0], float(limit))

    def _add_jobs(self, placed: list[list[int]]) -> None:
        """Add the jobs: pods that stand are placed, trainers only as far as the job is started."""
        uses: list[list[tuple[int, float]]] = [[] for _ in self._demands.shapes]
        for job in self._demands.jobs:
            core = sum(n * self._demands.worth(s, self._worth, is_trainer=False) for s, n in job.core)
            started = self._add_column(most=1, worth=core)
            worth = self._demands.worth(job.trainer, self._worth, is_trainer=True)
            trainers = self._add_column(most=job.most, worth=worth)
            self._add_row([(trainers, 1.0), (started, -float(job.most))], 0.0)
            uses[job.trainer].append((trainers, 1.0))
            for shape, count in job.core:
                uses[shape].append((started, float(count)))
        for shape, columns in enumerate(placed):
            if any(self._demands.requests[shape]):
                self._add_row([*uses[shape], *((column, -1.0) for column in columns)], 0.0)

    def _add_column(self, *, most: float, worth: float = 0.0) -> int:
        self._high.append(most)
        self._cost.append(-worth)
        return len(self._high) - 1

    def _add_row(self, terms: list[tuple[int, float]], limit: float) -> None:
        """Add: the sum of the terms is at most `limit`."""
        for column, factor in terms:
            self._rows.append(len(self._limits))
            self._columns.append(column)
            self._data.append(factor)
        self._limits.append(limit)


@lru_cache(maxsize=100_000)
def largest_sum(amount: int, requests: tuple[int, ...]) -> int:
    """Return the largest sum of whole requests, each taken any number of times, that is at most `amount`."""
    unit = int(np.gcd.reduce(np.array(requests, dtype=np.int64)))
    room, parts = amount // unit, sorted({request // unit for request in requests})
    if room > SUM_LIMIT:
        return room * unit
    if parts[0] == 1:
        return room * unit
    reachable = 1  # bit n: n units are a sum of requests
    mask = (1 << (room + 1)) - 1
    for part in parts:
        shift = part
        while shift <= room:
            reachable |= (reachable << shift) & mask
            shift *= 2
    return (reachable.bit_length() - 1) * unit
