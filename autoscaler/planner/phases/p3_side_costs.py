"""Side costs of shrinking jobs for a web pod: what a choice of victims costs beyond the trainers that leave (P3).

The first part is what fairness moves back: a job that is poor already would get its step back from the richest one.
The second is what stays unused on the node after this want and its `alike` are placed: beside one free core, one
trainer of 5 cores leaves enough for two web pods of 3.

When a Deployment comes, hundreds of pods ask, and on a full cluster every node could give one trainer for each of them.
So both parts are known by node before `victims` looks at any (`least`): exactly where one trainer is enough or the
choice is known (`fewest_trainers`), else by lower bounds. The bound of the second is worked out once for each node, and
again where the node or what is offered there has changed. What of each job decides (`JobFigures`) is worked out again
for those that have given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from math import inf
from typing import Final

import numpy as np

from autoscaler.planner.placement.fewest_trainers import MOST_TRAINERS, FewestTrainers
from autoscaler.planner.placement.reclaimable import reclaimable_for
from autoscaler.planner.placement.victims import LeastCosts, SideCost, Victims, counts_of_total
from autoscaler.planner.sharing.step_down import last_step_of, share_below
from autoscaler.planner.working_copy.free_capacity import NodeScores
from autoscaler.planner.working_copy.node_arrays import Numbers
from autoscaler.planner.working_copy.offers import IntArray
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.ranks import Rank
from autoscaler.planner.working_copy.shapes import ColumnAmounts, amounts_fit, copies_that_fit
from autoscaler.planner.working_copy.working_copy import WorkingCopy

CHOICES_BOUNDED: Final = 60
"""Most ways to take trainers of different shapes from a node for which its waste is bounded; a node with more is looked
at as if it wasted nothing."""


class JobFigures:
    """What of each job, by its number, decides side costs; brought up to date for the jobs that changed."""

    def __init__(self, copy: WorkingCopy) -> None:
        self._copy = copy
        self.jobs = list(copy.jobs.values())
        self._numbers = {id(job): number for number, job in enumerate(self.jobs)}
        self._by_priority: dict[int, list[int]] = {}
        for number, job in enumerate(self.jobs):
            self._by_priority.setdefault(job.spec.priority, []).append(number)
        self._attained = [0] * len(self.jobs)
        self._below = [-1] * len(self.jobs)  # what one step less would leave; -1: nothing to spare
        self.can_lose_one = np.zeros(len(self.jobs), dtype=np.bool_)
        self._seen = len(copy.changed_jobs)
        self._put(range(len(self.jobs)))

    def update(self) -> None:
        """Account for the jobs that have changed since the last call."""
        changed = self._copy.changed_jobs
        self._put({self._numbers[id(job)] for job in changed[self._seen :]})
        self._seen = len(changed)

    def _put(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            job = self.jobs[number]
            self._attained[number] = job.attained()
            self._below[number] = share_below(self._copy, job) if job.spare else -1
            self.can_lose_one[number] = is_one_step(job)

    def richest(self) -> dict[int, PlannedJob]:
        """Return, by priority, the job with something to spare that a step less would leave most; of several the
        first."""
        found: dict[int, PlannedJob] = {}
        for priority, numbers in self._by_priority.items():
            best = max(numbers, key=self._below.__getitem__)
            if self._below[best] >= 0:
                found[priority] = self.jobs[best]
        return found

    def moved_back_by_one(self, richest: Mapping[int, PlannedJob]) -> IntArray:
        """Return what fairness moves back if each job, one that has something to spare, gives one trainer."""
        moved = np.zeros(len(self.jobs), dtype=np.intp)
        for priority, rich in richest.items():
            below = self._below[self._numbers[id(rich)]]
            poor = [at for at in self._by_priority[priority] if self._attained[at] < below and self._below[at] >= 0]
            moved[poor] = last_step_of(rich)
        return moved


class ReclaimSideCosts:
    """Side costs for the wants of one shape and rank in one plan."""

    def __init__(self, copy: WorkingCopy, shape: int, rank: Rank) -> None:
        self._copy = copy
        self._requests = copy.capacity.request_amounts(shape)
        self._reclaimable = reclaimable_for(copy, rank, None)
        self._known = FewestTrainers(copy, shape, self._reclaimable)
        self._figures = copy.cache.get(JobFigures, lambda: JobFigures(copy))
        self._richest: Mapping[int, PlannedJob] = {}  # by priority
        self._alike = 0
        self._waste = np.full(len(copy.capacity), -inf)
        self._known_for = np.zeros(len(copy.capacity), dtype=np.intp)  # so many trainers; 0: not known
        self._most_copies = np.zeros(len(copy.capacity), dtype=np.intp)  # of the want in any of these choices
        self._further = np.zeros(len(copy.capacity), dtype=np.intp)  # trainers that must leave beyond these
        self._givers = np.ones(len(copy.capacity), dtype=np.intp)  # jobs of which so many trainers can come, at least
        self._seen = len(copy.capacity.touched), len(self._reclaimable.changed_places)

    def begin_want(self, alike: int) -> None:
        """Account for what the last want has changed. `alike`: how many wants are left, this one included."""
        self._figures.update()
        self._richest = self._figures.richest()
        self._known_for[self._most_copies > alike] = 0
        self._alike = alike

    def of(self, victims: Victims) -> SideCost:
        """Return what this choice costs."""
        capacity = self._copy.capacity
        units = [capacity.request_amounts(self._copy.shapes.number(pod.shape)) for pod in victims.pods]
        free = free_after(tuple(capacity.later[:, victims.at].tolist()), units, [1] * len(units))
        waste = self._leftover(free, tuple(capacity.allocatable[:, victims.at].tolist()))
        return sum(self._moved_back(job, len(pods)) for job, pods in victims.taken), waste

    def least(self, nodes: IntArray, fewest: IntArray) -> LeastCosts:
        """Return lower bounds for choices of `fewest` trainers on each node; exact where the choice is known."""
        known, moved = self._known, self._figures.moved_back_by_one(self._richest)
        waste, moved_back, prices = self._costs_of_one(moved)
        is_several = fewest > 1
        several = nodes[is_several]
        if len(several):
            known.update(several, fewest[is_several])
            is_bounded = is_several & ~known.is_known[nodes]
            at = nodes[is_bounded]
            self._bound_several(at, fewest[is_bounded])
            waste[at], prices[at] = self._waste[at], self._cheapest_of(at, self._givers[at])
            moved_back[at] = self._reclaimable.least_on(at, moved) + self._further[at]
            at = several[known.is_known[several]]
            waste[at], prices[at] = self._leftovers(known.free[:, at], at), known.prices(at)
            moved_back[at] = self._moved_back_by(known.givers[at], known.counts[at])
            further = known.trainers[nodes] - fewest
            moved_back[nodes] += np.where(is_several & known.is_known[nodes], further, 0)
        return LeastCosts(moved_back[nodes], waste[nodes], prices[nodes])

    def _cheapest_of(self, nodes: IntArray, givers: IntArray) -> IntArray:
        """Return the prices of so many jobs on each node, by their positions, if all had the cheapest price there."""
        cheapest = self._reclaimable.cheapest_on(nodes)[:, np.newaxis]
        prices: IntArray = np.where(np.arange(MOST_TRAINERS) < givers[:, np.newaxis], cheapest, -1)
        return prices

    def _moved_back_by(self, givers: IntArray, counts: IntArray) -> IntArray:
        """Return what fairness moves back if these jobs give so many trainers, one row for each choice."""
        codes, rows = np.unique(givers * (MOST_TRAINERS + 1) + counts, return_inverse=True)
        jobs, moved = self._reclaimable.jobs, np.zeros(len(codes), dtype=np.intp)
        for at, code in enumerate(codes.tolist()):
            giver, count = divmod(code, MOST_TRAINERS + 1)
            moved[at] = self._moved_back(jobs[giver], count) if count else 0
        total: IntArray = moved[rows.reshape(givers.shape)].sum(axis=1)
        return total

    def _costs_of_one(self, moved: IntArray) -> tuple[NodeScores, IntArray, IntArray]:
        """Return, by node, waste, what fairness moves back and the price if one trainer leaves: of the cheapest job.

        Where no single trainer is enough, at least one more leaves.
        """
        capacity, reclaimable = self._copy.capacity, self._reclaimable
        waste, moved_back = np.full(len(capacity), -inf), np.ones(len(capacity), dtype=np.intp)
        prices = np.full((len(capacity), MOST_TRAINERS), -1, dtype=np.intp)
        prices[:, 0] = reclaimable.price_positions[reclaimable.cheapest]
        places, shapes, givers = reclaimable.rows()
        is_doubtful = (places[1:] == places[:-1]) & (givers[1:] == givers[:-1])  # one job, two shapes: which is first?
        units, columns = capacity.amounts_by_shape(), [at for at, amount in enumerate(self._requests) if amount > 0]
        fits = self._figures.can_lose_one[givers]
        for column in columns:
            fits &= (capacity.later[column][places] + units[column][shapes] >= self._requests[column]).astype(np.bool_)
        fitting = np.flatnonzero(fits)
        positions = reclaimable.price_positions[givers[fitting]]
        cheapest = fitting[np.lexsort((givers[fitting], positions, places[fitting]))]
        at, first = np.unique(places[cheapest], return_index=True)
        chosen = cheapest[first]
        waste[at] = self._leftovers(capacity.later[:, at] + units[:, shapes[chosen]], at)
        moved_back[at], prices[at, 0] = moved[givers[chosen]], reclaimable.price_positions[givers[chosen]]
        doubtful = places[1:][is_doubtful]
        waste[doubtful], moved_back[doubtful] = -inf, 0
        prices[doubtful, 0] = reclaimable.cheapest_on(doubtful)
        return waste, moved_back, prices

    def _leftovers(self, free: Numbers, at: IntArray) -> NodeScores:
        """Return what is wasted on each of these nodes if so much is free, as `_leftover` does."""
        columns = [column for column, amount in enumerate(self._requests) if amount > 0]
        count, total = np.full(len(at), self._alike), np.zeros(len(at))
        for column in columns:
            count = np.minimum(count, free[column] // self._requests[column])
        for column in columns:
            left = (free[column] - count * self._requests[column]) / self._copy.capacity.allocatable[column][at]
            total = total + left.astype(np.float64)
        return total

    def _bound_several(self, nodes: IntArray, fewest: IntArray) -> None:
        """Bring the bounds up to date for nodes where several trainers must leave and the choice is not known."""
        touched, changed = self._copy.capacity.touched, self._reclaimable.changed_places
        self._known_for[[*touched[self._seen[0] :], *changed[self._seen[1] :]]] = 0
        self._seen = len(touched), len(changed)
        unknown = np.flatnonzero(self._known_for[nodes] != fewest)
        for at, count in zip(nodes[unknown].tolist(), fewest[unknown].tolist(), strict=True):
            self._further[at], self._waste[at], self._most_copies[at] = self._bound(at, count)
            self._givers[at] = self._reclaimable.fewest_givers(at, count + int(self._further[at]))
            self._known_for[at] = count

    def _bound(self, at: int, count: int) -> tuple[int, float, int]:
        """Return how many trainers beyond `count` must leave a node, and the least waste and most copies then."""
        capacity = self._copy.capacity
        later, allocatable = tuple(capacity.later[:, at].tolist()), tuple(capacity.allocatable[:, at].tolist())
        offered: Counter[int] = self._reclaimable.shapes_at(at)
        units = [capacity.request_amounts(shape) for shape in offered]
        for further in range(sum(offered.values()) - count + 1):
            choices = [*islice(counts_of_total([*offered.values()], count + further), CHOICES_BOUNDED + 1)]
            if len(choices) > CHOICES_BOUNDED:
                return further, -inf, 0
            frees = [free_after(later, units, choice) for choice in choices]
            fitting = [free for free in frees if amounts_fit(free, self._requests)]
            if fitting:
                least = min(self._leftover(free, allocatable) for free in fitting)
                return further, least, max(copies_that_fit(free, self._requests) for free in fitting)
        return 0, inf, 0

    def _leftover(self, free: ColumnAmounts, allocatable: ColumnAmounts) -> float:
        count = min(self._alike, copies_that_fit(free, self._requests))
        left = zip(free, self._requests, allocatable, strict=True)
        return sum((offered - count * amount) / whole for offered, amount, whole in left if amount > 0)

    def _moved_back(self, job: PlannedJob, count: int) -> int:
        rich = self._richest.get(job.spec.priority)
        is_poor = rich is not None and job.attained(more=1 - count) < share_below(self._copy, rich)
        return last_step_of(rich) if rich is not None and is_poor else 0


def side_costs_of(copy: WorkingCopy, shape: int, rank: Rank) -> ReclaimSideCosts:
    """Return the plan's side costs for wants of this shape and rank, made on demand."""
    return copy.cache.get(ReclaimSideCosts, lambda: ReclaimSideCosts(copy, shape, rank), key=(shape, rank))


def is_one_step(job: PlannedJob) -> bool:
    """True if the job can lose one trainer alone."""
    size = len(job.trainers)
    return size > 0 and job.spec.trainer.largest_allowed(size - 1) == size - 1


def free_after(later: ColumnAmounts, units: Sequence[ColumnAmounts], counts: Sequence[int]) -> ColumnAmounts:
    """Return what is free on a node once so many pods of these amounts have left."""
    for unit, count in zip(units, counts, strict=True):
        later = tuple(free + count * amount for free, amount in zip(later, unit, strict=True))
    return later
