"""Pods as people are shown them: whose they are, what their capacity is used for, and why they are where they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from autoscaler.clusters.kubernetes.objects.fields import ENDED_PHASES, Raw, condition_of, created_at_s, part, text
from autoscaler.clusters.kubernetes.objects.labels import GRADE, JOB, ORDINAL, ROLE, TIER
from autoscaler.clusters.kubernetes.parsing.node_gpus import report_of, trim_node_gpus
from autoscaler.clusters.kubernetes.parsing.pod_objects import deployment_of
from autoscaler.clusters.kubernetes.parsing.pod_requests import pod_request
from autoscaler.domain import NodeName, PodName, Resources, Role, Tier
from autoscaler.domain.gpu_reports import GpuReports, NodeGpuReport
from autoscaler.gpus.pod_uses import GpuUses, PodUse, join_pods
from autoscaler.views.documents import ClusterDocuments
from autoscaler.views.object_states import pod_state
from autoscaler.views.view_memo import ViewMemo


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
    def key(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_leaving(self) -> bool:
        """True while the pod ends within its grace."""
        return self.state == "Terminating"


def all_pods(documents: ClusterDocuments) -> Sequence[PodView]:
    """Return every pod that has not ended."""
    memo = documents.memo
    pods = memo.once(_pods_there, memo, documents.pods)
    if not documents.node_gpus:
        return pods
    idle = frozenset(
        pod.key for pod in _idle_pods(pods, memo.once(_uses_of, memo, documents.node_gpus), documents.now_s)
    )
    return memo.once(_with_idle, memo, pods, memo.same("idle pods", idle))


def _pods_there(memo: ViewMemo, pods: Sequence[Raw]) -> Sequence[PodView]:
    return memo.each(pod_view, (raw for raw in pods if text(raw, "status", "phase") not in ENDED_PHASES))


def _with_idle(memo: ViewMemo, pods: Sequence[PodView], idle: frozenset[str]) -> Sequence[PodView]:
    return memo.each_row(_as_used, ((pod, pod.key in idle) for pod in pods)) if idle else pods


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


def _as_used(pod: PodView, is_idle: bool) -> PodView:
    return replace(pod, use=Use.IDLE, why="it holds GPUs and does not use them") if is_idle else pod


def _idle_pods(pods: Iterable[PodView], uses: GpuUses, now_s: float) -> Iterator[PodView]:
    """Yield the pods of others that hold GPUs and use none, as the operator finds them (`idle_pods_of`)."""
    for pod in pods:
        if pod.use is Use.WEB and pod.requests.gpu_count and pod.is_ready and not pod.is_leaving and pod.node:
            since_s = uses.low_since_s_of(PodName(pod.key), NodeName(pod.node), pod.requests, now_s)
            if since_s is not None:
                yield pod


def _uses_of(memo: ViewMemo, node_gpus: Sequence[Raw]) -> GpuUses:
    found = [one for one in memo.each(_joined, node_gpus) if one is not None]
    joined = {report.node: uses for report, uses in found}
    reports = GpuReports({report.node: report for report, _ in found})
    return GpuUses(reports, join=lambda report: joined[report.node])


def _joined(raw: Raw) -> tuple[NodeGpuReport, Mapping[PodName, PodUse]] | None:
    """Return the report with its pods; None without one.  The object may be trimmed, as a cache keeps it, or not."""
    report = report_of(trim_node_gpus(dict(raw)))
    return None if report is None else (report, join_pods(report))
