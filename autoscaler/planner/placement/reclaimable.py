"""Reclaimable trainers over the whole cluster: on which node to look for victims first.

For one pod, arrays give a lower bound of each node's cost: how many trainers at least must leave (what is lacking, by
the largest trainer there), and the price of the cheapest job on the node. `victims` looks at nodes in the order of that
bound and stops where no node can be cheaper, so it is exact and looks at few nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, count
from math import inf, isnan
from operator import is_not

import numpy as np
import numpy.typing as npt

from autoscaler.domain import Pod
from autoscaler.planner.working_copy.fairness import fairness_key
from autoscaler.planner.working_copy.node_arrays import Mask, Numbers
from autoscaler.planner.working_copy.planned_job import NO_OFFERS, IntArray, Offers, PlannedJob, Price
from autoscaler.planner.working_copy.ranks import Rank, offers_of
from autoscaler.planner.working_copy.working_copy import WorkingCopy

IMPOSSIBLE = np.iinfo(np.int64).max


class Reclaimable:
    """Reclaimable trainers below `rank` (None: all), of jobs below `protected_priority` (None: of all).

    Kept from plan to plan: `attach` connects it to the next working copy.
    """

    def __init__(self, rank: Rank | None, protected_priority: int | None) -> None:
        self.rank = rank
        self.protected_priority = protected_priority
        self.jobs: list[PlannedJob] = []
        self.numbers: dict[int, int] = {}  # by identity
        self.changed: set[int] = set()  # numbers of jobs whose offers are out of date
        self.offers: list[Offers] = []
        self.prices: list[Price] = []  # all that there are, from the lowest
        self.price_positions: list[int] = []  # by job: where its price stands among them

    def attach(self, copy: WorkingCopy) -> None:
        """Connect to a working copy in which nothing is planned yet."""
        jobs = list(copy.jobs.values())
        if self.offers and len(jobs) == len(self.jobs):
            self.seen = 0  # what the last plan did to jobs is undone
            self.changed |= self._changed_since() | {*compress(count(), map(is_not, jobs, self.jobs))}
        else:
            self.offers = []
        self.copy, self.jobs = copy, jobs
        self.numbers = {id(job): number for number, job in enumerate(jobs)}
        self.seen = 0  # of `WorkingCopy.changed_jobs`
        self.priced = -1  # likewise

    def _changed_since(self) -> set[int]:
        """Return the numbers of the jobs that have changed since the last call."""
        return {self.numbers[id(job)] for job in self.copy.changed_jobs[self.seen :]}

    def update(self) -> None:
        """Account for the jobs that have changed since the last call."""
        changed = self.changed | self._changed_since()
        self.seen = len(self.copy.changed_jobs)
        self.changed = set()
        if not self.offers:
            self.offers = [self._offers_of(job) for job in self.jobs]
            self._put_rows(*self._rows_of(range(len(self.jobs))))
        elif changed:
            for number in changed:
                self.offers[number] = self._offers_of(self.jobs[number])
            others = ~np.isin(self.givers, [*changed])
            places, shapes, givers, times = self._rows_of(sorted(changed))
            self._put_rows(
                np.concatenate([self.places[others], places]),
                np.concatenate([self.shapes[others], shapes]),
                np.concatenate([self.givers[others], givers]),
                np.concatenate([self.times[others], times]),
            )

    def _offers_of(self, job: PlannedJob) -> Offers:
        may_give = job.spare and (self.protected_priority is None or job.spec.priority < self.protected_priority)
        return offers_of(self.copy, job, self.rank) if may_give else NO_OFFERS

    def _rows_of(self, numbers: Sequence[int]) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Return the offers of these jobs side by side, one row for each job, node and shape: nodes, shapes, jobs,
        counts."""
        capacity = self.copy.capacity
        offered = [self.offers[number] for number in numbers]
        places = np.concatenate([NO_OFFERS.places, *(offers.places for offers in offered)])
        shapes = np.concatenate([NO_OFFERS.shapes, *(offers.shapes for offers in offered)])
        givers = np.repeat(np.array(numbers, dtype=np.intp), [len(offers.pods) for offers in offered])
        keys = (givers * len(capacity) + places) * len(self.copy.shapes) + shapes
        _, first, counts = np.unique(keys, return_index=True, return_counts=True)
        spare = np.zeros(len(self.jobs), dtype=np.intp)
        spare[[*numbers]] = [self.jobs[number].spare for number in numbers]
        return places[first], shapes[first], givers[first], np.minimum(counts, spare[givers[first]])

    def _put_rows(self, places: IntArray, shapes: IntArray, givers: IntArray, times: IntArray) -> None:
        self.places, self.shapes, self.givers, self.times = places, shapes, givers, times
        capacity = self.copy.capacity
        self.units: Numbers = capacity.amounts_by_shape()[:, shapes]
        self.given: Numbers = self.units * times.astype(capacity.kind)

    def _price(self) -> None:
        """Sum up what each node could get, and find the cheapest job on each."""
        capacity = self.copy.capacity
        prices = [price_of(self.copy, job) for job in self.jobs]
        ranks = {price: rank for rank, price in enumerate(sorted(set(prices)))}
        self.prices, self.price_positions = [*ranks], [ranks[price] for price in prices]
        self.largest: Numbers = np.zeros_like(capacity.later)
        self.total: Numbers = np.zeros_like(capacity.later)
        self.cheapest = np.full(len(capacity), len(ranks), dtype=np.int64)
        for column in range(len(self.units)):
            np.maximum.at(self.largest[column], self.places, self.units[column])
            np.add.at(self.total[column], self.places, self.given[column])
        np.minimum.at(self.cheapest, self.places, np.array(self.price_positions, dtype=np.int64)[self.givers])
        self.priced = self.seen

    def floors(self, shape: int, avoid: Mask | None) -> npt.NDArray[np.int64]:
        """Return the least that each node can cost, as one number that compares; IMPOSSIBLE where nothing can
        help."""
        self.update()
        if self.priced != self.seen:
            self._price()
        capacity = self.copy.capacity
        may_help = capacity.accepted(shape) & capacity.is_open & (self.cheapest < len(self.prices))
        if avoid is not None:
            may_help &= ~avoid
        where = np.flatnonzero(may_help)
        fewest = np.ones(len(where), dtype=np.int64)
        helps = np.ones(len(where), dtype=np.bool_)
        for column, amount in enumerate(self.copy.shapes.amounts[shape]):
            if amount > 0:
                lack = np.maximum(amount - capacity.later[column][where], 0)
                unit = self.largest[column][where]
                helps &= (self.total[column][where] >= lack).astype(np.bool_)
                needed = -(-lack // np.where(unit == 0, 1, unit))
                fewest = np.maximum(fewest, np.minimum(needed, 2**31).astype(np.int64))
        floors = np.full(len(capacity), IMPOSSIBLE, dtype=np.int64)
        floors[where[helps]] = (fewest * (len(self.prices) + 1) + self.cheapest[where])[helps]
        return floors

    def floor_cost(self, floor: int) -> tuple[int, tuple[Price, ...]]:
        fewest, rank = divmod(floor, len(self.prices) + 1)
        return fewest, (self.prices[rank],)

    def at(self, place: int) -> list[tuple[PlannedJob, Price, list[Pod]]]:
        """Return the jobs that offer trainers on a node, by name, with their prices and offers."""
        numbers = np.unique(self.givers[self.places == place]).tolist()
        return [
            (self.jobs[number], self.prices[self.price_positions[number]], self.offers[number].at(place))
            for number in numbers
        ]


def reclaimable_for(copy: WorkingCopy, rank: Rank | None, protected_priority: int | None) -> Reclaimable:
    """Return what can be reclaimed for this rank: made or attached once a plan, updated on demand."""
    key = (rank, protected_priority)

    def begin() -> Reclaimable:
        found = copy.cache.from_last_plan(Reclaimable, key) or Reclaimable(rank, protected_priority)
        found.attach(copy)
        return found

    return copy.cache.get(Reclaimable, begin, key=key, lasts=True)


def price_of(copy: WorkingCopy, job: PlannedJob) -> Price:
    """Return the price of the job's trainers, lowest first: priority, largest fairness key, freshest checkpoint
    (unknown: expensive)."""
    age = job.spec.checkpoint_age_s
    return (job.spec.priority, -fairness_key(copy, job), inf if age is None or isnan(age) else age)
