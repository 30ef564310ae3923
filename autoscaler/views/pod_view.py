"""Pods as people are shown them: whose they are, what their capacity is used for, and why they are where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from autoscaler.clusters.kubernetes.objects.fields import ENDED_PHASES, Raw, condition_of, created_at_s, part, text
from autoscaler.clusters.kubernetes.objects.labels import GRADE, JOB, ORDINAL, ROLE, TIER
from autoscaler.clusters.kubernetes.parsing.pod_objects import deployment_of
from autoscaler.clusters.kubernetes.parsing.pod_requests import pod_request
from autoscaler.domain import Resources, Role, Tier
from autoscaler.domain.gpu_reports import GpuVerdict, NodeGpuReport
from autoscaler.errors import InvalidSpecError
from autoscaler.gpus.report_documents import parse_report
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
    def is_leaving(self) -> bool:
        """True while the pod ends within its grace."""
        return self.state == "Terminating"


def all_pods(documents: ClusterDocuments) -> Sequence[PodView]:
    """Return every pod that has not ended."""
    memo = documents.memo
    return memo.once(_pods_there, memo, documents.pods, memo.same("idle pods", _idle_pods(documents)))


def _pods_there(memo: ViewMemo, pods: Sequence[Raw], idle: frozenset[str]) -> Sequence[PodView]:
    found = memo.each(pod_view, (raw for raw in pods if text(raw, "status", "phase") not in ENDED_PHASES))
    if not idle:
        return found
    return memo.each_row(_as_used, ((pod, f"{pod.namespace}/{pod.name}" in idle) for pod in found))


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
    if not is_idle or pod.use is not Use.WEB:
        return pod
    return replace(pod, use=Use.IDLE, why="it holds GPUs and does not use them")


def _idle_pods(documents: ClusterDocuments) -> frozenset[str]:
    found: set[str] = set()
    for report in documents.memo.each(_report, documents.node_gpus):
        for gpu in report.gpus_at(documents.now_s) if report is not None else ():
            if gpu.verdict is GpuVerdict.HELD:
                found.update(gpu.pods)
    return frozenset(found)


def _report(raw: Raw) -> NodeGpuReport | None:
    try:
        return parse_report(raw)
    except InvalidSpecError:
        return None
