"""Invariants of the simulated cluster, checked after every event.

Capacity: no node is overcommitted.  Sums: the requests of each node are those of its pods.  Places: a pod is on one
existing node, or on none.  Up to `EVERYWHERE_NODES` nodes, capacity and counts are checked everywhere, above that on
changed nodes; sums are recomputed on changed nodes, and on all by `check_everything`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import gt, le
from typing import Final

from autoscaler.clusters.simulated.world.node_table import NodeSlot
from autoscaler.clusters.simulated.world.world import World
from autoscaler.errors import InvariantViolationError

EVERYWHERE_NODES: Final = 500


class WorldInvariants:
    """Checks a world after each event."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._seen = 0

    def check(self) -> None:
        """Raise InvariantViolationError, with the instant and the node, unless all holds."""
        table = self._world.table
        if self._seen == len(table.touched):
            return  # nothing came, went or changed its node since the last check
        touched = [table.slots[index] for index in set(table.touched[self._seen :])]
        self._seen = len(table.touched)
        self._check_sums(touched)
        if len(table.slots) <= EVERYWHERE_NODES:
            self._check_capacity(table.slots)
            self._check_counts()
        else:
            self._check_capacity(touched)

    def check_everything(self) -> None:
        """Check every node, without relying on earlier checks."""
        self._check_capacity(self._world.table.slots)
        self._check_sums(self._world.table.slots)
        self._check_counts()

    def _check_capacity(self, slots: Sequence[NodeSlot]) -> None:
        requested = [amount for slot in slots for amount in slot.requested]
        allocatable = [amount for slot in slots for amount in slot.allocatable]
        if all(map(le, requested, allocatable)) and min(requested, default=0) >= 0:
            return  # runs after every event: check all numbers first, and find the node only on a violation
        for slot in slots:
            if any(map(gt, slot.requested, slot.allocatable)) or min(slot.requested) < 0:
                self._fail(slot, f"{slot.requested} is requested of {slot.allocatable}")

    def _check_sums(self, slots: Iterable[NodeSlot]) -> None:
        for slot in slots:
            sums = [0] * len(slot.allocatable)
            for name, pod in slot.pods.items():
                if self._world.pods.get(name) is not pod or pod.node != slot.node.name or pod.gone_at_s is not None:
                    self._fail(slot, f"{name} is listed here, but is {pod.phase} on {pod.node}")
                for index, amount in enumerate(pod.amounts):
                    sums[index] += amount
            if sums != slot.requested:
                self._fail(slot, f"requested is {slot.requested}, its pods request {sums}")

    def _check_counts(self) -> None:
        world = self._world
        bound = sum(len(slot.pods) for slot in world.table.slots)
        if bound + world.unbound_count != len(world.pods):
            problem = f"{bound} pods are bound, {world.unbound_count} unbound, {len(world.pods)} exist"
            raise InvariantViolationError(f"at {world.now_s:.3f} s: {problem}")

    def _fail(self, slot: NodeSlot, problem: str) -> None:
        raise InvariantViolationError(f"at {self._world.now_s:.3f} s, node {slot.node.name}: {problem}")
