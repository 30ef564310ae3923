"""The linear bound with whole pods on every node: each node's filling is a pattern of whole pods, or a mix of patterns.

`relaxed` lets a node hold half a pod of this shape and half of that; where shapes are many and small it fills every
node to the last millicore.  Here a kind of node takes patterns, whole fillings, in any fractions that add up to its
count.  There are too many patterns to list, so they are generated: the linear programme says what one more pod of each
shape would be worth, a knapsack per kind of node finds the filling that is worth most at these prices, and when no
filling is worth more than its node, the optimum is proved.  Source: Gilmore and Gomory, 1961.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, linprog, milp
from scipy.sparse import csr_array, hstack

from autoscaler.domain import ClusterView
from experiments.bounds.demands import Demands, RoomKind, Worth, read_demands
from experiments.bounds.whole_pod_patterns import Pattern, copies
from experiments.errors import UnsolvedError

ROUNDS: Final = 200
CLOSE: Final = 1e-4  # the bound is at most this part above the optimum when no more patterns are looked for


def pattern_bound(view: ClusterView, worth: Worth = Worth.CPU) -> float:
    """Return the most that EDL's pods can be worth together on this view, every node filled with whole pods.

    At most `CLOSE` above the optimum of the linear programme, never below it: no planner exceeds it.

    Raises:
        UnsolvedError: the solver ended without an optimum, or did not come close in `ROUNDS` rounds.
    """
    demands = read_demands(view)
    if not demands.jobs or not demands.rooms:
        return 0.0
    programme = _PatternProgramme(demands, worth)
    best = float("inf")
    for _ in range(ROUNDS):
        solved = programme.solve()
        reached = float(-solved.fun)
        best = min(best, reached + programme.add_patterns(solved))
        if best <= reached * (1 + CLOSE):
            return best
    raise UnsolvedError(f"no close bound in {ROUNDS} rounds")


class _PatternProgramme:
    """Rows: nodes of each kind, pods of each shape, trainers of each job.  Columns: jobs, then patterns."""

    def __init__(self, demands: Demands, worth: Worth) -> None:
        self._demands = demands
        self._kinds, self._shapes, self._jobs = len(demands.rooms), len(demands.shapes), len(demands.jobs)
        self._height = self._kinds + self._shapes + self._jobs
        self._limits = np.concatenate([[kind.count for kind in demands.rooms], np.zeros(self._shapes + self._jobs)])
        self._cost: list[float] = []
        self._high: list[float] = []
        self._columns: list[csr_array] = []
        self._known: set[tuple[int, Pattern]] = set()
        for number, job in enumerate(demands.jobs):
            core = sum(count * demands.worth(shape, worth, is_trainer=False) for shape, count in job.core)
            row = self._kinds + self._shapes + number
            started = {row: -float(job.most)} | self._places(dict(job.core))
            self._add_column(started, worth=core, most=1)
            trainer = {row: 1.0} | self._places({job.trainer: 1})
            self._add_column(trainer, worth=demands.worth(job.trainer, worth, is_trainer=True), most=job.most)

    def solve(self) -> OptimizeResult:
        self._columns = [csr_array(hstack(self._columns))]
        solved = linprog(
            self._cost,
            A_ub=self._columns[0],
            b_ub=self._limits,
            bounds=np.column_stack([np.zeros(len(self._high)), self._high]),
            method="highs",
        )
        if solved.status != 0:
            raise UnsolvedError(f"no upper bound: {solved.message}")
        return solved

    def add_patterns(self, solved: OptimizeResult) -> float:
        """Add the filling of each kind of node that is worth most; return how far the optimum can be above this one."""
        prices = -solved.ineqlin.marginals
        of_nodes, of_pods = prices[: self._kinds], prices[self._kinds : self._kinds + self._shapes]
        above = 0.0
        for number, kind in enumerate(self._demands.rooms):
            pattern, worth = best_filling(kind, self._demands.requests, of_pods)
            above += kind.count * max(0.0, worth - of_nodes[number])
            if worth > of_nodes[number] and (number, pattern) not in self._known:
                self._known.add((number, pattern))
                pods = {self._kinds + shape: -float(count) for shape, count in enumerate(pattern) if count}
                self._add_column({number: 1.0} | pods, worth=0, most=np.inf)
        return above

    def _places(self, pods: Mapping[int, int]) -> dict[int, float]:
        """Coefficients of a pattern's pods; pods without requests are left out."""
        return {self._kinds + shape: float(n) for shape, n in pods.items() if any(self._demands.requests[shape])}

    def _add_column(self, entries: dict[int, float], *, worth: float, most: float) -> None:
        places = ([*entries], [0] * len(entries))
        self._columns.append(csr_array(([*entries.values()], places), shape=(self._height, 1)))
        self._cost.append(-float(worth))
        self._high.append(float(most))


def best_filling(
    kind: RoomKind, requests: Sequence[tuple[int, ...]], prices: npt.NDArray[np.float64]
) -> tuple[Pattern, float]:
    """Return the whole pods that are worth most on one node at these prices, and a bound of what they are worth."""
    most = [copies(kind.room, request) if shape in kind.accepts else 0 for shape, request in enumerate(requests)]
    wanted = [shape for shape in range(len(requests)) if most[shape] and prices[shape] > 0]
    pattern = [0] * len(requests)
    if not wanted:
        return tuple(pattern), 0.0
    rows = np.array([[requests[shape][r] for shape in wanted] for r in range(len(kind.room))], dtype=float)
    scale = np.maximum(np.array(kind.room, dtype=float), 1.0)
    solved = milp(
        -prices[wanted],
        integrality=np.ones(len(wanted)),
        bounds=Bounds(0, [most[shape] for shape in wanted]),
        constraints=LinearConstraint(rows / scale[:, None], -np.inf, np.array(kind.room) / scale),
        options={"mip_rel_gap": CLOSE / 10},
    )
    if solved.x is None:
        raise UnsolvedError(f"no filling of {kind.room}: {solved.message}")
    for shape, count in zip(wanted, solved.x, strict=True):
        pattern[shape] = round(count)
    return tuple(pattern), float(-solved.mip_dual_bound)
