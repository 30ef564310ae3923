"""Fewest trainers: by node, which of them `victims.fewest_on` would take for one pod, without a look at each node.

A pod that several trainers must leave for can be served by dozens of choices on each of a thousand nodes. Which of them
fit depends on the node alone, and is kept. Which of those is cheapest depends on the order of the jobs' prices: arrays
find it again on the nodes of those jobs whose price has changed.

Nodes with jobs that lose whole steps, or with too many choices, are not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from autoscaler.planner.placement.reclaimable import NOBODY, Reclaimable
from autoscaler.planner.working_copy.node_arrays import Mask, Numbers
from autoscaler.planner.working_copy.offers import IntArray
from autoscaler.planner.working_copy.planned_job import PlannedJob, Price
from autoscaler.planner.working_copy.working_copy import WorkingCopy

TrainerCounts = npt.NDArray[np.int8]

MOST_TRAINERS: Final = 6
"""Trainers that leave one node, at most."""

CHOICES_KEPT: Final = 2_500
"""Ways to take as many trainers from one node, at most; fewer than `victims.CHOICES_TRIED`, so none is missed."""

CHOICES_IN_ALL: Final = 500_000
"""... that are kept in one plan, for all nodes and shapes: some 40 MB."""


@dataclass(slots=True)
class KeptChoices:
    """How many choices this plan keeps, of all shapes."""

    count: int = 0


class FewestTrainers:
    """The cheapest choices of as few trainers as possible for one shape, by node."""

    def __init__(self, copy: WorkingCopy, shape: int, reclaimable: Reclaimable) -> None:
        self._copy = copy
        self._requests = copy.capacity.request_amounts(shape)
        self._reclaimable = reclaimable
        size = len(copy.capacity)
        self._built_for = np.zeros(size, dtype=np.intp)  # fewest trainers; 0: out of date
        self._choices: dict[int, tuple[IntArray, Numbers]] = {}  # by node: jobs of the trainers; what is free then
        self._kept = copy.cache.get(KeptChoices, KeptChoices)
        self._is_stale = np.zeros(size, dtype=np.bool_)  # the order of prices has changed
        self._prices: list[Price] = []  # by job, when the cheapest choices were last found
        self._seen = 0, 0
        self.is_known: Mask = np.zeros(size, dtype=np.bool_)
        self.trainers = np.zeros(size, dtype=np.intp)  # that leave
        self.givers: IntArray = np.full((size, MOST_TRAINERS), NOBODY, dtype=np.intp)  # jobs, dearest first, with gaps
        self.counts: IntArray = np.zeros((size, MOST_TRAINERS), dtype=np.intp)  # trainers of each
        self.free: Numbers = np.zeros_like(copy.capacity.later)  # afterwards

    def update(self, nodes: IntArray, fewest: IntArray) -> None:
        """Find the cheapest choices on these nodes, `fewest` trainers or more, where that is possible."""
        touched, changed = self._copy.capacity.touched, self._reclaimable.changed_places
        self._built_for[[*touched[self._seen[0] :], *changed[self._seen[1] :]]] = 0
        self._seen = len(touched), len(changed)
        self._forget_order()
        missing = np.flatnonzero(self._built_for[nodes] != fewest)
        for at, count in zip(nodes[missing].tolist(), fewest[missing].tolist(), strict=True):
            self._built_for[at] = count
            self._put_choices(at, count)
        stale = np.flatnonzero(self._is_stale & self.is_known)
        if len(stale):
            self._choose(stale)
            self._is_stale[stale] = False

    def _forget_order(self) -> None:
        """Note where the order of prices is another one than at the last call."""
        before, now = self._prices, self._reclaimable.prices
        if len(before) != len(now):
            self._is_stale[:] = True
        else:
            for number, (old, new) in enumerate(zip(before, now, strict=True)):
                if old != new:
                    self._is_stale[self._reclaimable.places_of(number)] = True
        self._prices = list(now)

    def _put_choices(self, at: int, fewest: int) -> None:
        """Keep the choices of as few trainers as the pod needs, if they are few."""
        self.is_known[at] = False
        offered = self._reclaimable.rows_at(at)
        jobs = [self._reclaimable.jobs[giver] for giver, _, _ in offered]
        is_plain = len({giver for giver, _, _ in offered}) == len(offered) and all(map(loses_single_trainers, jobs))
        if at in self._choices:
            self._kept.count -= len(self._choices.pop(at)[0])
        if not is_plain or self._kept.count > CHOICES_IN_ALL:
            return
        limits = tuple(min(times, MOST_TRAINERS) for _, _, times in offered)
        givers, shapes, _ = (np.array(column, dtype=np.intp) for column in zip(*offered, strict=True))
        capacity, asked = self._copy.capacity, [at for at, amount in enumerate(self._requests) if amount > 0]
        requests: Numbers = np.array(self._requests, dtype=capacity.kind)[asked]
        units = capacity.amounts_by_shape()[:, shapes].T
        tried = 0
        for total in range(fewest, min(MOST_TRAINERS, sum(limits)) + 1):
            tried += number_of_ways(limits, total)
            if tried > CHOICES_KEPT:
                return
            counts = ways_to_take(limits, total)
            free = capacity.later[:, at] + counts.astype(capacity.kind) @ units
            fits = (free[:, asked] >= requests).astype(np.bool_).all(axis=1)
            if fits.any():
                taken = np.full((int(fits.sum()), MOST_TRAINERS), NOBODY, dtype=np.intp)
                leaving = np.repeat(np.tile(givers, len(taken)), counts[fits].ravel())
                taken[:, :total] = leaving.reshape(len(taken), total)
                self._choices[at] = taken, free[fits]
                self._kept.count += len(taken)
                self.trainers[at], self.is_known[at], self._is_stale[at] = total, True, True
                return

    def _choose(self, places: IntArray) -> None:
        """Find the cheapest choice on each of these nodes.

        As `fewest_on` does: by the prices of the jobs that give, the dearest first; of several such choices the one
        with most trainers of the cheapest job.
        """
        choices = [self._choices[at] for at in places.tolist()]
        width = int(self.trainers[places].max())
        taken = np.concatenate([givers[:, :width] for givers, _ in choices])
        lengths = np.array([len(givers) for givers, _ in choices], dtype=np.intp)
        job_at = np.array([number for _, number in self._reclaimable.sorted_prices] + [NOBODY], dtype=np.intp)
        rank_of = np.full(len(job_at), NOBODY, dtype=np.intp)  # by job; the last is nobody's
        rank_of[job_at[:-1]] = np.arange(len(job_at) - 1)
        ranks = np.sort(rank_of[taken], axis=1)[:, ::-1]  # dearest first
        prices = self._positions(job_at[np.where(is_again(ranks), NOBODY, ranks)])
        starts = np.cumsum(lengths) - lengths
        order = np.lexsort((*as_few(ranks[:, ::-1]), *as_few(prices), np.repeat(np.arange(len(places)), lengths)))
        first = order[starts]
        chosen = ranks[first]
        self.givers[places], self.counts[places] = NOBODY, 0
        givers = job_at[np.where(is_again(chosen), NOBODY, chosen)]
        counts = (chosen[:, :, np.newaxis] == chosen[:, np.newaxis, :]).sum(axis=2)
        self.givers[places, :width] = givers
        self.counts[places, :width] = np.where(givers == NOBODY, 0, counts)
        self.free[:, places] = np.concatenate([free for _, free in choices])[first].T

    def _positions(self, givers: IntArray) -> IntArray:
        """Return the positions of these jobs' prices among all prices, the dearest first, then -1."""
        positions = np.where(givers == NOBODY, -1, self._reclaimable.price_positions[givers])
        falling: IntArray = -np.sort(-positions, axis=1)
        return falling

    def prices(self, places: IntArray) -> IntArray:
        """Return the prices of the jobs that give, by their positions: the dearest first, then -1."""
        return self._positions(self.givers[places])


def loses_single_trainers(job: PlannedJob) -> bool:
    """True if the job loses as many trainers as are taken, in this plan."""
    spec = job.spec.trainer
    return spec.is_by_single_trainers and max(job.now, len(job.trainers)) <= spec.max_replicas


@lru_cache(maxsize=1_024)
def number_of_ways(limits: tuple[int, ...], total: int) -> int:
    """Return how many ways there are to take `total` trainers, up to its limit of each group."""
    ways = [1] + [0] * total
    for limit in limits:
        ways = [sum(ways[max(0, taken - limit) : taken + 1]) for taken in range(total + 1)]
    return ways[total]


@lru_cache(maxsize=64)
def ways_to_take(limits: tuple[int, ...], total: int) -> TrainerCounts:
    """Return these ways, one row each: how many of each group."""
    counts: TrainerCounts = np.zeros((1, 0), dtype=np.int8)
    left = np.array([total])
    for group, limit in enumerate(limits):
        beyond = sum(limits[group + 1 :])
        options = [(taken, np.flatnonzero((left >= taken) & (left - taken <= beyond))) for taken in range(limit + 1)]
        counts = np.concatenate(
            [np.column_stack((counts[rows], np.full(len(rows), taken, dtype=np.int8))) for taken, rows in options]
        )
        left = np.concatenate([left[rows] - taken for taken, rows in options])
    return counts


def is_again(ranks: IntArray) -> Mask:
    """True where a column has what the one before it has."""
    again: Mask = np.zeros(ranks.shape, dtype=np.bool_)
    again[:, 1:] = ranks[:, 1:] == ranks[:, :-1]
    return again


def as_few(ranks: IntArray) -> list[IntArray]:
    """Return sort keys for `lexsort`, by which rows compare as by their columns, the first one first."""
    beyond = 2 + int(ranks.max(initial=0))
    together = 62 // beyond.bit_length()  # columns that make one 64-bit number
    keys = []
    for start in range(0, ranks.shape[1], together):
        key: IntArray = np.zeros(len(ranks), dtype=np.intp)
        for column in ranks[:, start : start + together].T:
            key = key * beyond + column + 1
        keys.append(key)
    return keys[::-1]
