"""Filters and scores of the scheduler's default plugins: which nodes fit a pod, and how good each is.

Filters: NodeResourcesFit, node selector, taints, unschedulable.  Scores: LeastAllocated and BalancedAllocation of cpu
and memory, and the spreading of one owner's pods.  `ShapeScores` keeps both for all nodes and one kind of pod, so that
a placement costs one node's sums and a few passes over an array.  Zones, images, pod affinity and preferred node
affinity are not scored: no workload here uses them, so upstream scores every node alike.  `node_choice` picks one node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log
from typing import Any

import numpy as np
import numpy.typing as npt

from autoscaler.clusters.simulated.scheduling.scheduler_profile import SchedulerProfile, Spreading
from autoscaler.clusters.simulated.world.node_table import NodeSlot, NodeTable, scored_amounts
from autoscaler.domain import Shape

SchedulerScores = npt.NDArray[np.int64]
NodeIndices = npt.NDArray[np.intp]
Amount = Any  # a number, or an array with one per node: the formulas are the same for both
Pair = Sequence[Amount]  # cpu, memory, and whatever follows
Lesser = Callable[[Any, Any], Any]  # of two amounts

MAX_SKEW = 3  # of the system's default constraint over hostnames (podtopologyspread/plugin.go)


class ShapeScores:
    """`fits` and `scores` of every node for one kind of pod, valid after `refresh`."""

    def __init__(self, table: NodeTable, profile: SchedulerProfile, shape: Shape, amounts: tuple[int, ...]) -> None:
        self._table = table
        self._profile = profile
        self._shape = shape
        self._amounts = amounts
        self._asked = scored_amounts(amounts)
        self._seen = 0
        self.fits: npt.NDArray[np.bool_] = np.zeros(len(table.slots), dtype=np.bool_)
        self.scores: SchedulerScores = np.zeros(len(table.slots), dtype=np.int64)
        self._build()

    def refresh(self) -> None:
        """Update the nodes that changed since the last call."""
        touched = self._table.touched
        count = len(touched) - self._seen
        if count > len(self._table.slots):
            self._build()
            return
        for index in set(touched[self._seen :]) if count > 1 else touched[self._seen :]:
            slot = self._table.slots[index]
            self.fits[index] = self._fits(slot)
            self.scores[index] = self._score(slot)
        self._seen = len(touched)

    def _build(self) -> None:
        slots = self._table.slots
        self._seen = len(self._table.touched)
        self.fits[:] = [self._fits(slot) for slot in slots]
        if slots:
            allocatable, requested, scored = (
                tuple(np.array(column, dtype=np.int64).T)
                for column in zip(
                    *((slot.allocatable[:2], slot.requested[:2], slot.scored) for slot in slots), strict=True
                )
            )
            self.scores[:] = self._sum(allocatable, requested, scored, np.minimum)

    def _fits(self, slot: NodeSlot) -> bool:
        return accepts(slot, self._shape) and slot.fits(self._amounts)

    def _score(self, slot: NodeSlot) -> int:
        return int(self._sum(slot.allocatable, slot.requested, slot.scored, min))

    def _sum(self, allocatable: Pair, requested: Pair, scored: Pair, lesser: Lesser) -> Amount:
        """Return both resource scores, weighted, with the pod counted in."""
        profile, amounts = self._profile, self._amounts
        with_pod = scored[0] + self._asked[0], scored[1] + self._asked[1]
        free = profile.least_allocated_weight * least_allocated(profile, with_pod, allocatable, lesser)
        if profile.spreading is Spreading.SELECTOR:
            return free + profile.balanced_weight * balanced_1_6(profile, with_pod, allocatable)
        if not any(amounts[:2]):
            return free  # best-effort pods are not balanced
        exact = requested[0] + amounts[0], requested[1] + amounts[1]
        return free + profile.balanced_weight * balanced(profile, exact, allocatable, lesser)


def accepts(slot: NodeSlot, shape: Shape) -> bool:
    """True if the node accepts new pods of this shape, capacity aside."""
    return slot.node.is_open() and slot.node.accepts(shape)


def least_allocated(profile: SchedulerProfile, requested: Pair, allocatable: Pair, lesser: Lesser) -> Amount:
    """Points for what stays free.  Sources: noderesources/least_allocated.go; 1.6: priorities/least_requested.go."""
    best = profile.best_score
    parts = [
        (there - lesser(amount, there)) * best // or_one(there)
        for amount, there in zip(requested, allocatable, strict=False)
    ]
    return (parts[0] + parts[1]) // 2


def balanced(profile: SchedulerProfile, requested: Pair, allocatable: Pair, lesser: Lesser) -> Amount:
    """Points for cpu and memory being used alike.  Source: noderesources/balanced_allocation.go."""
    cpu, memory = (lesser(amount / or_one(there), 1) for amount, there in zip(requested, allocatable, strict=False))
    return (1 - abs(cpu - memory) / 2) * profile.best_score // 1


def balanced_1_6(profile: SchedulerProfile, requested: Pair, allocatable: Pair) -> Amount:
    """BalancedAllocation of 1.6: 0 for a full node, and the whole difference counts instead of its half.

    Source: priorities/balanced_resource_allocation.go.
    """
    cpu, memory = (amount / or_one(there) for amount, there in zip(requested, allocatable, strict=False))
    is_full = (cpu >= 1) | (memory >= 1)
    return (profile.best_score - abs(cpu - memory) * profile.best_score) // 1 * (1 - is_full)


def or_one(allocatable: Amount) -> Amount:
    """Divisor of a score: 1 for a node without the resource, which then scores as full."""
    return allocatable + (allocatable == 0)


def spread_score(profile: SchedulerProfile, counts: SchedulerScores) -> SchedulerScores:
    """Spreading score of each candidate: nodes with few pods of the owner score high.  Needs at least one candidate.

    Sources: podtopologyspread/scoring.go; in 1.6 priorities/selector_spreading.go.
    """
    if profile.spreading is Spreading.SELECTOR:
        most = int(counts.max())
        points = profile.best_score * ((most - counts) / most) if most else np.full(len(counts), profile.best_score)
        return np.asarray(points, dtype=np.int64)
    raw: SchedulerScores = np.floor(counts * log(len(counts) + 2) + (MAX_SKEW - 1) + 0.5).astype(np.int64)
    highest, lowest = int(raw.max()), int(raw.min())
    return np.floor_divide(profile.best_score * (highest + lowest - raw), highest)
