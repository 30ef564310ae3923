"""Reclaimable trainers over the whole cluster: on which node to look for victims first.

For one pod, arrays give a lower bound of each node's cost: how many trainers at least must leave (what is lacking, by
the largest trainer there), and the price of the cheapest job on the node. `victims` looks at nodes in the order of that
bound and stops where no node can be cheaper, so it is exact and looks at few nodes.

A gang of thousands asks for each of its pods, and one job has given since the last question. So rows, sums and prices
are brought up to date for the jobs that changed, and for the nodes where those have trainers.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from itertools import accumulate, compress, count
from math import inf, isnan
from operator import is_not
from typing import Final

import numpy as np

from autoscaler.domain import Fairness, Pod
from autoscaler.planner.working_copy.fairness import fairness_key
from autoscaler.planner.working_copy.node_arrays import Mask, Numbers
from autoscaler.planner.working_copy.offers import NO_OFFERS, IntArray, Offers
from autoscaler.planner.working_copy.planned_job import PlannedJob, Price
from autoscaler.planner.working_copy.ranks import Rank, offers_of
from autoscaler.planner.working_copy.working_copy import WorkingCopy

NOBODY: Final = -1  # the giver of a row that is not in use, and the cheapest job where none offers trainers


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
        self.changed_places: list[int] = []  # nodes where rows came, changed or went in this plan
        self.offers: list[Offers] = []
        self.ends: IntArray = np.zeros(1, dtype=np.intp)  # by job: where its rows begin and end
        self.prices: list[Price] = []  # by job
        self.sorted_prices: list[tuple[Price, int]] = []  # with the jobs' numbers
        self.price_positions: IntArray = np.zeros(0, dtype=np.intp)  # by job among all different prices; last: NOBODY's
        self.different_prices: list[Price] = []  # by position

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
        self.changed_places = []
        self.is_priced = False

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
            self._put_all_rows()
        elif changed:
            self._replace(changed)
        if not self.is_priced:
            self._price_all()
        elif changed:
            self._reprice(changed)

    def _replace(self, changed: set[int]) -> None:
        """Put the present offers of these jobs in place of what they offered before."""
        for number in changed:
            self.offers[number] = self._offers_of(self.jobs[number])
        has_room = True
        for number in changed:
            places, shapes, times = self._rows_of(number)
            start, end = int(self.ends[number]), int(self.ends[number + 1])
            if has_room := len(places) <= end - start:
                self.changed_places += self._places_that_differ(number, places, shapes, times)
                self._is_stale[self.places[start:end]] = True
                used = slice(start, start + len(places))
                self.places[used], self.shapes[used], self.times[used], self.givers[used] = (
                    places,
                    shapes,
                    times,
                    number,
                )
                self.givers[used.stop : end] = NOBODY
                self._is_stale[places] = True
            else:
                break
        if not has_room:
            self._put_all_rows()
            self.is_priced = False

    def _places_that_differ(self, number: int, *rows: IntArray) -> list[int]:
        """Return the nodes where a job has other rows than before."""
        span = slice(int(self.ends[number]), int(self.ends[number + 1]))
        held = self.givers[span] == number
        old = [column[span][held] for column in (self.places, self.shapes, self.times)]
        bounds = [
            1 + int(max(before.max(initial=0), now.max(initial=0))) for before, now in zip(old, rows, strict=True)
        ]
        keys, known = np.ravel_multi_index(rows, bounds), np.ravel_multi_index(tuple(old), bounds)
        places: list[int] = np.unravel_index(np.setxor1d(keys, known), bounds)[0].tolist()
        return places

    def _offers_of(self, job: PlannedJob) -> Offers:
        may_give = job.spare and (self.protected_priority is None or job.spec.priority < self.protected_priority)
        return offers_of(self.copy, job, self.rank) if may_give else NO_OFFERS

    def _rows_of(self, number: int) -> tuple[IntArray, IntArray, IntArray]:
        """Return what one job offers, one row for each node and shape: nodes, shapes, and how many it can spare."""
        places, shapes, counts = self.offers[number].grouped()
        return places, shapes, np.minimum(counts, self.jobs[number].spare)

    def _put_all_rows(self) -> None:
        rows = [self._rows_of(number) for number in range(len(self.jobs))]
        lengths = [len(places) for places, _, _ in rows]
        self.ends = np.cumsum([0, *lengths], dtype=np.intp)
        self.givers: IntArray = np.repeat(np.arange(len(rows), dtype=np.intp), lengths)
        self.changed_places += range(len(self.copy.capacity))
        columns = zip(*rows, strict=True) if rows else ((), (), ())
        self.places, self.shapes, self.times = (np.concatenate([NO_OFFERS.places, *column]) for column in columns)

    def _price_all(self) -> None:
        """Price every job and sum up every node."""
        capacity = self.copy.capacity
        self.prices = [price_of(self.copy, job) for job in self.jobs]
        self.sorted_prices = sorted(zip(self.prices, count(), strict=False))
        self.largest: Numbers = np.zeros_like(capacity.later)
        self.total: Numbers = np.zeros_like(capacity.later)
        self.cheapest = np.full(len(capacity), NOBODY, dtype=np.intp)  # the job
        self._is_stale = np.ones(len(capacity), dtype=np.bool_)
        self.is_priced = True
        self._sum_stale()

    def _reprice(self, changed: set[int]) -> None:
        """Price these jobs again, between namespaces all jobs of theirs, and sum up the nodes where they offer
        trainers."""
        if self.copy.policy.fairness is Fairness.NAMESPACE:
            spaces = {self.jobs[number].spec.namespace for number in changed}
            changed = {number for number, job in enumerate(self.jobs) if job.spec.namespace in spaces}
        for number in changed:
            price = price_of(self.copy, self.jobs[number])
            if price != self.prices[number]:
                del self.sorted_prices[bisect_left(self.sorted_prices, (self.prices[number], number))]
                insort(self.sorted_prices, (price, number))
                self.prices[number] = price
                self._is_stale[self.places_of(number)] = True
        self._sum_stale()

    def _sum_stale(self) -> None:
        """Sum up what the nodes that are out of date could get, and find the cheapest job on each."""
        positions, different = [0] * (len(self.jobs) + 1), list[Price]()
        for price, number in self.sorted_prices:
            if not different or price != different[-1]:
                different.append(price)
            positions[number] = len(different) - 1
        positions[NOBODY] = len(different)
        self.different_prices = different
        self.price_positions = np.array(positions, dtype=np.intp)
        self.total[:, self._is_stale] = 0
        self.largest[:, self._is_stale] = 0
        self.cheapest[self._is_stale] = NOBODY
        rows = np.flatnonzero(self._is_stale[self.places] & (self.givers != NOBODY))
        places, givers = self.places[rows], self.givers[rows]
        units = self.copy.capacity.amounts_by_shape()[:, self.shapes[rows]]
        given = units * self.times[rows].astype(self.copy.capacity.kind)
        for column in range(len(units)):
            np.maximum.at(self.largest[column], places, units[column])
            np.add.at(self.total[column], places, given[column])
        dearest_first = np.argsort(-self.price_positions[givers], kind="stable")
        self.cheapest[places[dearest_first]] = givers[dearest_first]  # of several the last one stays
        self._is_stale[:] = False

    def bounds(self, shape: int, avoid: Mask | None) -> tuple[IntArray, IntArray, IntArray]:
        """Return the nodes where surplus can help, how many trainers at least must leave each, and the position of its
        cheapest price among all prices."""
        self.update()
        capacity = self.copy.capacity
        may_help = capacity.accepted(shape) & capacity.is_open & (self.cheapest != NOBODY)
        if avoid is not None:
            may_help &= ~avoid
        where = np.flatnonzero(may_help)
        fewest = np.ones(len(where), dtype=np.intp)
        helps = np.ones(len(where), dtype=np.bool_)
        for column, amount in enumerate(self.copy.shapes.amounts[shape]):
            if amount > 0:
                lack = np.maximum(amount - capacity.later[column][where], 0)
                unit = self.largest[column][where]
                helps &= (self.total[column][where] >= lack).astype(np.bool_)
                needed = -(-lack // np.where(unit == 0, 1, unit))
                fewest = np.maximum(fewest, np.minimum(needed, 2**31).astype(np.intp))
        where = where[helps]
        return where, fewest[helps], self.price_positions[self.cheapest[where]]

    def priorities_at(self, positions: IntArray) -> Numbers:
        """Return the priorities of the prices at these positions; for -1, nobody's, one below all."""
        priorities = [price[0] for price in self.different_prices]
        found: Numbers = np.array([*priorities, min(priorities, default=0) - 1], dtype=np.int64)[positions]
        return found

    def cheapest_on(self, places: IntArray) -> IntArray:
        """Return the position of the cheapest price on each of these nodes."""
        return self.price_positions[self.cheapest[places]]

    def rows(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return what is offered, one row for each job, node and shape: nodes, shapes, numbers of the jobs."""
        used = np.flatnonzero(self.givers != NOBODY)
        return self.places[used], self.shapes[used], self.givers[used]

    def rows_at(self, place: int) -> list[tuple[int, int, int]]:
        """Return what is offered on one node: numbers of the jobs, shapes, and how many of each."""
        found = np.flatnonzero((self.places == place) & (self.givers != NOBODY))
        columns = (self.givers[found].tolist(), self.shapes[found].tolist(), self.times[found].tolist())
        return [*zip(*columns, strict=True)]

    def places_of(self, number: int) -> IntArray:
        """Return the nodes where this job offers trainers, or did before."""
        return self.places[self.ends[number] : self.ends[number + 1]]

    def fewest_givers(self, place: int, trainers: int) -> int:
        """Return of how many jobs so many trainers on a node are at least."""
        offered: Counter[int] = Counter()
        for giver, _, times in self.rows_at(place):
            offered[giver] += times
        sums = accumulate(sorted(offered.values(), reverse=True))
        return next((count for count, total in enumerate(sums, 1) if total >= trainers), 1)

    def least_on(self, places: IntArray, by_job: IntArray) -> IntArray:
        """Return the least of the jobs' numbers among those that offer trainers on each of these nodes."""
        if not by_job.any():
            return np.zeros(len(places), dtype=np.intp)
        least = np.full(len(self.copy.capacity), np.iinfo(np.intp).max)
        offered, _, givers = self.rows()
        np.minimum.at(least, offered, by_job[givers])
        return least[places]

    def shapes_at(self, place: int) -> Counter[int]:
        """Return how many trainers of which shapes are offered on a node."""
        found: Counter[int] = Counter()
        for _, shape, times in self.rows_at(place):
            found[shape] += times
        return found

    def copies(self, shape: int, avoid: Mask | None) -> int | None:
        """Return how many such pods there is capacity for if all of this leaves; None, any number, if it requests
        nothing."""
        self.update()
        capacity = self.copy.capacity
        return capacity.copies_among(capacity.later + self.total, shape, avoid)

    def at(self, place: int) -> list[tuple[PlannedJob, Price, list[Pod]]]:
        """Return the jobs that offer trainers on a node, by name, with their prices and offers."""
        givers = self.givers[self.places == place]
        numbers = np.unique(givers[givers != NOBODY]).tolist()
        return [(self.jobs[number], self.prices[number], self.offers[number].at(place)) for number in numbers]


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
