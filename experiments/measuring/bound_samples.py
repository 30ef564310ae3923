"""Samples of both upper bounds during a pass: the CPU that whole pods could use at that instant.

*Pinned*: web pods, servers and masters keep their nodes; only trainers may go anywhere.  *Free*: servers and masters
may go anywhere too, in their present number.  If pods are so small, or of so many kinds, that the patterns of a node
cannot be listed, the linear bound, which is higher, replaces both or free alone; the sample says so.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import add, sub
from typing import Final

from autoscaler.clusters.simulated import SimPod, SimulatedCluster
from autoscaler.domain import Job, JobState, Node, NodeName, Resources, Role, Shape
from experiments.bounds import PackingItem, Worth, fill, upper_bound
from experiments.bounds.whole_pod_patterns import TooManyPatternsError, Vector

CORE: Final = frozenset([Role.SERVER, Role.MASTER])


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundSample:
    """At one instant of the scenario: percent of all CPU, and the trainers that the pinned bound holds."""

    at_s: float
    pinned_percent: float
    free_percent: float
    pinned_trainers: int
    is_exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPods:
    """Pods with a node, as vectors (cpu, memory, gpu, pods)."""

    rooms: tuple[Vector, ...]  # without EDL's pods
    others_cpu_milli: int
    core: Counter[Shape]
    core_on: tuple[Vector, ...]  # requests of core pods, per node
    jobs: tuple[Job, ...]  # that have begun


class BoundSampler:
    """Takes samples of one cluster's bounds; an unchanged cluster gets a copy of the last sample."""

    def __init__(self, cluster: SimulatedCluster, nodes: list[Node]) -> None:
        self.samples: list[BoundSample] = []
        self._cluster = cluster
        self._nodes = nodes
        self._seen_revision = -1

    def sample(self, at_s: float) -> None:
        """Add a sample of the present pods for this instant."""
        revision = self._cluster.view().revision
        if revision == self._seen_revision:
            self.samples.append(replace(self.samples[-1], at_s=at_s))
        else:
            self.samples.append(sample_bounds(self._cluster, self._nodes, at_s))
        self._seen_revision = revision


def sample_bounds(cluster: SimulatedCluster, nodes: list[Node], at_s: float) -> BoundSample:
    """Return both bounds for the present pods."""
    placed = observe_placed_pods(cluster, nodes)
    capacity = sum(node.allocatable.cpu_milli for node in nodes)
    core_cpu = sum(shape.requests.cpu_milli * count for shape, count in placed.core.items())
    rooms = [tuple(map(sub, *pair)) for pair in zip(placed.rooms, placed.core_on, strict=True)]
    most: Counter[Shape] = Counter()
    for job in placed.jobs:
        most[job.trainer.shape] += job.trainer.ceiling
    trainers = [item_of(shape, most=count) for shape, count in most.items()]
    try:
        pinned = fill(rooms, trainers)
        pinned_cpu: float = 0 if pinned is None else pinned.worth
        pinned_trainers = 0 if pinned is None else sum(pinned.counts)
        is_exact = True
    except TooManyPatternsError:
        pinned_cpu = upper_bound(cluster.view()) - core_cpu
        pinned_trainers, is_exact = int(upper_bound(cluster.view(), Worth.TRAINERS)), False
    core = [item_of(shape, most=count, least=count) for shape, count in placed.core.items()]
    try:
        free = fill(placed.rooms, [*trainers, *core])
        free_cpu: float = core_cpu + pinned_cpu if free is None else free.worth
    except TooManyPatternsError:
        free_cpu, is_exact = max(upper_bound(cluster.view()), float(core_cpu + pinned_cpu)), False
    return BoundSample(
        at_s=at_s,
        pinned_percent=100 * (placed.others_cpu_milli + core_cpu + pinned_cpu) / capacity,
        free_percent=100 * (placed.others_cpu_milli + free_cpu) / capacity,
        pinned_trainers=pinned_trainers,
        is_exact=is_exact,
    )


def observe_placed_pods(cluster: SimulatedCluster, nodes: list[Node]) -> PlacedPods:
    """Return the pods with a node: those of others, core pods, and the jobs that have begun."""
    placed = [pod for pod in cluster.pods.values() if pod.node is not None]
    others = [pod for pod in placed if pod.role is Role.EXTERNAL]
    core = [pod for pod in placed if pod.role in CORE]
    begun = {pod.owner for pod in placed if pod.role is not Role.EXTERNAL}
    others_on, core_on = sums_by_node(others), sums_by_node(core)
    open_nodes = {node.name for node in cluster.view().nodes if node.is_open()}
    kept = [node for node in nodes if node.name in open_nodes]
    return PlacedPods(
        rooms=tuple(tuple(map(sub, vector(node.allocatable), others_on[node.name])) for node in kept),
        others_cpu_milli=sum(cpu_milli for cpu_milli, *_ in others_on.values()),
        core=count_shapes(core),
        core_on=tuple(core_on[node.name] for node in kept),
        jobs=tuple(job for name, job in cluster.jobs.items() if name in begun and job.state is JobState.ACTIVE),
    )


def sums_by_node(pods: Iterable[SimPod]) -> Mapping[NodeName | None, Vector]:
    """Return the pods' requests by node; zero for any other node."""
    sums: defaultdict[NodeName | None, Vector] = defaultdict(lambda: (0, 0, 0, 0))
    vectors: dict[int, Vector] = {}
    for pod in pods:
        if pod.kind not in vectors:
            vectors[pod.kind] = vector(pod.shape.requests)
        sums[pod.node] = tuple(map(add, sums[pod.node], vectors[pod.kind]))
    return sums


def count_shapes(pods: Sequence[SimPod]) -> Counter[Shape]:
    """Count pods by shape; hashing a shape costs more than all the rest, and pods of one kind have one."""
    shapes = {pod.kind: pod.shape for pod in pods}
    counts: Counter[Shape] = Counter()
    for kind, count in Counter([pod.kind for pod in pods]).items():
        counts[shapes[kind]] += count
    return counts


def vector(amounts: Resources) -> Vector:
    """(cpu, memory, gpu, pods)."""
    return (amounts.cpu_milli, amounts.memory_bytes, amounts.gpu_count, amounts.amount("pods"))


def item_of(shape: Shape, *, most: int, least: int = 0) -> PackingItem:
    """Return equal pods whose worth is their CPU."""
    return PackingItem(request=vector(shape.requests), worth=shape.requests.cpu_milli, least=least, most=most)
