"""Waste of a pod on a node: the drop of the node's best filling beyond the pod's own worth (`packing_patterns`).

The cost of a pod of each shape is kept in an array over the nodes, brought up to date for the nodes that were touched.
Among nodes of equal cost `node_choice` takes the tightest, which keeps large holes for gangs. For a pod that stays, a
server or a master, the node's surplus counts as free, since surplus leaves sooner or later.

A pod that stays also outlasts web load: what is free beside three web pods may be the wrong size beside one. So each
level of the web on a node, from none to as many pods as the fullest one has, counts as equally likely
(`AfterWebDrains`). A workload that shrinks removes its pods from the nodes with most of them, as a ReplicaSet does.

Above `WEIGHED_NODES` nodes waste is not weighed and the tightest node is taken: on that many nodes every pattern fits
somewhere, and the computation would take too long (ADR 0113).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import inf
from typing import Final

import numpy as np
import numpy.typing as npt

from autoscaler.domain import JobState, PodPhase, Resources, Role, Shape
from autoscaler.planner.placement.packing_patterns import Patterns, copies, most_wanted, worths_of
from autoscaler.planner.working_copy.shapes import ColumnAmounts
from autoscaler.planner.working_copy.working_copy import WorkingCopy

WEIGHED_NODES: Final = 1_000

GRAINS: Final = 1_000
"""Waste is compared in thousandths of the largest pod; less is a tie, and the tighter node wins."""

BATCH: Final = 6  # pods of one shape that may come together
ABOVE_SLACK: Final = 64.0  # one grain outweighs any slack: a part of a node for each resource
MOST_PODS: Final = 8  # of a node; where there are more, each is small beside what is left over


class Waste:
    """Costs of pods on nodes in this plan. `kinds`: the shapes by which nodes are to be filled, and their worths."""

    def __init__(self, copy: WorkingCopy, kinds: tuple[tuple[Shape, int], ...], total: Resources) -> None:
        self._copy = copy
        self._kinds = [(copy.shapes.number(shape), worth) for shape, worth in kinds]
        self._shapes = [shape for shape, _ in kinds]
        self._total = total
        self._scale = max((worth for _, worth in kinds), default=1)
        accepted = [copy.capacity.accepted(number) for number, _ in self._kinds]
        self._sides = list(zip(*(mask.tolist() for mask in accepted), strict=True))  # by node: which kinds it accepts
        self._patterns: dict[tuple[bool, ...], Patterns] = {}
        self._lasting: dict[tuple[bool, ...], Patterns] = {}  # of trainers alone
        self._wanted = {copy.shapes.number(shape): count for shape, count in wanted_pods(copy).items()}
        self._worths: dict[int, int] = dict(self._kinds)
        self._costs: dict[tuple[int, bool], npt.NDArray[np.float64]] = {}
        self._seen: dict[tuple[int, bool], int] = {}
        self._vacated: dict[int, dict[int, float]] = {}  # by shape and node
        self._vacated_seen: dict[int, int] = {}

    @property
    def is_weighed(self) -> bool:
        """True if there are patterns: something is wanted, and the nodes are not too many."""
        return bool(self._kinds)

    def cost(self, at: int, shape: int, *, is_lasting: bool) -> float:
        """Return what one such pod costs this node, in grains above any slack."""
        growth = self._lasting_growth(at, shape) if is_lasting else self._growth(at, shape)
        return round(growth * GRAINS / self._scale) * ABOVE_SLACK

    def _growth(self, at: int, shape: int) -> float:
        return self._patterns_at(at).growth(
            self._free_on(at, is_lasting=False), self._requests(shape), self.worth_of(shape)
        )

    def _lasting_growth(self, at: int, shape: int) -> float:
        """Return the growth for a pod that stays: the average over web levels, and over the pods that come with it.

        Only trainers fill the rest. Five servers of 4 cores take the place of four trainers of 5 and waste nothing,
        where one alone wastes a core: so every number of them that may come is tried, and the best one counts.
        """
        requests, worth, patterns = self._requests(shape), self.worth_of(shape), self._trainers_at(at)
        free = self._free_on(at, is_lasting=True)
        levels = self._ahead.possible_rooms(at, free)
        total = sum(weight for weight, _ in levels)
        best = inf
        for count in range(1, max(1, min(copies(requests, free), self._wanted.get(shape, 1), BATCH)) + 1):
            batch = tuple(count * amount for amount in requests)
            growth = sum(weight * patterns.growth(level, batch, count * worth) for weight, level in levels)
            best = min(best, growth / (total * count))
        return best

    def is_least(self, at: int, shape: int, *, is_lasting: bool) -> bool:
        """True if no node can cost less."""
        worth = self.worth_of(shape)
        patterns = self._trainers_at(at) if is_lasting else self._patterns_at(at)
        least = patterns.least_growth(self._requests(shape), worth)
        return self.cost(at, shape, is_lasting=is_lasting) <= round(least * GRAINS / self._scale) * ABOVE_SLACK

    def costs(self, shape: int, *, is_lasting: bool) -> npt.NDArray[np.float64]:
        """Return what one such pod costs each node on which it fits; entries of other nodes are undefined."""
        touched, capacity = self._copy.capacity.touched, self._copy.capacity
        costs = self._costs.get((shape, is_lasting))
        if costs is None:
            costs = self._costs[shape, is_lasting] = np.zeros(len(capacity))
            changed = set(np.flatnonzero(capacity.fitting(shape).later < inf).tolist())
        else:
            changed = set(touched[self._seen[shape, is_lasting] :])
        for at in changed:
            if capacity.fits(at, shape, now=False):
                costs[at] = self.cost(at, shape, is_lasting=is_lasting)
        self._seen[shape, is_lasting] = len(touched)
        return costs

    def costs_if_vacated(self, shape: int, nodes: Sequence[int]) -> npt.NDArray[np.float64]:
        """Return what one such pod that stays costs each of these nodes, on which it fits once surplus has left."""
        touched = self._copy.capacity.touched
        known = self._vacated.setdefault(shape, {})
        for at in touched[self._vacated_seen.get(shape, 0) :]:
            known.pop(at, None)
        self._vacated_seen[shape] = len(touched)
        for at in nodes:
            if at not in known:
                known[at] = self.cost(at, shape, is_lasting=True)
        return np.array([known[at] for at in nodes])

    @cached_property
    def _ahead(self) -> AfterWebDrains:
        return AfterWebDrains(self._copy)

    def _free_on(self, at: int, *, is_lasting: bool) -> ColumnAmounts:
        """Return what pods may fill: for one that stays, all that can be free once surplus has left."""
        capacity = self._copy.capacity
        free = capacity.later[:, at] + capacity.surplus[:, at] if is_lasting else capacity.later[:, at]
        return tuple(free.tolist())

    def _patterns_at(self, at: int) -> Patterns:
        side = self._sides[at]
        patterns = self._patterns.get(side)
        if patterns is None:
            there = [kind for kind, is_accepted in zip(self._kinds, side, strict=True) if is_accepted]
            patterns = self._patterns[side] = Patterns([(self._requests(number), worth) for number, worth in there])
        return patterns

    def _trainers_at(self, at: int) -> Patterns:
        side = self._sides[at]
        patterns = self._lasting.get(side)
        if patterns is None:
            patterns = self._lasting[side] = Patterns(self._trainers_there(side))
        return patterns

    def _trainers_there(self, side: tuple[bool, ...]) -> list[tuple[ColumnAmounts, int]]:
        return [
            (self._requests(number), worth)
            for (number, worth), is_accepted in zip(self._kinds, side, strict=True)
            if is_accepted and number in self._copy.by_trainer
        ]

    def _requests(self, shape: int) -> ColumnAmounts:
        return self._copy.capacity.request_amounts(shape)

    def worth_of(self, shape: int) -> int:
        """Return what one such pod is worth, rounded to the unit of the kinds' worths."""
        worth = self._worths.get(shape)
        if worth is None:
            wanted = self._copy.shapes.shapes[shape]
            worths = worths_of([*self._shapes, wanted], self._total)
            unit = worths[self._shapes[0]]
            worth = self._worths[shape] = worths[wanted] * self._kinds[0][1] // unit
        return worth


def waste_of(copy: WorkingCopy) -> Waste:
    """Return the plan's measure of waste, made on demand."""

    def begin() -> Waste:
        total = copy.capacity.ready_capacity()
        kinds = most_wanted(wanted_pods(copy), total) if len(copy.capacity) <= WEIGHED_NODES else ()
        return Waste(copy, kinds, total)

    return copy.cache.get(Waste, begin)


def wanted_pods(copy: WorkingCopy) -> dict[Shape, int]:
    """Return how many trainers and servers of which shapes the jobs would still take. Masters are few and small."""
    wanted: dict[Shape, int] = {}
    for job in copy.jobs.values():
        if job.spec.state is JobState.ACTIVE:
            trainers = job.spec.trainer.ceiling - job.size
            servers = job.spec.server_count - len(job.servers)
            for role, count in ((Role.TRAINER, trainers), (Role.SERVER, servers)):
                if count > 0:
                    shape = job.shape_of(role)
                    wanted[shape] = wanted.get(shape, 0) + count
    return wanted


class AfterWebDrains:
    """The web pods on each node, as this plan found them, and what is free when they drain."""

    def __init__(self, copy: WorkingCopy) -> None:
        capacity, shapes = copy.capacity, copy.shapes
        self._web: dict[int, list[ColumnAmounts]] = {}
        for pod in copy.view.pods:
            if pod.workload is not None and pod.phase is not PodPhase.TERMINATING:
                at = capacity.index.get(pod.node) if pod.node is not None else None
                if at is not None:
                    self._web.setdefault(at, []).append(capacity.request_amounts(shapes.number(pod.shape)))
        self._most = min(MOST_PODS, max(map(len, self._web.values()), default=0))

    def possible_rooms(self, at: int, free: ColumnAmounts) -> Sequence[tuple[int, ColumnAmounts]]:
        """Return what may be free on the node where `free` is free now, each with its weight; the largest pods leave
        first.

        Weights are whole; they compare within one node.
        """
        web = sorted(self._web.get(at, ()), reverse=True)[:MOST_PODS]
        found = [free]
        for amounts in web:
            found.append(tuple(free + amount for free, amount in zip(found[-1], amounts, strict=True)))
        return list(zip(self._weights(len(web)), found, strict=True))

    def _weights(self, count: int) -> Sequence[int]:
        """Return how often the levels of the web leave the node all its pods, all but one ... none; the ends count
        half."""
        if not count:
            return [1]
        return [2 * (self._most - count) + 1, *[2] * (count - 1), 1]
