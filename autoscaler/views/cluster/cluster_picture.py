"""Who has the cluster: each node's capacity and the pods on it, and the totals of everybody.

A node is counted in its scarcest common resource: GPUs where it has any, cores elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from autoscaler.clusters.kubernetes.objects.fields import Raw, created_at_s, key_of, part, text
from autoscaler.clusters.kubernetes.objects.resource_amounts import amounts_of, to_resources
from autoscaler.views.cluster.node_pools import pool_of
from autoscaler.views.cluster.pod_view import NodeUnit, PodView, Use, all_pods, amount_in
from autoscaler.views.documents import ClusterDocuments
from autoscaler.views.object_states import node_state
from autoscaler.views.view_memo import ViewMemo

COLOURS: Final = 8
"""Jobs are told apart by so many colours; more jobs share them, and each is named."""

OF_JOBS: Final = frozenset({Use.CORE, Use.SURPLUS})
"""Uses of a job's pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One node.  Amounts are in thousandths of `unit`; `used` counts the pods shown, `by_use` by their use."""

    name: str
    state: str
    unit: NodeUnit
    capacity: int
    used: int
    by_use: tuple[tuple[Use, int], ...]
    pods: tuple[PodView, ...]  # in the order of their drawing: web, core, surplus
    pool: str = ""  # `node_pools`

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
    """What one owner has of the cluster in one use, in thousandths of `unit`.  `colour`: of a job, from 0.

    `owners` above 1: what so many have together, without a name.
    """

    unit: NodeUnit
    owner: str
    use: Use
    amount: int
    pods: int
    colour: int | None = None
    owners: int = 1


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


def cluster_picture(documents: ClusterDocuments) -> ClusterPicture:
    """Return who has what on every node: the same picture as before while nothing in it has changed."""
    memo = documents.memo
    nodes, waiting = memo.once(_placed, memo, documents.nodes, all_pods(documents))
    return memo.once(_picture, nodes, waiting, colours_of(documents), documents.is_complete)


def _placed(
    memo: ViewMemo, nodes: Sequence[Raw], pods: Sequence[PodView]
) -> tuple[tuple[NodeView, ...], tuple[PodView, ...]]:
    """Return the nodes with their pods, and the pods without a node."""
    by_node: dict[str, list[PodView]] = {}
    for pod in pods:
        by_node.setdefault(pod.node, []).append(pod)
    empty = memo.each(_empty_node, nodes)
    placed = memo.each_row(_with_pods, ((node, *by_node.get(node.name, ())) for node in empty))
    return tuple(placed), tuple(by_node.get("", ()))


def _picture(
    nodes: tuple[NodeView, ...],
    waiting: tuple[PodView, ...],
    colours: Mapping[str, int],
    is_complete: bool,
) -> ClusterPicture:
    capacity: dict[NodeUnit, int] = {}
    for node in nodes:
        capacity[node.unit] = capacity.get(node.unit, 0) + node.capacity
    return ClusterPicture(
        nodes=nodes,
        waiting=waiting,
        holdings=tuple(_holdings(nodes, colours, is_complete=is_complete)),
        capacity=tuple(sorted(capacity.items(), reverse=True)),
        is_complete=is_complete,
    )


def colours_of(documents: ClusterDocuments) -> Mapping[str, int]:
    """Return `job_colours` of the jobs: the same mapping as before while no job has come or gone."""
    memo = documents.memo
    return memo.same("colours", memo.once(_colours, memo, documents.jobs))


def _colours(memo: ViewMemo, jobs: Sequence[Raw]) -> Mapping[str, int]:
    return {key: number % COLOURS for number, (_, key) in enumerate(sorted(memo.each(_age_rank, jobs)))}


def job_colours(jobs: Iterable[Raw]) -> Mapping[str, int]:
    """Return the colour of each job by NAMESPACE/NAME: the oldest has the first, so that a new one changes none."""
    return _colours(ViewMemo(), tuple(jobs))


def _age_rank(job: Raw) -> tuple[float, str]:
    return created_at_s(job), key_of(job)


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
        by_use=(),
        pods=(),
        pool=pool_of(raw),
    )


def _with_pods(node: NodeView, *pods: PodView) -> NodeView:
    if not pods:
        return node
    by_use: dict[Use, int] = {}
    for pod in pods:
        by_use[pod.use] = by_use.get(pod.use, 0) + amount_in(node.unit, pod.requests)
    return replace(
        node,
        used=sum(by_use.values()),
        by_use=tuple((use, by_use[use]) for use in _ORDER if use in by_use),
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
    return -_UNITS.index(unit), _ORDER.index(Use.CORE if use in OF_JOBS else use), owner, _ORDER.index(use)


_UNITS: Final = (NodeUnit.CORES, NodeUnit.GPUS)
