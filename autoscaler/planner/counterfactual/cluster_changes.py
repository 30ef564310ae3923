"""Changes of the cluster: more of one resource on a node, more nodes, closed nodes opened, larger quotas.

Only nodes that accept the job's trainers are tried.  More of a resource goes to one node at a time: the nodes with
the smallest deficit are tried, and the smallest addition of all is the answer. The units are those of `increments`;
nodes count by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from autoscaler.domain import (
    NOTHING,
    Job,
    JobState,
    LabelOperator,
    Labels,
    Node,
    NodeName,
    PodPhase,
    Quota,
    Resources,
    Shape,
)
from autoscaler.planner.counterfactual.change import ChangeKind, Ladder, PlanInputs
from autoscaler.planner.counterfactual.increments import RUNGS, format_increment, only, unit_for
from autoscaler.planner.placement.device_reserve import needs_per_device, would_block_devices

NODES_TRIED: Final = 3
"""Most candidate nodes for more of one resource, and most kinds of new nodes."""

MOST_NODES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreOnNode:
    """One node with more of one resource."""

    node: NodeName
    resource: str
    added: int
    selector: str = ""
    kind: ChangeKind = ChangeKind.RESOURCE

    @property
    def amount(self) -> float:
        return self.added

    def apply(self, inputs: PlanInputs) -> PlanInputs:
        node = next(node for node in inputs.view.nodes if node.name == self.node)
        larger = replace(node, allocatable=node.allocatable + only(self.resource, self.added))
        return replace(inputs, view=inputs.view.evolve(nodes=(larger,)))

    def describe(self) -> str:
        among = f", one of the nodes matching {self.selector}" if self.selector else ""
        return f"{format_increment(self.resource, self.added)} more on {self.node}{among}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreNodes:
    """`count` empty nodes like `like`.

    `model`: name of the existing node that they copy; empty if no existing node fits.
    """

    like: Node
    count: int
    model: str
    kind: ChangeKind = ChangeKind.NODES

    @property
    def amount(self) -> float:
        return self.count

    def apply(self, inputs: PlanInputs) -> PlanInputs:
        return replace(inputs, view=inputs.view.evolve(nodes=new_nodes(inputs.view.nodes, self.like, self.count)))

    def describe(self) -> str:
        nodes = "another node" if self.count == 1 else f"{self.count} more nodes"
        if self.model:
            return f"{nodes} like {self.model}"
        amounts = ", ".join(
            format_increment(name, amount) for name, amount in self.like.allocatable.amounts() if name != "pods"
        )
        return f"{nodes} with {amounts}" + (f" and labels {labels_of(self.like.labels)}" if self.like.labels else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenNodes:
    """Closed nodes that are opened: ready, neither cordoned nor drained."""

    nodes: tuple[NodeName, ...]
    kind: ChangeKind = ChangeKind.OPEN

    @property
    def amount(self) -> float:
        return len(self.nodes)

    def apply(self, inputs: PlanInputs) -> PlanInputs:
        opened = [
            replace(node, is_ready=True, is_cordoned=False, is_draining=False)
            for node in inputs.view.nodes
            if node.name in self.nodes
        ]
        return replace(inputs, view=inputs.view.evolve(nodes=opened))

    def describe(self) -> str:
        return f"{', '.join(self.nodes)} open again"


@dataclass(frozen=True, slots=True, kw_only=True)
class RaiseQuota:
    """A namespace allowed more of one resource."""

    quota: Quota
    resource: str
    added: int
    kind: ChangeKind = ChangeKind.QUOTA

    @property
    def amount(self) -> float:
        return self.added

    def apply(self, inputs: PlanInputs) -> PlanInputs:
        limits = tuple(
            replace(limit, hard=limit.hard + self.added) if limit.resource == self.resource else limit
            for limit in self.quota.limits
        )
        others = [quota for quota in inputs.view.quotas if quota != self.quota]
        return replace(inputs, view=inputs.view.evolve(quotas=[*others, replace(self.quota, limits=limits)]))

    def describe(self) -> str:
        return f"{format_increment(self.resource, self.added)} more in quota {self.quota.namespace}/{self.quota.name}"


def resource_ladders(inputs: PlanInputs, job: Job, missing: Resources) -> Iterator[Ladder]:
    """Yield, resource by resource, a ladder for each of the nodes that lack least of it.

    `missing`: all that the job requests; the ladders go up to twice as much.
    """
    shape = job.trainer.shape
    free = free_by_node(inputs, shape)
    selector = labels_of(shape.node_selector)
    for resource, need in missing.amounts():
        unit = unit_for(resource, need)
        for node in nodes_with_least_deficit(free, shape.requests, resource):
            amounts = [unit * rung for rung in range(1, RUNGS + 1)]
            yield [MoreOnNode(node=node, resource=resource, added=added, selector=selector) for added in amounts]


def node_ladders(inputs: PlanInputs, job: Job, missing: Resources) -> Iterator[Ladder]:
    """Yield ladders of new nodes: of the commonest kinds that hold one node's share of the step, else of one that
    holds all.

    One node's share is a trainer, or `perNode` of them.  If devices reserve what it needs on all kinds, a node that
    holds all is proposed too.
    """
    shape = job.trainer.shape
    unit = NOTHING.plus(shape.requests, times=job.trainer.per_node)
    fitting = [n for n in inputs.view.nodes if n.accepts(shape) and unit.fits_into(n.allocatable)]
    kinds = Counter((node.allocatable, node.labels, node.taints) for node in fitting)
    for kind, _ in kinds.most_common(NODES_TRIED):
        model = next(n for n in fitting if (n.allocatable, n.labels, n.taints) == kind)
        like = replace(model, is_ready=True, is_cordoned=False, is_draining=False)
        yield [MoreNodes(like=like, count=count, model=model.name) for count in range(1, MOST_NODES + 1)]
    made = Node(name=NodeName("new"), allocatable=missing, labels=labels_for(shape))
    if not any(holds_surplus(inputs, node, unit) for node in fitting) and made.accepts(shape):
        yield [MoreNodes(like=made, count=count, model="") for count in range(1, MOST_NODES + 1)]


def holds_surplus(inputs: PlanInputs, node: Node, unit: Resources) -> bool:
    """True if surplus may take this much of such a node without the device reserve."""
    if not inputs.policy.has_device_reserve:
        return True
    active = (job.trainer.shape.requests for job in inputs.view.jobs if job.state is JobState.ACTIVE)
    return not would_block_devices(unit, node.allocatable, needs_per_device(active))


def labels_for(shape: Shape) -> Labels:
    """Return labels with which a node matches the shape's selector and the first of its affinity terms, if any do."""
    for term in shape.node_terms:
        required = {
            requirement.key: requirement.values[0] if requirement.values else "true"
            for requirement in term
            if requirement.operator in {LabelOperator.IN, LabelOperator.EXISTS}
        }
        labels = shape.node_selector | frozenset(required.items())
        if Node(name=NodeName("new"), allocatable=NOTHING, labels=labels).accepts(shape):
            return labels
    return shape.node_selector


def open_ladders(inputs: PlanInputs, job: Job) -> Iterator[Ladder]:
    """Yield the closed nodes that accept the job's trainers, opened one after another."""
    shape = job.trainer.shape
    closed = [node.name for node in inputs.view.nodes if not node.is_open() and node.accepts(shape)]
    for first in range(min(len(closed), NODES_TRIED)):
        order = [*closed[first:], *closed[:first]][:MOST_NODES]
        yield [OpenNodes(nodes=tuple(order[:count])) for count in range(1, len(order) + 1)]


def quota_ladders(inputs: PlanInputs, job: Job, missing: Resources) -> Iterator[Ladder]:
    """Yield more of each limit of the job's namespace that its trainers count against."""
    for quota in inputs.view.quotas:
        for limit in quota.limits:
            need = missing.amount(limit.resource)
            if quota.namespace == job.namespace and need:
                unit = unit_for(limit.resource, need)
                amounts = [unit * rung for rung in range(1, RUNGS + 1)]
                yield [RaiseQuota(quota=quota, resource=limit.resource, added=added) for added in amounts]


def free_by_node(inputs: PlanInputs, shape: Shape) -> dict[NodeName, Resources]:
    """Return what is free on each open node that accepts the shape; negative for an over-committed node."""
    free = {n.name: n.allocatable for n in inputs.view.nodes if n.is_open() and n.accepts(shape)}
    for pod in inputs.view.pods:
        if pod.place in free and pod.phase is not PodPhase.GATED:
            free[pod.place] -= pod.requests
    return free


def nodes_with_least_deficit(free: dict[NodeName, Resources], requests: Resources, resource: str) -> list[NodeName]:
    """Return the nodes where least of this resource is lacking, those first where nothing else is."""

    def deficit(name: NodeName) -> tuple[int, int, NodeName]:
        others = sum(amount > free[name].amount(other) for other, amount in requests.amounts() if other != resource)
        return others, requests.amount(resource) - free[name].amount(resource), name

    return sorted(free, key=deficit)[:NODES_TRIED]


def new_nodes(existing: Iterable[Node], like: Node, count: int) -> tuple[Node, ...]:
    """Return so many nodes like this one, with names that are free."""
    taken = {node.name for node in existing}
    free_names = (name for number in range(1, count + len(taken) + 1) if (name := f"{like.name}+{number}") not in taken)
    return tuple(replace(like, name=NodeName(name)) for name, _ in zip(free_names, range(count), strict=False))


def labels_of(labels: Iterable[tuple[str, str]]) -> str:
    """Labels as text: `disk=ssd,zone=a`."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels))


def gang_of(job: Job) -> Resources:
    """Return the sum of the requests of the job's core pods."""
    total = NOTHING.plus(job.master.shape.requests, times=job.master.replicas)
    if job.servers is not None:
        total = total.plus(job.servers.shape.requests, times=job.servers.min_replicas)
    return total.plus(job.trainer.shape.requests, times=job.trainer.min_replicas)
