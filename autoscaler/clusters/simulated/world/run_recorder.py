"""Record of a simulated run, as plain data: the metrics of an experiment are computed from it.

Series are steps: a row holds from its instant until the next one's.  At one instant only the last state is kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from autoscaler.clusters.simulated.world.sim_pods import SimPod
from autoscaler.domain import NodeName, PodName, Resources, Role, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTimeline:
    """One pod's life.  None: never, or not yet.  `was_drained`: it ended by itself within its grace period."""

    name: PodName
    owner: str
    role: Role
    tier: Tier
    node: NodeName | None
    requests: Resources
    created_at_s: float
    bound_at_s: float | None
    running_at_s: float | None
    terminating_at_s: float | None
    gone_at_s: float | None
    was_drained: bool | None
    is_preempted: bool  # the scheduler preempted it
    end_reason: str


class UsageRow(NamedTuple):
    """Requests of running pods, terminating ones included, in the order of `RunRecorder.resources`."""

    t_s: float
    amounts: tuple[int, ...]


class WebRow(NamedTuple):
    """One Deployment: replicas desired; pods ready and not terminating; pods that have not run yet."""

    t_s: float
    wanted: int
    running: int
    waiting: int


class JobRow(NamedTuple):
    """One job: pods ready and not terminating; whether it can train; samples so far."""

    t_s: float
    trainers: int
    servers: int
    masters: int
    is_trainable: bool
    samples_trained: float
    samples_lost: float


RowT = TypeVar("RowT", UsageRow, WebRow, JobRow)


class RunRecorder:
    """Series of one run.  `capacity`: of all nodes, by `resources` (cpu in millicores, memory in bytes)."""

    def __init__(self, resources: Sequence[str], capacity: Sequence[int]) -> None:
        self.resources = tuple(resources)
        self.capacity = tuple(capacity)
        self.usage: list[UsageRow] = []
        self.web: defaultdict[str, list[WebRow]] = defaultdict(list)
        self.jobs: defaultdict[str, list[JobRow]] = defaultdict(list)
        self._pods: list[SimPod] = []

    def record_pod(self, pod: SimPod) -> None:
        """Record a new pod; its timeline is read at the end."""
        self._pods.append(pod)

    def record_usage(self, row: UsageRow) -> None:
        append_row(self.usage, row)

    def record_web(self, name: str, row: WebRow) -> None:
        append_row(self.web[name], row)

    def record_job(self, name: str, row: JobRow) -> None:
        append_row(self.jobs[name], row)

    def pods(self) -> tuple[PodTimeline, ...]:
        """Return every pod that was ever created, in the order of creation."""
        return tuple(timeline_of(pod) for pod in self._pods)


def append_row(rows: list[RowT], row: RowT) -> None:
    """Append a row; it replaces one of the same instant, and an unchanged one is dropped."""
    if rows and rows[-1].t_s == row.t_s:
        rows[-1] = row
    elif not rows or rows[-1][1:] != row[1:]:
        rows.append(row)


def timeline_of(pod: SimPod) -> PodTimeline:
    """Return a pod's life so far."""
    return PodTimeline(
        name=pod.name,
        owner=pod.owner,
        role=pod.role,
        tier=pod.tier,
        node=pod.node,
        requests=pod.shape.requests,
        created_at_s=pod.created_at_s,
        bound_at_s=pod.bound_at_s,
        running_at_s=pod.running_at_s,
        terminating_at_s=pod.terminating_at_s,
        gone_at_s=pod.gone_at_s,
        was_drained=pod.was_drained,
        is_preempted=pod.is_preempted,
        end_reason=pod.end_reason,
    )
