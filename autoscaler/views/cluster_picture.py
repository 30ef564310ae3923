"""Who has the cluster: each node's capacity and the pods on it, and the totals of everybody.

A node is counted in its scarcest common resource: GPUs where it has any, cores elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from autoscaler.clusters.kubernetes.objects.fields import (
    ENDED_PHASES,
    Raw,
    condition_of,
    created_at_s,
    key_of,
    part,
    text,
)
from autoscaler.clusters.kubernetes.objects.labels import GRADE, JOB, ORDINAL, ROLE, TIER
from autoscaler.clusters.kubernetes.objects.resource_amounts import amounts_of, to_resources
from autoscaler.clusters.kubernetes.parsing.pod_objects import deployment_of
from autoscaler.clusters.kubernetes.parsing.pod_requests import pod_request
from autoscaler.domain import Resources, Role, Tier
from autoscaler.errors import InvalidSpecError
from autoscaler.gpus.report_documents import parse_report
from autoscaler.views.documents import ClusterDocuments
from autoscaler.views.object_states import node_state, pod_state

COLOURS: Final = 8
"""Jobs are told apart by so many colours; more jobs share them, and each is named."""


class Use(StrEnum):
    """What a piece of a node is used for."""

    WEB = "web"
    CORE = "core"
    SURPLUS = "surplus"
    IDLE = "idle"  # GPUs that a pod of others holds and nobody uses
    FREE = "free"
    HIDDEN = "hidden"  # used by pods that the viewer may not read, or free: that is not known


class NodeUnit(StrEnum):
    """What a node is counted in."""

    CORES = "cores"
    GPUS = "GPUs"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """One pod.  `owner`: NAMESPACE/NAME of its job or Deployment; `since_s`: Unix time of its creation."""

    name: str
    namespace: str
    owner: str
    role: Role
    ordinal: int
    grade: int
    use: Use
    state: str
    is_ready: bool
    node: str
    requests: Resources
    since_s: float
    why: str

    @property
    def is_leaving(self) -> bool:
        """True while the pod ends within its grace."""
        return self.state == "Terminating"


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
    """The cluster now.  `holdings`: of everybody, with what is free last; `capacity` by unit."""

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


def all_pods(documents: ClusterDocuments) -> list[PodView]:
    """Return every pod that has not ended."""
    there = (raw for raw in documents.pods if text(raw, "status", "phase") not in ENDED_PHASES)
    found, idle = documents.memo.each(pod_view, there), _idle_pods(documents)
    if not idle:
        return found
    return [_idle(pod) if f"{pod.namespace}/{pod.name}" in idle and pod.use is Use.WEB else pod for pod in found]


def pod_view(raw: Raw) -> PodView:
    """Return one pod of the API server's."""
    namespace, labels = text(raw, "metadata", "namespace"), part(raw, "metadata", "labels")
    job, role = text(labels, JOB), _role_of(labels)
    owner = f"{namespace}/{job}" if role is not Role.EXTERNAL else str(deployment_of(raw) or "")
    use = Use.WEB if role is Role.EXTERNAL else Use.SURPLUS if text(labels, TIER) == Tier.SURPLUS else Use.CORE
    return PodView(
        name=text(raw, "metadata", "name"),
        namespace=namespace,
        owner=owner,
        role=role,
        ordinal=_digits(text(labels, ORDINAL)),
        grade=_digits(text(labels, GRADE)),
        use=use,
        state=pod_state(raw),
        is_ready=condition_of(raw, "Ready").get("status") == "True",
        node=text(raw, "spec", "nodeName"),
        requests=pod_request(part(raw, "spec"), part(raw, "status")),
        since_s=created_at_s(raw),
        why=_why(use, role),
    )


def amount_in(unit: NodeUnit, resources: Resources) -> int:
    """Return an amount of resources in thousandths of the unit."""
    return resources.gpu_count * 1000 if unit is NodeUnit.GPUS else resources.cpu_milli


def _role_of(labels: Raw) -> Role:
    try:
        return Role(text(labels, ROLE)) if text(labels, JOB) else Role.EXTERNAL
    except ValueError:
        return Role.EXTERNAL


def _digits(written: str) -> int:
    return int(written) if written.isascii() and written.isdigit() and len(written) < 10 else 0


def _why(use: Use, role: Role) -> str:
    match use:
        case Use.WEB:
            return "no pod of EDL's: the scheduler placed it, and training makes room for it"
        case Use.SURPLUS:
            return "above the job's minimum, on capacity that was free; the first to leave when others need it"
        case _ if role is Role.TRAINER:
            return "part of the job's minimum: it stays as long as the job runs"
        case _:
            return "the job cannot run without it: it stays as long as the job runs"


def _idle(pod: PodView) -> PodView:
    return replace(pod, use=Use.IDLE, why="it holds GPUs and does not use them")


def _idle_pods(documents: ClusterDocuments) -> frozenset[str]:
    found: set[str] = set()
    for raw in documents.node_gpus:
        try:
            report = parse_report(raw)
        except InvalidSpecError:
            continue
        for gpu in report.gpus_at(documents.now_s) if report is not None else ():
            if gpu.verdict.value == "held":
                found.update(gpu.pods)
    return frozenset(found)


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
