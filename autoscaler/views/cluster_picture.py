"""Who has the cluster: each node's capacity and the pods on it, and the totals of everybody.

A node is counted in its scarcest common resource: GPUs where it has any, cores elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from autoscaler.clusters.kubernetes.objects.fields import Raw, created_at_s, key_of, part, text
from autoscaler.clusters.kubernetes.objects.resource_amounts import amounts_of, to_resources
from autoscaler.views.documents import ClusterDocuments
from autoscaler.views.object_states import node_state
from autoscaler.views.pod_view import NodeUnit, PodView, Use, all_pods, amount_in

COLOURS: Final = 8
"""Jobs are told apart by so many colours; more jobs share them, and each is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One node.  Amounts are in thousandths of `unit`; `used` counts the pods that are shown."""

    name: str
    state: str
    unit: NodeUnit
    capacity: int
    used: int
    pods: tuple[PodView, ...]  # in the order of their drawing: web, core, surplus

    @property
    def free(self) -> int:
        """Capacity that no pod shown requests."""
        return max(0, self.capacity - self.used)

    @property
    def is_open(self) -> bool:
        """True if new pods may come."""
        return self.state == "Ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one owner has of the cluster in one use, in thousandths of `unit`.  `colour`: of a job, from 0."""

    unit: NodeUnit
    owner: str
    use: Use
    amount: int
    pods: int
    colour: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerShare:
    """All that one owner has of the cluster, in thousandths of `unit`: its minimum and what it has above that.

    `core` is all of web's, of what is idle, and of what is free.
    """

    unit: NodeUnit
    owner: str
    use: Use  # CORE for a job
    core: int
    surplus: int
    pods: int
    colour: int | None = None

    @property
    def amount(self) -> int:
        """Both together."""
        return self.core + self.surplus


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPicture:
    """The cluster now.  `holdings`: of everybody, with what is free last; `capacity` by unit.

    What nobody holds of a node that takes no pods (cordoned, not ready) is not free, and in no holding.
    """

    nodes: tuple[NodeView, ...]
    waiting: tuple[PodView, ...]  # without a node
    holdings: tuple[Holding, ...]
    capacity: tuple[tuple[NodeUnit, int], ...]
    is_complete: bool

    @property
    def shares(self) -> tuple[OwnerShare, ...]:
        """The holdings with those of one owner together."""
        found: dict[tuple[NodeUnit, str, bool], list[Holding]] = {}
        for one in self.holdings:
            found.setdefault((one.unit, one.owner, one.use in _OF_JOBS), []).append(one)
        return tuple(_share(own) for own in found.values())


def cluster_picture(documents: ClusterDocuments) -> ClusterPicture:
    """Return who has what on every node."""
    by_node: dict[str, list[PodView]] = {}
    for pod in all_pods(documents):
        by_node.setdefault(pod.node, []).append(pod)
    empty = documents.memo.each(_empty_node, documents.nodes)
    nodes = tuple(_with_pods(node, by_node[node.name]) if node.name in by_node else node for node in empty)
    capacity: dict[NodeUnit, int] = {}
    for node in nodes:
        capacity[node.unit] = capacity.get(node.unit, 0) + node.capacity
    return ClusterPicture(
        nodes=nodes,
        waiting=tuple(by_node.get("", ())),
        holdings=tuple(_holdings(nodes, job_colours(documents.jobs), is_complete=documents.is_complete)),
        capacity=tuple(sorted(capacity.items(), reverse=True)),
        is_complete=documents.is_complete,
    )


def job_colours(jobs: Iterable[Raw]) -> Mapping[str, int]:
    """Return the colour of each job by NAMESPACE/NAME: the oldest has the first, so that a new one changes none."""
    ordered = sorted(jobs, key=lambda raw: (created_at_s(raw), key_of(raw)))
    return {key_of(raw): number % COLOURS for number, raw in enumerate(ordered)}


_ORDER: Final = (Use.WEB, Use.IDLE, Use.CORE, Use.SURPLUS)


def _empty_node(raw: Raw) -> NodeView:
    offered = to_resources(amounts_of(part(raw, "status", "allocatable")))
    unit = NodeUnit.GPUS if offered.gpu_count else NodeUnit.CORES
    return NodeView(
        name=text(raw, "metadata", "name"),
        state=node_state(raw),
        unit=unit,
        capacity=amount_in(unit, offered),
        used=0,
        pods=(),
    )


def _with_pods(node: NodeView, pods: Sequence[PodView]) -> NodeView:
    return replace(
        node,
        used=sum(amount_in(node.unit, pod.requests) for pod in pods),
        pods=tuple(sorted(pods, key=lambda pod: (_ORDER.index(pod.use), pod.owner, pod.role, pod.ordinal, pod.name))),
    )


def _holdings(nodes: Sequence[NodeView], colours: Mapping[str, int], *, is_complete: bool) -> Iterable[Holding]:
    amounts: dict[tuple[NodeUnit, str, Use], list[int]] = {}
    free: dict[NodeUnit, int] = {}
    for node in nodes:
        if node.is_open or not is_complete:
            free[node.unit] = free.get(node.unit, 0) + node.free
        for pod in node.pods:
            if amount := amount_in(node.unit, pod.requests):
                amounts.setdefault((node.unit, pod.owner, pod.use), []).append(amount)
    in_order = sorted(amounts.items(), key=lambda one: _rank(*one[0]))
    for (unit, owner, use), found in in_order:
        colour = colours.get(owner) if use in {Use.CORE, Use.SURPLUS} else None
        yield Holding(unit=unit, owner=owner, use=use, amount=sum(found), pods=len(found), colour=colour)
    for unit, amount in sorted(free.items(), reverse=True):
        yield Holding(unit=unit, owner="", use=Use.FREE if is_complete else Use.HIDDEN, amount=amount, pods=0)


def _rank(unit: NodeUnit, owner: str, use: Use) -> tuple[int, int, str, int]:
    """GPUs before cores, web before jobs, and what one job has side by side."""
    return -_UNITS.index(unit), _ORDER.index(Use.CORE if use in _OF_JOBS else use), owner, _ORDER.index(use)


def _share(own: Sequence[Holding]) -> OwnerShare:
    first = own[0]
    surplus = sum(one.amount for one in own if one.use is Use.SURPLUS)
    return OwnerShare(
        unit=first.unit,
        owner=first.owner,
        use=Use.CORE if first.use in _OF_JOBS else first.use,
        core=sum(one.amount for one in own) - surplus,
        surplus=surplus,
        pods=sum(one.pods for one in own),
        colour=first.colour,
    )


_OF_JOBS: Final = frozenset({Use.CORE, Use.SURPLUS})
_UNITS: Final = (NodeUnit.CORES, NodeUnit.GPUS)
