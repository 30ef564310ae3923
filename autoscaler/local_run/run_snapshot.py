"""Snapshot of a whole run at one instant, as plain values: the live view and the samples read it.

Building one reads the run's objects and what the operator keeps of its jobs, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, NODES, PODS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.memory_api import MemoryServer
from autoscaler.clusters.kubernetes.objects.fields import (
    ENDED_PHASES,
    Raw,
    condition_of,
    controller_of,
    integer,
    text,
)
from autoscaler.clusters.kubernetes.objects.labels import JOB, ORDINAL, ROLE
from autoscaler.clusters.kubernetes.objects.names import job_key, split_key
from autoscaler.clusters.kubernetes.parsing.node_objects import parse_node
from autoscaler.clusters.kubernetes.parsing.pod_objects import deployment_of
from autoscaler.clusters.kubernetes.parsing.pod_requests import pod_request
from autoscaler.clusters.local.control_plane.pod_annotations import PID
from autoscaler.domain import Bottleneck, Decision, JobName, JobState, Node, PodPhase, Reason, Resources, Role
from autoscaler.fault_isolation import GuardedTask, raw_object_key
from autoscaler.jobs.lifecycle import JobEnding, LifeStage
from autoscaler.jobs.progress import JobProgress
from autoscaler.jobs.throughput_watch import ThroughputWatch
from autoscaler.local_run.event_journal import EventJournal
from autoscaler.manifests.api_types import ReplicaBounds

if TYPE_CHECKING:  # what it shows is read without the operator
    from autoscaler.operator.job.job_record import JobRecord
    from autoscaler.operator.leader_term import LeaderTerm

_DECISIONS_SHOWN: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLine:
    """`owner`: its job, or its Deployment."""

    name: str
    role: Role
    owner: str
    ordinal: int
    phase: PodPhase
    node: str | None
    requests: Resources
    pending_s: float | None  # from creation to readiness; None: not ready yet
    pid: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLine:
    name: str
    capacity: Resources
    is_open: bool
    pods: tuple[PodLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """`now` and `servers` count pods that stand and do not leave; `why` is the planner's explanation of the targets.

    `servers_leaving` still hold buckets, or are just going: they serve until what they hold has been moved.
    """

    name: str
    condition: str
    message: str
    min: int
    max: int
    now: int
    target: int
    servers: int
    servers_target: int
    servers_leaving: int
    decision: Decision | None
    progress: JobProgress | None
    throughput: tuple[tuple[int, float], ...] = ()  # trainers and samples/s, as measured in the present setting

    @property
    def why(self) -> str:
        return "" if self.decision is None else self.decision.message


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentLine:
    name: str
    wanted: int
    ready: int
    pending: int
    starting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionLine:
    """A decision that was news, `t_s` seconds after the start of the run."""

    t_s: float
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSnapshot:
    name: str
    t_s: float
    nodes: tuple[NodeLine, ...]
    pods: tuple[PodLine, ...]
    jobs: tuple[JobLine, ...]
    deployments: tuple[DeploymentLine, ...]
    decisions: tuple[DecisionLine, ...]  # the newest last


def take_snapshot(name: str, server: MemoryServer, term: LeaderTerm, events: EventJournal) -> RunSnapshot:
    """The run as it stands now.  `events` knows when pods became ready."""
    errors, journal = term.errors, events.journal

    def read_pod(raw: Raw) -> PodLine | None:
        return None if text(raw, "status", "phase") in ENDED_PHASES else _pod_line(raw, events.pending_s(raw))

    def read_job(raw: Raw) -> JobLine:
        key = _key_of(raw)
        return _job_line(raw, term.store.records.get(key), latest.get(key), pods, problem=errors.problem(key))

    def read_node(raw: Raw) -> NodeLine:
        return _node_line(parse_node(raw), pods)

    def read_deployment(raw: Raw) -> DeploymentLine | None:
        return None if controller_of(raw) else _deployment_line(raw, pods)

    pods = errors.read_each(server.all(PODS), partial(raw_object_key, "pod"), GuardedTask.STATUS, read_pod)
    plan = term.loop.last_plan
    latest = {} if plan is None else {decision.job: _shown(decision) for decision in plan.decisions}
    return RunSnapshot(
        name=name,
        t_s=journal.elapsed_s(),
        nodes=errors.read_each(server.all(NODES), partial(raw_object_key, "node"), GuardedTask.STATUS, read_node),
        pods=pods,
        jobs=errors.read_each(server.all(TRAINING_JOBS), _key_of, GuardedTask.REPORT, read_job),
        deployments=errors.read_each(
            server.all(DEPLOYMENTS), partial(raw_object_key, "deployment"), GuardedTask.STATUS, read_deployment
        ),
        decisions=tuple(
            DecisionLine(t_s=journal.elapsed_s(entry.at_s), decision=_shown(entry.decision))
            for entry in tuple(term.loop.journal)[-_DECISIONS_SHOWN:]
        ),
    )


def is_change(decision: Decision) -> bool:
    """True if the decision is news for people: a size that stays, and a job that has none any more, are not."""
    return decision.reason is not Reason.KEPT and decision.bottleneck is not Bottleneck.NOT_ACTIVE


def job_condition(record: JobRecord | None) -> str:
    """One word for where a job stands; None: the operator has not seen it yet."""
    if record is None:
        return "Pending"
    life = record.life
    if life.ending is not None:
        return "Terminating" if life.ending is JobEnding.DELETED else life.ending
    match life.stage:
        case LifeStage.SUSPENDING:
            return "Suspending"
        case LifeStage.SUSPENDED:
            return "Suspended"
        case LifeStage.FINISHING:
            return "Completing"
        case _:
            return "Pending" if life.started_at_s is None else "Running"


def _shown(decision: Decision) -> Decision:
    """The decision with the job's name as its file has it."""
    return replace(decision, job=JobName(split_key(decision.job)[1]))


def _key_of(raw: Raw) -> JobName:
    return job_key(text(raw, "metadata", "namespace"), text(raw, "metadata", "name"))


def _pod_line(raw: Raw, pending_s: float | None) -> PodLine:
    labels = raw["metadata"].get("labels") or {}
    role = Role(labels[ROLE]) if labels.get(ROLE) and labels.get(JOB) else Role.EXTERNAL
    pid, ordinal = text(raw, "metadata", "annotations", PID), text(labels, ORDINAL)
    return PodLine(
        name=text(raw, "metadata", "name"),
        role=role,
        owner=split_key(deployment_of(raw) or "")[1] if role is Role.EXTERNAL else labels[JOB],
        ordinal=int(ordinal) if ordinal.isdigit() else 0,
        phase=_phase_of(raw),
        node=text(raw, "spec", "nodeName") or None,
        requests=pod_request(raw["spec"]),
        pending_s=pending_s,
        pid=int(pid) if pid else None,
    )


def _phase_of(raw: Raw) -> PodPhase:
    if text(raw, "metadata", "deletionTimestamp"):
        return PodPhase.TERMINATING
    if not text(raw, "spec", "nodeName"):
        return PodPhase.PENDING
    return PodPhase.READY if condition_of(raw, "Ready").get("status") == "True" else PodPhase.STARTING


def _node_line(node: Node, pods: Sequence[PodLine]) -> NodeLine:
    own = tuple(pod for pod in pods if pod.node == node.name)
    return NodeLine(name=node.name, capacity=node.allocatable, is_open=node.is_open(), pods=own)


def _job_line(
    raw: Raw, record: JobRecord | None, decision: Decision | None, pods: Sequence[PodLine], *, problem: str
) -> JobLine:
    name = text(raw, "metadata", "name")
    own = [pod for pod in pods if pod.owner == name and pod.role is not Role.EXTERNAL]
    standing = [pod for pod in own if pod.phase is not PodPhase.TERMINATING and pod.node is not None]
    life = None if record is None else record.life
    is_active = life is not None and life.state is JobState.ACTIVE
    servers = sum(pod.role is Role.SERVER for pod in standing)
    sizes = ReplicaBounds(minimum=0, maximum=0) if record is None else record.job.spec.trainer.replicas
    return JobLine(
        name=name,
        condition=job_condition(record),
        message="; ".join(filter(None, ("" if life is None else life.message, problem))),
        min=sizes.minimum,
        max=sizes.maximum,
        now=sum(pod.role is Role.TRAINER for pod in standing),
        target=decision.target if decision is not None and is_active else 0,
        servers=servers,
        servers_target=decision.servers_target if decision is not None and is_active else 0,
        servers_leaving=sum(pod.role is Role.SERVER and pod.phase is PodPhase.TERMINATING for pod in own),
        decision=decision,
        progress=None if record is None else record.progress,
        throughput=() if record is None else _measured(record.throughput),
    )


def _measured(watch: ThroughputWatch) -> tuple[tuple[int, float], ...]:
    return tuple((point.trainers, point.samples_per_s) for point in watch.log.of_setting(watch.setting))


def _deployment_line(raw: Raw, pods: Sequence[PodLine]) -> DeploymentLine:
    name = text(raw, "metadata", "name")
    phases = [pod.phase for pod in pods if pod.role is Role.EXTERNAL and pod.owner == name]
    return DeploymentLine(
        name=name,
        wanted=integer(raw, "spec", "replicas", default=1),
        ready=phases.count(PodPhase.READY),
        pending=phases.count(PodPhase.PENDING),
        starting=phases.count(PodPhase.STARTING),
    )
