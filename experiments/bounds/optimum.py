"""The true optimum of a small view: whole pods, whole jobs, one variable per node and shape.

For tests and for cases of a few dozen nodes; larger views have `relaxed`.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from autoscaler.domain import ClusterView
from experiments.bounds.demands import Worth, read_demands
from experiments.bounds.patterns import copies
from experiments.errors import UnsolvedError


def best_whole(view: ClusterView, worth: Worth = Worth.CPU) -> int:
    """Return the most that EDL's pods can be worth if every job is either absent or whole with its minimum.

    Sizes between minimum and maximum are all allowed here: for jobs with coarser sizes it is an upper bound.

    Raises:
        UnsolvedError: the solver ended without a proof.
    """
    demands = read_demands(view)
    rooms = [kind for kind in demands.rooms for _ in range(kind.count)]
    shapes, jobs = len(demands.shapes), demands.jobs
    if not jobs:
        return 0
    places = len(rooms) * shapes
    width = places + 2 * len(jobs)
    high, cost = np.zeros(width), np.zeros(width)
    rows: list[np.ndarray] = []
    limits: list[float] = []

    def add(row: np.ndarray, limit: float) -> None:
        rows.append(row)
        limits.append(limit)

    for number, kind in enumerate(rooms):
        for shape in kind.accepts:
            high[number * shapes + shape] = copies(kind.room, demands.requests[shape])
        for resource, amount in enumerate(kind.room):
            row = np.zeros(width)
            row[number * shapes : (number + 1) * shapes] = [request[resource] for request in demands.requests]
            add(row, amount)
    uses = np.zeros((shapes, width))
    for number, job in enumerate(jobs):
        started, trainers = places + 2 * number, places + 2 * number + 1
        high[started], high[trainers] = 1, job.most
        cost[trainers] = -demands.worth(job.trainer, worth, is_trainer=True)
        cost[started] = -sum(n * demands.worth(s, worth, is_trainer=False) for s, n in job.core)
        uses[job.trainer, trainers] += 1
        for shape, count in job.core:
            uses[shape, started] += count
        most, least = np.zeros(width), np.zeros(width)
        most[trainers], most[started] = 1, -job.most
        least[trainers], least[started] = -1, job.least
        add(most, 0)
        add(least, 0)
    for shape in range(shapes):
        if any(demands.requests[shape]):
            row = uses[shape].copy()
            row[shape:places:shapes] -= 1
            add(row, 0)
    solved = milp(
        cost,
        integrality=np.ones(width),
        bounds=Bounds(0, high),
        constraints=LinearConstraint(np.array(rows), -np.inf, np.array(limits)),
        options={"mip_rel_gap": 1e-9},
    )
    if solved.status != 0:
        raise UnsolvedError(f"no proved optimum: {solved.message}")
    return round(-solved.fun)
