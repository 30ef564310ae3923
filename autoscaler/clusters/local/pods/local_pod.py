"""One pod of the local cluster, from its creation until its processes are gone.

These are values: `pod_table` replaces them one after another, and `to_view` is what the planner sees of one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from autoscaler.domain import JobName, NodeName, Pod, PodName, PodPhase, Role, Shape, Tier, WorkloadName
from autoscaler.manifests.api_types import PodTemplate


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPod:
    """`owner` is the job, or the Deployment of a web pod.  Times are seconds on the cluster's clock."""

    name: PodName
    role: Role
    tier: Tier
    owner: str
    ordinal: int
    template: PodTemplate
    priority: int
    grace_s: float
    created_at_s: float
    log: Path
    phase: PodPhase
    node: NodeName | None = None
    gpus: tuple[int, ...] = ()  # device numbers, this pod's alone
    port: int | None = None  # of a web pod that serves
    starts: int = 0  # how often its process has been started
    quick_ends: int = 0  # ends in a row that came soon after the start
    started_at_s: float | None = None
    ready_at_s: float | None = None
    unschedulable_since_s: float | None = None
    pid: int | None = None
    log_offset: int = 0  # where the present process' output begins
    waiting: str = ""  # why no process runs though it is bound: the pause after a crash
    leaving: str = ""  # why it was told to leave

    @property
    def key(self) -> str:
        """Names the present process; never used twice, though the pod of a server that left may come again."""
        return self._key(self.starts)

    @property
    def next_key(self) -> str:
        """Names the process that comes after the present one; it may be there already, standing by."""
        return self._key(self.starts + 1)

    def _key(self, starts: int) -> str:
        return f"{self.name}#{self.created_at_s!r}.{starts}"

    @property
    def is_leaving(self) -> bool:
        return self.phase is PodPhase.TERMINATING

    @property
    def is_job_pod(self) -> bool:
        return self.role is not Role.EXTERNAL

    @property
    def shape(self) -> Shape:
        return Shape(requests=self.template.requests)

    def moved(self, phase: PodPhase) -> LocalPod:
        return replace(self, phase=phase)


def to_view(pod: LocalPod) -> Pod:
    """What the planner sees."""
    return Pod(
        name=pod.name,
        role=pod.role,
        tier=pod.tier,
        shape=pod.shape,
        phase=pod.phase,
        priority=pod.priority,
        node=pod.node,
        job=JobName(pod.owner) if pod.is_job_pod else None,
        ordinal=pod.ordinal if pod.is_job_pod else 0,
        workload=None if pod.is_job_pod else WorkloadName(pod.owner),
        created_at_s=pod.created_at_s,
        unschedulable_since_s=pod.unschedulable_since_s,
    )
