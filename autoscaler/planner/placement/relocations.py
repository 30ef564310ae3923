"""Relocations of servers to nodes where they waste less, and their gains.

A server runs where it was placed under an earlier web load. What a node is worth to trainers is the best filling by
whole ones (`room_worth`) of what is free without surplus. A relocation gains what the old nodes win when servers leave,
less what the new one loses when they come.

A gain is counted in trainers that jobs lack now, so that nobody moves for trainers that nobody wants. A trainer of a
job that has all of its own counts where it stands: the nodes together may not lose by it (`beside_held`). What jobs
lack changes with what moves bring, so two gains may still undo each other; `server_departures` ends that (ADR 0269).

Two servers of 4 cores in the place of one trainer of 5 lose one trainer and may win two, so up to `MOST_TOGETHER`
servers that go to one node are looked at together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from operator import add
from typing import Final

import numpy as np

from autoscaler.domain import JobName, Pod, Role
from autoscaler.planner.placement.colocation import nodes_closed_to
from autoscaler.planner.placement.device_reserve import nodes_with_blocked_devices
from autoscaler.planner.placement.packing_patterns import minus
from autoscaler.planner.placement.room_worth import RoomWorth
from autoscaler.planner.placement.server_departures import ServerDepartures
from autoscaler.planner.working_copy.node_arrays import Mask
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.shapes import ColumnAmounts
from autoscaler.planner.working_copy.working_copy import WorkingCopy

MOST_TOGETHER: Final = 3

MOST_NODES: Final = 150
"""For one shape in one plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovableServer:
    """A server that may move, its node, and what that node gains when it leaves, in the unit of `RoomWorth`."""

    job: PlannedJob
    pod: Pod
    at: int
    gain_on_leaving: int
    excluded_nodes: Collection[int]  # nodes to which it does not go, since others of its job are there


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocation:
    """Servers of one shape, the node where they would waste less, and the gain in the same unit."""

    sources: tuple[MovableServer, ...]
    shape: int
    at: int
    gain: int


class RelocationSearch:
    """Search for relocations on one plan's nodes."""

    def __init__(self, copy: WorkingCopy, departures: ServerDepartures) -> None:
        self._copy, self._departures = copy, departures
        self._worth = RoomWorth(copy)
        self._freed: dict[int, ColumnAmounts] = {}

    def count_as_free(self, pod: Pod) -> None:
        """Count the capacity of a server as free: the plan knows that it will leave."""
        at = self._copy.capacity.open_place_of(pod)
        if at is not None:
            amounts = self._amounts(self._copy.shapes.number(pod.shape))
            self._freed[at] = tuple(map(add, self._freed.get(at, (0,) * len(amounts)), amounts))

    def in_order(self, servers: Collection[tuple[PlannedJob, Pod]]) -> Iterator[Relocation]:
        """Yield relocations with a gain: largest gain for each server first, then fewest servers, then names."""
        by_shape: dict[int, list[MovableServer]] = {}
        for job, pod in servers:
            at, shape = self._copy.capacity.open_place_of(pod), self._copy.shapes.number(pod.shape)
            gain_on_leaving = 0 if at is None else self._gain_on_leaving(at, shape)
            if at is not None and gain_on_leaving > 0:
                excluded_nodes = {*nodes_closed_to(self._copy, job, at), *self._departures.closed_nodes(job)}
                by_shape.setdefault(shape, []).append(
                    MovableServer(
                        job=job, pod=pod, at=at, gain_on_leaving=gain_on_leaving, excluded_nodes=excluded_nodes
                    )
                )
        found: list[Relocation] = []
        for shape, sources in by_shape.items():
            sources.sort(key=lambda source: (-source.gain_on_leaving, source.job.spec.name, -source.pod.ordinal))
            found += self._moves_of(shape, sources)
        slack = {shape: self._copy.capacity.fitting(shape).now for shape in by_shape}
        found.sort(
            key=lambda relocation: (
                *relocation_order(relocation),
                float(slack[relocation.shape][relocation.at]),
                relocation.at,
                relocation.shape,
            )
        )
        yield from filter(self._loses_nothing_held, found)

    def trainers_gained(self, relocation: Relocation) -> float:
        """Return the gain in trainers of the first server's job."""
        return relocation.gain / max(1, self._worth.worth_of(relocation.sources[0].job.shapes[Role.TRAINER]))

    def _moves_of(self, shape: int, sources: Sequence[MovableServer]) -> Iterator[Relocation]:
        """Yield, for each node and number of servers, what the best candidates would gain there."""
        capacity, amounts = self._copy.capacity, self._amounts(shape)
        could_be = (
            capacity.holds(capacity.later + capacity.surplus, shape) & capacity.accepted(shape) & capacity.is_open
        )
        blocked = nodes_with_blocked_devices(self._copy, shape)
        if blocked is not None:
            could_be &= ~blocked
        for at in self._nodes_with_most_idle(could_be):
            free = self._free_on(at)
            before = self._worth.lacked(at, free)
            for count in range(1, MOST_TOGETHER + 1):
                left = minus(free, amounts, times=count)
                after = None if min(left) < 0 else self._worth.lacked(at, left)
                taken = None if before is None or after is None else first_on_distinct_nodes(sources, at, count)
                if taken is None or before is None or after is None:
                    break
                gain = sum(source.gain_on_leaving for source in taken) - (before - after)
                if gain > 0:
                    yield Relocation(sources=taken, shape=shape, at=at, gain=gain)

    def _loses_nothing_held(self, relocation: Relocation) -> bool:
        """True if the nodes together are worth as much afterwards, with the trainers counted that nobody lacks."""
        amounts = self._amounts(relocation.shape)
        there = self._free_on(relocation.at)
        rooms = [(relocation.at, there, minus(there, amounts, times=len(relocation.sources)))]
        for source in relocation.sources:
            left = self._free_on(source.at)
            rooms.append((source.at, left, tuple(map(add, left, amounts))))
        gain = 0
        for at, before, after in rooms:
            was, becomes = self._worth.beside_held(at, before), self._worth.beside_held(at, after)
            if was is not None and becomes is not None:
                gain += becomes - was
        return gain >= 0

    def _nodes_with_most_idle(self, nodes: Mask) -> list[int]:
        """Return the nodes with the largest idle part, `MOST_NODES` at most: most is wasted there."""
        capacity = self._copy.capacity
        found = np.flatnonzero(nodes)
        if len(found) > MOST_NODES:
            idle = np.zeros(len(found))
            for column in range(len(capacity.columns)):
                idle += (capacity.later[column, found] / capacity.divisor[column, found]).astype(np.float64)
            found = np.sort(found[np.argsort(-idle, kind="stable")[:MOST_NODES]])
        return [int(at) for at in found]

    def _gain_on_leaving(self, at: int, shape: int) -> int:
        """Return how much the node's worth rises when such a server leaves it."""
        free = self._free_on(at)
        after = self._worth.lacked(at, tuple(map(add, free, self._amounts(shape))))
        before = self._worth.lacked(at, free)
        return 0 if after is None or before is None else after - before

    def _free_on(self, at: int) -> ColumnAmounts:
        capacity, freed = self._copy.capacity, self._freed.get(at)
        free: ColumnAmounts = tuple((capacity.later[:, at] + capacity.surplus[:, at]).tolist())
        return free if freed is None else tuple(map(add, free, freed))

    def _amounts(self, shape: int) -> ColumnAmounts:
        return self._copy.capacity.request_amounts(shape)


def relocation_order(relocation: Relocation) -> tuple[float, int]:
    """Return the sort key: largest gain for each server that moves, then fewest servers."""
    return (-relocation.gain / len(relocation.sources), len(relocation.sources))


def first_on_distinct_nodes(sources: Sequence[MovableServer], at: int, count: int) -> tuple[MovableServer, ...] | None:
    """Return the first `count` servers that may go to this node, stand on different ones and are of different jobs."""
    taken: list[MovableServer] = []
    nodes: set[int] = {at}
    owners: set[JobName] = set()
    for source in sources:
        if source.at not in nodes and source.job.spec.name not in owners and at not in source.excluded_nodes:
            taken.append(source)
            nodes.add(source.at)
            owners.add(source.job.spec.name)
            if len(taken) == count:
                return tuple(taken)
    return None
