"""The true optimum of a small view: whole pods, whole jobs, one variable per node and shape.

For tests and for cases of a few dozen nodes; use `relaxed` for larger views.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

from autoscaler.domain import ClusterView
from experiments.bounds.demands import Demands, Worth, read_demands
from experiments.bounds.whole_pod_patterns import copies
from experiments.errors import UnsolvedError


def best_whole(view: ClusterView, worth: Worth = Worth.CPU) -> int:
    """Return the most that EDL's pods can be worth if every job is either absent or whole with its minimum.

    Sizes between minimum and maximum are all allowed here: for jobs with coarser sizes it is an upper bound.

    Raises:
        UnsolvedError: the solver ended without a proof.
    """
    demands = read_demands(view)
    return _WholePodProgramme(demands, worth).solve() if demands.jobs else 0


class _WholePodProgramme:
    """Columns: pods of each shape on each node; then, for each job, whether it is started and its trainers."""

    def __init__(self, demands: Demands, worth: Worth) -> None:
        self._demands = demands
        self._worth = worth
        self._rooms = [kind for kind in demands.rooms for _ in range(kind.count)]
        self._places = len(self._rooms) * len(demands.shapes)
        self._width = self._places + 2 * len(demands.jobs)
        self._high = np.zeros(self._width)
        self._cost = np.zeros(self._width)
        self._rows: list[NDArray[np.float64]] = []
        self._limits: list[float] = []

    def solve(self) -> int:
        self._add_rooms()
        self._add_jobs()
        solved = milp(
            self._cost,
            integrality=np.ones(self._width),
            bounds=Bounds(0, self._high),
            constraints=LinearConstraint(np.array(self._rows), -np.inf, np.array(self._limits)),
            options={"mip_rel_gap": 1e-9},
        )
        if solved.status != 0:
            raise UnsolvedError(f"no proved optimum: {solved.message}")
        return round(float(-solved.fun))

    def _add_rooms(self) -> None:
        requests, shapes = self._demands.requests, len(self._demands.shapes)
        for number, kind in enumerate(self._rooms):
            first = number * shapes
            for shape in kind.accepts:
                self._high[first + shape] = copies(kind.room, requests[shape])
            for resource, amount in enumerate(kind.room):
                row = self._new_row(amount)
                row[first : first + shapes] = [request[resource] for request in requests]

    def _add_jobs(self) -> None:
        shapes = len(self._demands.shapes)
        uses = [self._new_row(0) if any(request) else np.zeros(self._width) for request in self._demands.requests]
        for shape, row in enumerate(uses):
            row[shape : self._places : shapes] -= 1
        for number, job in enumerate(self._demands.jobs):
            started = self._places + 2 * number
            trainers = started + 1
            self._high[started], self._high[trainers] = 1, job.most
            self._cost[trainers] = -self._demands.worth(job.trainer, self._worth, is_trainer=True)
            self._cost[started] = -sum(n * self._demands.worth(s, self._worth, is_trainer=False) for s, n in job.core)
            uses[job.trainer][trainers] += 1
            for shape, count in job.core:
                uses[shape][started] += count
            most, least = self._new_row(0), self._new_row(0)
            most[trainers], most[started] = 1, -job.most
            least[trainers], least[started] = -1, job.least

    def _new_row(self, limit: float) -> NDArray[np.float64]:
        """Add a row of zeros, to be filled in: the sum of its terms is at most `limit`."""
        self._rows.append(np.zeros(self._width))
        self._limits.append(limit)
        return self._rows[-1]
