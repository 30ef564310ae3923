"""Capacity, requests and pods of each node, in whole numbers, with a log of changed nodes.

The table knows no scheduler: `node_scoring` and `preemption` keep what they derived from it and update it by the log.
Plain lists, since one placement changes one node; NumPy pays for whole columns, in `node_scoring`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from autoscaler.clusters.simulated.world.sim_pods import SimPod
from autoscaler.domain import Node, NodeName, PodName, Resources
from autoscaler.errors import InvalidSpecError

MOST: Final = 1 << 56  # of any amount: a hundred times as much is still an int64
DEFAULT_SCORED_CPU_MILLI: Final = 100  # what the scheduler's scores count for a pod that requests no cpu
DEFAULT_SCORED_MEMORY_BYTES: Final = 200 * 1024 * 1024  # and no memory (pkg/scheduler/util/pod_resources.go)
BUILT_IN: Final = ("cpu", "memory", "gpu")


@dataclass(slots=True, eq=False)
class NodeSlot:
    """One node, its amounts and its pods.  `requested` and `nominated` follow the table's resources."""

    node: Node
    allocatable: tuple[int, ...]
    requested: list[int]
    scored: list[int]  # cpu and memory, unasked ones counted
    pods: dict[PodName, SimPod] = field(default_factory=dict)
    nominated: dict[PodName, SimPod] = field(default_factory=dict)
    is_alive: bool = True  # the machine itself; `node.is_ready` is what the cluster knows

    def fits(self, amounts: Sequence[int], *, besides: Sequence[int] | None = None) -> bool:
        """True if the amounts fit beside the node's pods, and beside `besides`."""
        for index, amount in enumerate(amounts):
            taken = self.requested[index] + (0 if besides is None else besides[index])
            if amount > 0 and amount > self.allocatable[index] - taken:
                return False
        return True

    def nominated_amounts(self, priority: int, *, but: PodName) -> list[int] | None:
        """Sum of the pods nominated here of at least this priority; None: there are none."""
        coming = [pod for pod in self.nominated.values() if pod.priority >= priority and pod.name != but]
        return [sum(column) for column in zip(*(pod.amounts for pod in coming), strict=True)] if coming else None


class NodeTable:
    """All nodes, in the order in which they were given; that is the scheduler's order too.

    Raises:
        InvalidSpecError: a name is listed twice, or an amount is negative or beyond `MOST`.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        given = tuple(nodes)
        extended = sorted({name for node in given for name, _ in node.allocatable.extended})
        self.resources: tuple[str, ...] = (*BUILT_IN, *extended)
        self.index: dict[NodeName, int] = {}
        self.slots: list[NodeSlot] = []
        self.touched: list[int] = []
        self.nominated_nodes: dict[NodeName, None] = {}  # nodes where a pod is nominated
        self.groups: defaultdict[str, npt.NDArray[np.int64]] = defaultdict(lambda: np.zeros(len(given), dtype=np.int64))
        for node in given:
            if node.name in self.index:
                raise InvalidSpecError("nodes", f"{node.name} is listed twice", "list each node once")
            self.index[node.name] = len(self.slots)
            amounts = self.amounts_of(node.allocatable)
            if amounts is None or not all(0 <= amount <= MOST for amount in amounts):
                raise InvalidSpecError(f"nodes.{node.name}", f"allocatable is {node.allocatable}", "0 to 2^56 of each")
            self.slots.append(NodeSlot(node=node, allocatable=amounts, requested=[0] * len(amounts), scored=[0, 0]))

    def amounts_of(self, requests: Resources) -> tuple[int, ...] | None:
        """Return the amounts in the table's order; None if it requests something that no node has."""
        if not all(name in self.resources for name, amount in requests.extended if amount > 0):
            return None
        return tuple(requests.amount(name) for name in self.resources)

    def resources_of(self, amounts: Sequence[int]) -> Resources:
        """Return the amounts as a value of the domain."""
        cpu_milli, memory_bytes, gpu_count, *others = amounts
        extended = tuple(zip(self.resources[len(BUILT_IN) :], others, strict=True))
        return Resources(cpu_milli=cpu_milli, memory_bytes=memory_bytes, gpu_count=gpu_count, extended=extended)

    def slot(self, name: NodeName) -> NodeSlot:
        """Return the node of this name.  Raises KeyError."""
        return self.slots[self.index[name]]

    def touch(self, name: NodeName) -> None:
        """Note that the node has changed."""
        self.touched.append(self.index[name])

    def replace(self, node: Node) -> None:
        """Replace what the cluster knows of the node."""
        self.slot(node.name).node = node
        self.touch(node.name)

    def add(self, pod: SimPod) -> None:
        """Add the pod to its node.  Capacity is not checked."""
        assert pod.node is not None
        self.slot(pod.node).pods[pod.name] = pod
        self._count_amounts(pod, times=1)
        self._count_in_group(pod, times=1)

    def remove(self, pod: SimPod) -> None:
        assert pod.node is not None
        del self.slot(pod.node).pods[pod.name]
        self._count_amounts(pod, times=-1)

    def remove_from_group(self, pod: SimPod) -> None:
        """Stop counting a terminating pod in the spreading of its owner."""
        self._count_in_group(pod, times=-1)

    def nominate(self, pod: SimPod, name: NodeName | None) -> None:
        """Nominate the pod to this node; None: to none."""
        if pod.nominated_node is not None:
            left = self.slot(pod.nominated_node)
            left.nominated.pop(pod.name, None)
            if not left.nominated:
                self.nominated_nodes.pop(pod.nominated_node, None)
            self.touch(pod.nominated_node)
        pod.nominated_node = name
        if name is not None:
            self.slot(name).nominated[pod.name] = pod
            self.nominated_nodes[name] = None
            self.touch(name)

    def _count_amounts(self, pod: SimPod, *, times: int) -> None:
        assert pod.node is not None
        slot = self.slot(pod.node)
        for index, amount in enumerate(pod.amounts):
            slot.requested[index] += times * amount
        cpu_milli, memory_bytes = scored_amounts(pod.amounts)
        slot.scored[0] += times * cpu_milli
        slot.scored[1] += times * memory_bytes
        self.touch(pod.node)

    def _count_in_group(self, pod: SimPod, *, times: int) -> None:
        if pod.spread_group is not None and pod.node is not None:
            self.groups[pod.spread_group][self.index[pod.node]] += times


def scored_amounts(amounts: Sequence[int]) -> tuple[int, int]:
    """Return the cpu and memory that scores count for a pod."""
    return amounts[0] or DEFAULT_SCORED_CPU_MILLI, amounts[1] or DEFAULT_SCORED_MEMORY_BYTES
