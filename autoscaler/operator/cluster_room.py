"""Room of the cluster: how much of its nodes pods of jobs and of others take, and what is free.

`room_of` is pure, and looks once at each pod; `RoomGauges` asks it at a scrape, where the view has changed.
Amounts are sums over all nodes: series for each node would be as many as nodes, and other exporters have those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from autoscaler.domain import ClusterView, Node, NodeName, Pod, PodPhase, Resources, Tier


class RoomUse(StrEnum):
    """Use of allocatable capacity."""

    OTHERS = "others"
    CORE = "core"
    SURPLUS = "surplus"
    FREE = "free"
    CLOSED = "closed"  # free, on nodes that take no new pods


class NodeState(StrEnum):
    """State of a node for new pods."""

    OPEN = "open"
    CORDONED = "cordoned"
    NOT_READY = "not ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRoom:
    """The uses add up to what all nodes offer, unless a node's pods request more than it has."""

    amounts: Mapping[RoomUse, Resources] = field(default_factory=dict)
    nodes: Mapping[NodeState, int] = field(default_factory=dict)
    waiting_pods: int = 0  # of others, without a node


_USES: Final = {Tier.EXTERNAL: RoomUse.OTHERS, Tier.CORE: RoomUse.CORE, Tier.SURPLUS: RoomUse.SURPLUS}


def room_of(view: ClusterView) -> ClusterRoom:
    """Return the room of a view: one look at each pod and each node."""
    left = {node.name: _amounts_of(node.allocatable) for node in view.nodes}
    used = {use: [0, 0, 0] for use in RoomUse}
    by_tier = {tier: used[use] for tier, use in _USES.items()}
    waiting = 0
    for pod in view.pods:  # written out: a large cluster has 20,000 of them
        place = pod.node or pod.nominated_node
        free = None if place is None else left.get(place)
        if free is None:
            waiting += _is_waiting(pod, place)
            continue
        requests, taken = pod.shape.requests, by_tier[pod.tier]
        cpu, memory, gpus = requests.cpu_milli, requests.memory_bytes, requests.gpu_count
        taken[0] += cpu
        taken[1] += memory
        taken[2] += gpus
        free[0] -= cpu
        free[1] -= memory
        free[2] -= gpus
    states = dict.fromkeys(NodeState, 0)
    for node in view.nodes:
        states[_state_of(node)] += 1
        into = used[RoomUse.FREE if node.is_open() else RoomUse.CLOSED]
        for index, amount in enumerate(left[node.name]):
            into[index] += max(0, amount)
    amounts = {
        use: Resources(cpu_milli=cpu, memory_bytes=memory, gpu_count=gpus) for use, (cpu, memory, gpus) in used.items()
    }
    return ClusterRoom(amounts=amounts, nodes=states, waiting_pods=waiting)


def _amounts_of(resources: Resources) -> list[int]:
    return [resources.cpu_milli, resources.memory_bytes, resources.gpu_count]


def _is_waiting(pod: Pod, place: NodeName | None) -> bool:
    return pod.tier is Tier.EXTERNAL and place is None and pod.phase is PodPhase.PENDING


def _state_of(node: Node) -> NodeState:
    if node.is_open():
        return NodeState.OPEN
    return NodeState.CORDONED if node.is_ready else NodeState.NOT_READY


class RoomGauges:
    """Gauges of the cluster's room.  Without series on an operator that does not lead."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, label: str) -> Gauge:
            return Gauge(f"edl_cluster_{name}", text, (label,), registry=registry)

        uses = "others, core, surplus, free, or closed (free on nodes that take no pods)"
        self._cpu: Final = gauge("cpu_cores", f"Allocatable cores by use: {uses}.", "use")
        self._memory: Final = gauge("memory_bytes", f"Allocatable memory by use: {uses}.", "use")
        self._gpus: Final = gauge("gpus", f"Allocatable GPUs by use: {uses}.", "use")
        self._nodes: Final = gauge("nodes", "Nodes by state: open, cordoned or not ready.", "state")
        self._waiting: Final = gauge("waiting_pods", "Pods that wait for a node; of: others.", "of")
        self._revision: int | None = None

    def show(self, view: ClusterView) -> None:
        """Show the room of a view.  One that was shown already costs nothing."""
        if view.revision == self._revision:
            return
        room, self._revision = room_of(view), view.revision
        for use, amounts in room.amounts.items():
            self._cpu.labels(use.value).set(amounts.cpu_milli / 1000)
            self._memory.labels(use.value).set(amounts.memory_bytes)
            self._gpus.labels(use.value).set(amounts.gpu_count)
        for state, count in room.nodes.items():
            self._nodes.labels(state.value).set(count)
        self._waiting.labels("others").set(room.waiting_pods)

    def clear(self) -> None:
        """Take all series away."""
        for gauge in (self._cpu, self._memory, self._gpus, self._nodes, self._waiting):
            gauge.clear()
        self._revision = None
