"""Snapshot of a whole run at one instant, as plain values: the live view, the control socket and the samples read it.

Building one reads the cluster and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from autoscaler.clusters.local.cluster.local_cluster import LocalCluster
from autoscaler.clusters.local.cluster.local_jobs import LocalJob
from autoscaler.clusters.local.cluster.web_deployments import DeploymentRecord
from autoscaler.clusters.local.pods.local_pod import LocalPod
from autoscaler.clusters.local.pods.pod_runtime import name_of_pod
from autoscaler.clusters.local.run_files.run_journal import RunJournal
from autoscaler.domain import Bottleneck, Decision, JobName, JobState, PodPhase, Reason, Resources, Role, Tier
from autoscaler.fault_isolation import GuardedTask
from autoscaler.jobs.lifecycle import JobEnding, LifeStage
from autoscaler.jobs.progress import JobProgress
from autoscaler.jobs.training_health import MasterContact, MasterReport, master_report
from autoscaler.loop import JournalEntry
from autoscaler.manifests.api_types import AfterServerLoss, ReplicaBounds


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLine:
    name: str
    role: Role
    tier: Tier
    owner: str
    ordinal: int
    phase: PodPhase
    node: str | None
    requests: Resources
    restarts: int
    age_s: float
    pending_s: float | None  # from creation to readiness; None: not ready yet
    pid: int | None
    port: int | None
    gpus: tuple[int, ...]
    reason: str  # why it waits or leaves
    is_unschedulable: bool
    log: str


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
    namespace: str
    condition: str
    message: str
    age_s: float
    ended_s: float | None  # since then; None: it has not ended
    weight: int
    priority_class: str
    priority: int
    min: int
    max: int
    pinned: int
    now: int
    target: int
    servers: int
    servers_target: int
    servers_leaving: int
    servers_min: int  # 0: a job without servers
    servers_max: int
    servers_pinned: int
    trainers_per_server: int
    is_ratio_measured: bool
    copies: int  # of each bucket, while there are servers for them
    after_loss: AfterServerLoss
    has_master: bool
    failures: int
    backoff_limit: int
    decision: Decision | None
    progress: JobProgress | None
    checkpoint_uri: str
    heard: MasterReport | None = None  # of its master; None while none stands, or the job is not active

    @property
    def why(self) -> str:
        return "" if self.decision is None else self.decision.message


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentLine:
    name: str
    namespace: str
    wanted: int
    ready: int
    pending: int
    starting: int
    age_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionLine:
    """A decision that was news, `t_s` seconds after the start of the run."""

    t_s: float
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSnapshot:
    name: str
    folder: str
    t_s: float
    nodes: tuple[NodeLine, ...]
    pods: tuple[PodLine, ...]
    jobs: tuple[JobLine, ...]
    deployments: tuple[DeploymentLine, ...]
    decisions: tuple[DecisionLine, ...]  # the newest last


def take_snapshot(
    name: str,
    cluster: LocalCluster,
    recorder: RunJournal,
    decided: Sequence[Decision],
    journal: Sequence[JournalEntry],
) -> RunSnapshot:
    """The run as it stands now.  `decided` is the last plan's, `journal` the decisions to show."""
    now_s = cluster.now()
    errors, each = cluster.errors, cluster.errors.read_each
    pods = each(cluster.table.pods.values(), name_of_pod, GuardedTask.STATUS, lambda pod: _pod_line(pod, now_s))
    latest: dict[str, Decision] = {decision.job: decision for decision in decided}
    return RunSnapshot(
        name=name,
        folder=str(recorder.folder.root),
        t_s=recorder.elapsed_s(),
        nodes=tuple(
            NodeLine(
                name=node.name,
                capacity=node.allocatable,
                is_open=node.is_open(),
                pods=tuple(pod for pod in pods if pod.node == node.name),
            )
            for node in cluster.table.nodes.values()
        ),
        pods=pods,
        jobs=each(
            cluster.jobs.records.values(),
            lambda record: JobName(record.name),
            GuardedTask.REPORT,
            lambda record: _job_line(
                record, latest.get(record.name), pods, now_s, problem=errors.problem(JobName(record.name))
            ),
        ),
        deployments=tuple(_deployment_line(record, pods) for record in cluster.deployments.values()),
        decisions=tuple(DecisionLine(t_s=recorder.elapsed_s(entry.at_s), decision=entry.decision) for entry in journal),
    )


def is_change(decision: Decision) -> bool:
    """Whether the decision is news for people: a size that stays, and a job that has none any more, are not."""
    return decision.reason is not Reason.KEPT and decision.bottleneck is not Bottleneck.NOT_ACTIVE


def condition_of(record: LocalJob) -> str:
    """One word for where a job stands; `Completed`, `Failed` and `Suspended` are what `edl wait` knows too."""
    life = record.life
    if life.ending is JobEnding.DELETED:
        return "Terminating"
    if life.ending is not None:
        return life.ending
    if life.stage is LifeStage.SUSPENDING:
        return "Suspending"
    if life.stage is LifeStage.SUSPENDED:
        return "Suspended"
    if life.stage is LifeStage.FINISHING:
        return "Completing"
    return "Pending" if life.started_at_s is None else "Running"


def _pod_line(pod: LocalPod, now_s: float) -> PodLine:
    return PodLine(
        name=pod.name,
        role=pod.role,
        tier=pod.tier,
        owner=pod.owner,
        ordinal=pod.ordinal,
        phase=pod.phase,
        node=pod.node,
        requests=pod.template.requests,
        restarts=max(0, pod.starts - 1),
        age_s=round(now_s - pod.created_at_s, 3),
        pending_s=None if pod.ready_at_s is None else round(pod.ready_at_s - pod.created_at_s, 3),
        pid=pod.pid,
        port=pod.port,
        gpus=pod.gpus,
        reason=pod.leaving or pod.waiting,
        is_unschedulable=pod.unschedulable_since_s is not None,
        log=str(pod.log),
    )


def _job_line(
    record: LocalJob, decision: Decision | None, pods: Sequence[PodLine], now_s: float, *, problem: str
) -> JobLine:
    job, life = record.job, record.life
    own = [pod for pod in pods if pod.owner == job.name and pod.role is not Role.EXTERNAL]
    standing = [pod for pod in own if pod.phase is not PodPhase.TERMINATING]
    now = sum(pod.role is Role.TRAINER for pod in standing)
    is_active = life.state is JobState.ACTIVE
    replicas = ReplicaBounds(minimum=0, maximum=0) if job.server is None else job.server.replicas
    servers = sum(pod.role is Role.SERVER for pod in standing)
    return JobLine(
        name=job.name,
        namespace=job.namespace,
        condition=condition_of(record),
        message="; ".join(filter(None, (life.message, problem))),
        age_s=round(now_s - record.submitted_at_s, 3),
        ended_s=None if life.ended_at_s is None else round(now_s - life.ended_at_s, 3),
        weight=job.weight,
        priority_class=job.priority_class,
        priority=record.priority,
        min=job.trainer.replicas.minimum,
        max=job.trainer.replicas.maximum,
        pinned=record.pinned,
        now=now,
        target=decision.target if decision is not None and is_active else 0,
        servers=servers,
        servers_target=decision.servers_target if decision is not None and is_active else 0,
        servers_leaving=sum(pod.role is Role.SERVER for pod in own) - servers,
        servers_min=replicas.minimum,
        servers_max=replicas.maximum,
        servers_pinned=replicas.pinned,
        trainers_per_server=record.trainers_per_server,
        is_ratio_measured=job.server is not None and job.server.is_ratio_measured,
        copies=1 if job.server is None else job.server.copies,
        after_loss=AfterServerLoss.ROLL_BACK if job.server is None else job.server.after_loss,
        has_master=any(pod.role is Role.MASTER and pod.phase is PodPhase.READY for pod in standing),
        failures=life.failures if life.advances == life.advances_at_failure else 0,
        backoff_limit=job.run_policy.backoff_limit,
        decision=decision,
        progress=record.progress,
        checkpoint_uri=record.place.checkpoint_uri,
        heard=_heard(record, now_s) if is_active and any(pod.role is Role.MASTER for pod in standing) else None,
    )


def _heard(record: LocalJob, now_s: float) -> MasterReport:
    progress, at_s, started_at_s = record.progress, record.progress_at_s, record.life.started_at_s
    age_s = None if progress is None else progress.checkpoint_age_s
    contact = MasterContact(
        progress=progress,
        progress_at_s=-inf if at_s is None else at_s,
        missing_answer=record.quiet,
        unanswered_since_s=record.quiet_since_s,
        checkpoint_at_s=-inf if age_s is None or at_s is None else at_s - age_s,
        started_at_s=-inf if started_at_s is None else started_at_s,
    )
    return master_report(
        contact,
        every_s=record.job.checkpoint.every_s,
        now_s=now_s,
        format_since=lambda at_s: f"for {now_s - at_s:.0f} s",
    )


def _deployment_line(record: DeploymentRecord, pods: Sequence[PodLine]) -> DeploymentLine:
    own = [pod for pod in pods if pod.role is Role.EXTERNAL and pod.owner == record.deployment.name]
    return DeploymentLine(
        name=record.deployment.name,
        namespace=record.deployment.namespace,
        wanted=record.wanted,
        ready=sum(pod.phase is PodPhase.READY for pod in own),
        pending=sum(pod.phase is PodPhase.PENDING for pod in own),
        starting=sum(pod.phase is PodPhase.STARTING for pod in own),
        age_s=max((pod.age_s for pod in own), default=None),
    )
