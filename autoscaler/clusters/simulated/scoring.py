"""Which nodes hold a pod, and how much the scheduler likes each: filters and scores of the default plugins.

Filters: NodeResourcesFit, node selector, taints, unschedulable.  Scores: LeastAllocated and BalancedAllocation of cpu
and memory, and the spreading of one owner's pods.  A `ShapeBoard` keeps both for all nodes and one kind of pod, so that
a placement costs one node's sums and a few passes over an array.  Zones, images, pod affinity and preferred node
affinity are not scored: no workload here has them, so upstream gives every node the same for them.
Next: `choosing`, which picks one node.
"""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np
import numpy.typing as npt

from autoscaler.clusters.simulated.node_table import NodeTable, Slot, scored_amounts
from autoscaler.clusters.simulated.profile import SchedulerProfile, Spreading
from autoscaler.domain import Shape

Scores = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]
Amount = Any  # a number, or an array with one per node: the formulas are the same for both

MAX_SKEW = 3  # of the system's default constraint over hostnames (podtopologyspread/plugin.go)


class ShapeBoard:
    """`fits` and `scores` of every node for one kind of pod; true after `refresh`."""

    def __init__(self, table: NodeTable, profile: SchedulerProfile, shape: Shape, amounts: tuple[int, ...]) -> None:
        self._table = table
        self._profile = profile
        self._shape = shape
        self._amounts = amounts
        self._asked = scored_amounts(amounts)
        self._seen = 0
        self.fits: npt.NDArray[np.bool_] = np.zeros(len(table.slots), dtype=np.bool_)
        self.scores: Scores = np.zeros(len(table.slots), dtype=np.int64)
        self._build()

    def refresh(self) -> None:
        """Bring the nodes up to date that were touched since the last call."""
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
            capacity = np.array([slot.allocatable[:2] for slot in slots], dtype=np.int64)
            taken = np.array([slot.scored for slot in slots], dtype=np.int64)
            requested = taken + np.array(self._asked, dtype=np.int64)
            self.scores[:] = resource_score(
                self._profile, requested[:, 0], capacity[:, 0], requested[:, 1], capacity[:, 1], lesser=np.minimum
            )

    def _fits(self, slot: Slot) -> bool:
        return accepts(slot, self._shape) and slot.has_room_for(self._amounts)

    def _score(self, slot: Slot) -> int:
        cpu_milli, memory_bytes = slot.scored[0] + self._asked[0], slot.scored[1] + self._asked[1]
        score = resource_score(self._profile, cpu_milli, slot.allocatable[0], memory_bytes, slot.allocatable[1])
        return int(score)


def accepts(slot: Slot, shape: Shape) -> bool:
    """Whether the node takes new pods of this shape at all, room apart."""
    return slot.node.is_open() and slot.node.accepts(shape)


def resource_score(  # noqa: PLR0917 - what is requested and what there is, of cpu, then of memory
    profile: SchedulerProfile, cpu: Amount, cpu_whole: Amount, memory: Amount, memory_whole: Amount, lesser: Any = min
) -> Amount:
    """LeastAllocated and BalancedAllocation, weighted, for requests with the pod counted in.

    `lesser`: how two amounts are compared.  A node without cpu or memory scores as a full one.  Sources:
    noderesources/least_allocated.go, balanced_allocation.go; in 1.6 priorities/least_requested.go and
    balanced_resource_allocation.go, where the difference of the two fractions counts and not their deviation.
    """
    best = profile.best_score
    free = least_score(cpu, cpu_whole, best, lesser) + least_score(memory, memory_whole, best, lesser)
    cpu_part, memory_part = cpu / (cpu_whole + (cpu_whole == 0)), memory / (memory_whole + (memory_whole == 0))
    if profile.spreading is Spreading.SELECTOR:
        is_full = (cpu_part >= 1) | (memory_part >= 1)
        balance = (best - abs(cpu_part - memory_part) * best) // 1 * (1 - is_full)
    else:
        balance = (1 - abs(lesser(cpu_part, 1) - lesser(memory_part, 1)) / 2) * best // 1
    return profile.least_allocated_weight * (free // 2) + profile.balanced_weight * balance


def least_score(requested: Amount, whole: Amount, best: int, lesser: Any) -> Amount:
    """The part of one resource that stays free, in whole points."""
    return (whole - lesser(requested, whole)) * best // (whole + (whole == 0))


def spread_score(profile: SchedulerProfile, counts: Scores) -> Scores:
    """Points of each candidate for holding few pods of the owner; there is one at least.

    Sources: podtopologyspread/scoring.go; in 1.6 priorities/selector_spreading.go.
    """
    if profile.spreading is Spreading.SELECTOR:
        most = int(counts.max())
        points = profile.best_score * ((most - counts) / most) if most else np.full(len(counts), profile.best_score)
        return np.asarray(points, dtype=np.int64)
    raw: Scores = np.floor(counts * log(len(counts) + 2) + (MAX_SKEW - 1) + 0.5).astype(np.int64)
    highest, lowest = int(raw.max()), int(raw.min())
    return np.floor_divide(profile.best_score * (highest + lowest - raw), highest)
