"""Room of the cluster: how much of its nodes pods of each job and of others take, what is free, and what is wanted.

`room_of` is pure, and looks once at each pod; `RoomGauges` asks it at a scrape, where the view has changed.
Amounts are sums over all nodes: series for each node would be as many as nodes, and other exporters have those.  The
page draws the last hour and day from them (`cluster_page.prometheus_history`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from autoscaler.domain import ClusterView, JobName, JobState, Node, NodeName, Pod, PodPhase, Resources, Role, Tier
from autoscaler.operator.job_gauges import JOB


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
    """The uses add up to what all nodes offer, unless a node's pods request more than it has.

    `held`: millicores and GPUs that the pods of each job take; `wanted`: what would be in use if every pod had a node
    and every job its maximum, or the size that it is pinned to.
    """

    amounts: Mapping[RoomUse, Resources] = field(default_factory=dict)
    nodes: Mapping[NodeState, int] = field(default_factory=dict)
    waiting_pods: int = 0  # of others, without a node
    pods: int = 0  # of others, those that leave apart
    ready_pods: int = 0  # of these
    held: Mapping[JobName, tuple[int, int]] = field(default_factory=dict)
    wanted: tuple[int, int] = (0, 0)


_USES: Final = {Tier.EXTERNAL: RoomUse.OTHERS, Tier.CORE: RoomUse.CORE, Tier.SURPLUS: RoomUse.SURPLUS}


def room_of(view: ClusterView) -> ClusterRoom:
    """Return the room of a view: one look at each pod and each node."""
    left = {node.name: _amounts_of(node.allocatable) for node in view.nodes}
    used = {use: [0, 0, 0] for use in RoomUse}
    by_tier = {tier: used[use] for tier, use in _USES.items()}
    held: dict[JobName, list[int]] = {}
    waiting, others, ready, wanted = 0, 0, 0, [0, 0]
    trainers: dict[JobName, int] = {}
    for pod in view.pods:  # written out: a large cluster has 20,000 of them
        requests = pod.shape.requests
        cpu, memory, gpus = requests.cpu_milli, requests.memory_bytes, requests.gpu_count
        wanted[0] += cpu
        wanted[1] += gpus
        if pod.job is None:
            others += pod.phase is not PodPhase.TERMINATING
            ready += pod.phase is PodPhase.READY
        elif pod.role is Role.TRAINER:
            trainers[pod.job] = trainers.get(pod.job, 0) + 1
        place = pod.node or pod.nominated_node
        free = None if place is None else left.get(place)
        if free is None:
            waiting += _is_waiting(pod, place)
            continue
        taken = by_tier[pod.tier]
        taken[0] += cpu
        taken[1] += memory
        taken[2] += gpus
        free[0] -= cpu
        free[1] -= memory
        free[2] -= gpus
        if pod.job is not None:
            of_job = held.setdefault(pod.job, [0, 0])
            of_job[0] += cpu
            of_job[1] += gpus
    for job in view.jobs:
        if job.state is JobState.ACTIVE:
            missing = max(0, (job.trainer.pinned_replicas or job.trainer.max_replicas) - trainers.get(job.name, 0))
            wanted[0] += missing * job.trainer.shape.requests.cpu_milli
            wanted[1] += missing * job.trainer.shape.requests.gpu_count
    states = dict.fromkeys(NodeState, 0)
    for node in view.nodes:
        states[_state_of(node)] += 1
        into = used[RoomUse.FREE if node.is_open() else RoomUse.CLOSED]
        for index, amount in enumerate(left[node.name]):
            into[index] += max(0, amount)
    amounts = {
        use: Resources(cpu_milli=cpu, memory_bytes=memory, gpu_count=gpus) for use, (cpu, memory, gpus) in used.items()
    }
    return ClusterRoom(
        amounts=amounts,
        nodes=states,
        waiting_pods=waiting,
        pods=others,
        ready_pods=ready,
        held={job: (cpu, gpus) for job, (cpu, gpus) in held.items()},
        wanted=(wanted[0], wanted[1]),
    )


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
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"edl_{name}", text, labels, registry=registry)

        uses = "others, core, surplus, free, or closed (free on nodes that take no pods)"
        self._cpu: Final = gauge("cluster_cpu_cores", f"Allocatable cores by use: {uses}.", "use")
        self._memory: Final = gauge("cluster_memory_bytes", f"Allocatable memory by use: {uses}.", "use")
        self._gpus: Final = gauge("cluster_gpus", f"Allocatable GPUs by use: {uses}.", "use")
        self._nodes: Final = gauge("cluster_nodes", "Nodes by state: open, cordoned or not ready.", "state")
        self._waiting: Final = gauge("cluster_waiting_pods", "Pods that wait for a node; of: others.", "of")
        self._pods: Final = gauge("cluster_pods", "Pods, those that leave apart; of: others.", "of")
        self._ready: Final = gauge("cluster_ready_pods", "Pods that are ready; of: others.", "of")
        self._held_cpu: Final = gauge("job_held_cpu_cores", "Allocatable cores that a job's pods take.", *JOB)
        self._held_gpus: Final = gauge("job_held_gpus", "Allocatable GPUs that a job's pods take.", *JOB)
        wanted = "that would be in use if every pod had a node and every job its maximum"
        self._wanted_cpu: Final = gauge("cluster_wanted_cpu_cores", f"Cores {wanted}; of: all.", "of")
        self._wanted_gpus: Final = gauge("cluster_wanted_gpus", f"GPUs {wanted}; of: all.", "of")
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
        self._pods.labels("others").set(room.pods)
        self._ready.labels("others").set(room.ready_pods)
        self._wanted_cpu.labels("all").set(room.wanted[0] / 1000)
        self._wanted_gpus.labels("all").set(room.wanted[1])
        self._held_cpu.clear()  # of jobs that have gone
        self._held_gpus.clear()
        for job, (cpu_milli, gpus) in room.held.items():
            namespace, _, name = job.partition("/")
            self._held_cpu.labels(namespace, name).set(cpu_milli / 1000)
            self._held_gpus.labels(namespace, name).set(gpus)

    def clear(self) -> None:
        """Take all series away."""
        of_cluster = (self._cpu, self._memory, self._gpus, self._nodes, self._waiting, self._pods, self._ready)
        for gauge in (*of_cluster, self._wanted_cpu, self._wanted_gpus, self._held_cpu, self._held_gpus):
            gauge.clear()
        self._revision = None
