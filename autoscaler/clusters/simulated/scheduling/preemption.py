"""Preemption of the scheduler: victims for a pod that fits nowhere.

On each node all pods of lower priority are taken away; if the pod then fits, they are given back from the most
important one on as long as it still fits, and the rest are the node's victims.  The node is chosen by: lowest highest
victim, lowest sum of priorities, fewest victims, youngest highest victim.  Terminating pods are victims like others.
PodDisruptionBudgets are not modelled.
Source: pkg/scheduler/framework/preemption/preemption.go, plugins/defaultpreemption.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autoscaler.clusters.simulated.scheduling.node_scoring import accepts
from autoscaler.clusters.simulated.world.node_table import NodeSlot, NodeTable
from autoscaler.clusters.simulated.world.sim_pods import SimPod
from autoscaler.domain import NodeName

LEAST_CANDIDATES = 100  # minCandidateNodesAbsolute
CANDIDATES_PERCENT = 10  # minCandidateNodesPercentage
PRIORITY_FLOOR = 1 << 31  # added to each priority, so that more victims never sum to less


@dataclass(frozen=True, slots=True, eq=False)
class PreemptionCandidate:
    """A node and its victims, most important first."""

    node: NodeName
    victims: tuple[SimPod, ...]

    @property
    def cost(self) -> tuple[int, int, int, float]:
        """The order of choice, smallest first."""
        highest = self.victims[0].priority
        oldest_s = min(started_at_s(pod) for pod in self.victims if pod.priority == highest)
        total = sum(pod.priority + PRIORITY_FLOOR for pod in self.victims)
        return highest, total, len(self.victims), -oldest_s


class Preemption:
    """Finds victims; a result is valid until its node changes."""

    def __init__(self, table: NodeTable, chance: Callable[[], float]) -> None:
        self._table = table
        self._chance = chance
        self._known: dict[tuple[int, int], dict[int, PreemptionCandidate | None]] = {}
        self._seen = 0

    def candidate_for(self, pod: SimPod) -> PreemptionCandidate | None:
        """Return the node and victims that cost least; None if no preemption helps."""
        self._forget_touched()
        count = len(self._table.slots)
        enough = min(count, max(LEAST_CANDIDATES, count * CANDIDATES_PERCENT // 100))
        offset = int(self._chance() * count)
        known = self._known.setdefault((pod.kind, pod.priority), {})
        best: PreemptionCandidate | None = None
        found = 0
        for step in range(count):
            index = (offset + step) % count
            if index not in known:
                known[index] = victims_on(self._table.slots[index], pod)
            candidate = known[index]
            if candidate is None:
                continue
            found += 1
            if best is None or candidate.cost < best.cost:
                best = candidate
            if found >= enough:
                break
        return best

    def _forget_touched(self) -> None:
        touched = set(self._table.touched[self._seen :])
        self._seen = len(self._table.touched)
        for known in self._known.values():
            for index in touched:
                known.pop(index, None)


def may_preempt(table: NodeTable, pod: SimPod) -> bool:
    """True if the pod may preempt: not while earlier victims for it still terminate."""
    if not pod.can_preempt:
        return False
    if pod.nominated_node is None:
        return True
    present = table.slot(pod.nominated_node).pods.values()
    return not any(other.is_leaving and other.is_preempted and other.priority < pod.priority for other in present)


def victims_on(slot: NodeSlot, pod: SimPod) -> PreemptionCandidate | None:
    """Return the victims on this node; None if the pod cannot run there, or needs no victims."""
    lower = [other for other in slot.pods.values() if other.priority < pod.priority]
    if not lower or not accepts(slot, pod.shape):
        return None
    coming = slot.nominated_amounts(pod.priority, but=pod.name)
    free = [
        allocatable - taken - (0 if coming is None else coming[index])
        for index, (allocatable, taken) in enumerate(zip(slot.allocatable, slot.requested, strict=True))
    ]
    for other in lower:
        for index, amount in enumerate(other.amounts):
            free[index] += amount
    spare = [room - needed if needed > 0 else max(room, 0) for room, needed in zip(free, pod.amounts, strict=True)]
    if any(room < 0 for room in spare):
        return None
    victims = []
    for other in sorted(lower, key=importance):
        if all(amount <= room for amount, room in zip(other.amounts, spare, strict=True)):
            spare = [room - amount for amount, room in zip(other.amounts, spare, strict=True)]
        else:
            victims.append(other)
    return PreemptionCandidate(node=slot.node.name, victims=tuple(victims)) if victims else None


def importance(pod: SimPod) -> tuple[int, float, str]:
    """Sort key, most important first: priority, then age."""
    return -pod.priority, started_at_s(pod), pod.name


def started_at_s(pod: SimPod) -> float:
    """Return since when the pod counts as started."""
    return pod.created_at_s if pod.bound_at_s is None else pod.bound_at_s
