"""The record that the operator keeps of one job beside its object, and its facts for the planner.  Pure.

All of a record can be lost: `recovery` makes it anew from the job's pods and status.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf, log2
from typing import Final

from autoscaler.clusters.kubernetes.cluster_view import NEVER_S, JobRuntime
from autoscaler.clusters.kubernetes.objects.fields import Raw, to_time
from autoscaler.clusters.kubernetes.parsing.server_replacement import BucketOwners
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.domain import IdleTrainer, PodName
from autoscaler.jobs import training_health
from autoscaler.jobs.idle_report import IdleReport, idle_report
from autoscaler.jobs.lifecycle import JobEnding, Life, LifeStage
from autoscaler.jobs.progress import JobProgress, MissingAnswer
from autoscaler.jobs.restart_policy import SILENCE_LIMIT_S, STEADY_AFTER_S, pause_s
from autoscaler.jobs.server_ratio import ServerRatio
from autoscaler.jobs.throughput_watch import ThroughputWatch
from autoscaler.jobs.trainer_ledger import LedgerHistory, TrainerVerdict
from autoscaler.jobs.training_health import MasterContact, MasterReport
from autoscaler.operator.job.job_pods import has_consistent_name, has_ended, is_leaving, ordinal_of, uid_of
from autoscaler.operator.job.node_blocklist import NodeBlocklist, blocked_nodes
from autoscaler.operator.job.pod_termination import PodTermination
from master.api.master_status import JobPhase

RESYNC_S: Final = 30.0  # period of reconciling a job without changes
SOON_S: Final = 1.0  # the same for a job in transition
SHORTEST_AGE_S: Final = 5.0
LONGEST_S: Final = 1e9  # 30 years; a longer estimate counts as unknown
WAITING_STEPS: Final = 20  # shares of time are rounded to 1/20


SERVING: Final = frozenset({JobPhase.TRAINING, JobPhase.COMMITTING, JobPhase.SAVING, JobPhase.COMPLETE})
"""Phases in which a master knows the owners of all buckets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerDrain:
    """Drain of a parameter server that the planner deletes."""

    ordinal: int
    since_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """State of one job in the operator.  Instants are on the cluster's clock; sets hold UIDs of existing pods."""

    job: KubeJob
    life: Life
    blocklist: NodeBlocklist = field(default_factory=NodeBlocklist)
    progress: JobProgress | None = None
    progress_at_s: float = -inf
    polled_at_s: float = -inf  # the last poll that ended, answered or not
    refused_at_s: float = -inf  # last answer of a master that does not lead
    missing_answer: MissingAnswer | None = None  # why the last poll failed; None: it was answered
    unanswered_since_s: float = -inf  # the first failed poll since the last answer
    checkpoint_at_s: float = -inf  # last known commit
    waiting_since_s: float | None = None  # since when the job waits for capacity to start; None while suspended
    took_part_at_s: float = -inf  # last answer of its master by which a trainer takes part
    standstill_since_s: float | None = None  # since when no trainer takes part, by its master's answers
    is_start_awaited: bool = False  # ... and that is not told, for a trainer pod is starting
    ratio: ServerRatio = field(default_factory=ServerRatio)  # where it is measured
    throughput: ThroughputWatch = field(default_factory=ThroughputWatch)  # measured at each of its sizes
    leader: str = ""  # the master's pod that answered last
    server_failures: int = 0  # of servers, in a row
    server_failed_at_s: float = -inf
    deleted_by_edl: frozenset[str] = frozenset()  # deleted by EDL
    departed: frozenset[str] = frozenset()  # departure already reported
    handled: frozenset[str] = frozenset()  # end already handled
    refused: frozenset[str] = frozenset()  # processes of trainers whose end as refused ones is handled
    released: frozenset[str] = frozenset()  # servers that the master has released
    emptied: frozenset[str] = frozenset()  # servers that go and have handed over all their buckets
    drains: Mapping[PodName, ServerDrain] = field(default_factory=dict)  # of servers
    count_refusal: str = ""  # why its master refuses the number of servers; empty: it does not
    ledger: LedgerHistory = field(default_factory=LedgerHistory)  # its trainers' batches
    still: tuple[TrainerVerdict, ...] = ()  # trainers that are idle or hung, by the last answer of its master
    resizes_before: tuple[Raw, ...] = ()  # resizes in the status of earlier leaders, newest first; only displayed

    @property
    def hold_until_s(self) -> float:
        """End of the pause after failures of trainers or servers; no pod is created before."""
        servers_s = self.server_failed_at_s + pause_s(self.server_failures)
        return max(self.life.hold_until_s, servers_s if self.server_failures else 0.0)


def facts_of(record: JobRecord, now_s: float, *, is_held: bool = False) -> JobRuntime:
    """Facts for the planner.  Times are rounded, so that not every poll changes the view.

    `is_held`: nothing is created for the job, because of the PriorityClasses of the cluster.
    """
    progress, hold_until_s = record.progress, NEVER_S if is_held else record.hold_until_s
    return JobRuntime(
        state=record.life.state,
        hold_until_s=hold_until_s if hold_until_s > now_s else 0.0,
        hold_reason=record.life.hold_reason if record.life.hold_until_s == hold_until_s > now_s else "",
        checkpoint_age_s=None if progress is None else _coarse_age_s(progress.checkpoint_age_s),
        remaining_s=None if progress is None else seconds_left(progress),
        trainers_per_server=record.ratio.trainers_per_server if is_ratio_measured(record.job) else None,
        waiting_share=0.0 if progress is None else round(progress.waiting_share * WAITING_STEPS) / WAITING_STEPS,
        resize_pause_s=0.0 if progress is None else float(f"{progress.resize_pause_s:.2g}"),
        throughput=record.throughput.curve,
        avoided_nodes=blocked_nodes(record.blocklist, now_s),
        bucket_owners=bucket_owners_of(record, now_s),
        idle=idle_trainers_of(record),
    )


def idle_trainers_of(record: JobRecord) -> tuple[IdleTrainer, ...]:
    """Return the trainers that the planner may take or replace because they do no work."""
    return tuple(
        IdleTrainer(pod=PodName(f"{record.job.namespace}/{one.name}"), since_s=one.since_s, is_hung=one.is_replaceable)
        for one in record.still
        if one.gives or one.is_replaceable
    )


def idle_window_s(job: KubeJob, default_s: float) -> float:
    """Return after how long without a batch a trainer of the job is idle; 0: never."""
    own_s = job.spec.trainer.idle_s
    return default_s if own_s is None else own_s


def bucket_owners_of(record: JobRecord, now_s: float) -> BucketOwners | None:
    """Return which servers own buckets, as the master that leads says; None while no master says so, or knows."""
    progress = record.progress
    has_answered = record.refused_at_s <= record.progress_at_s and now_s - record.progress_at_s < SILENCE_LIMIT_S
    if progress is None or not has_answered or progress.phase not in SERVING:
        return None
    ordinals = frozenset(ordinal for ordinal, buckets in progress.buckets if buckets)
    return BucketOwners(ordinals=ordinals, is_moving=progress.moving > 0)


def master_contact_of(record: JobRecord) -> MasterContact:
    """Contact with the job's master, for `jobs.training_health`."""
    started_at_s = record.life.started_at_s
    return MasterContact(
        progress=record.progress,
        progress_at_s=record.progress_at_s,
        missing_answer=record.missing_answer,
        unanswered_since_s=record.unanswered_since_s,
        checkpoint_at_s=record.checkpoint_at_s,
        started_at_s=-inf if started_at_s is None else started_at_s,
        standstill_since_s=record.standstill_since_s,
        is_start_awaited=record.is_start_awaited,
    )


def master_report_of(record: JobRecord, now_s: float, offset_s: float) -> MasterReport:
    """Report on the job's master; silence is given as a date, so that the text does not change."""

    def format_since(since_s: float) -> str:
        return f"since {to_time(since_s - offset_s)}"

    return training_health.master_report(
        master_contact_of(record), every_s=record.job.spec.checkpoint.every_s, now_s=now_s, format_since=format_since
    )


def idle_report_of(record: JobRecord, *, window_s: float, offset_s: float) -> IdleReport:
    """Report on trainers that do no work or wait much; instants are given as dates."""
    return idle_report(
        record.still,
        record.ledger,
        is_group=record.job.spec.group is not None,
        window_s=window_s,
        format_since=lambda since_s: to_time(since_s - offset_s),
    )


def alerted_uncommitted_since_s(record: JobRecord) -> float | None:
    """Start of the uncommitted training; None if all is committed or the job does not train."""
    return (
        training_health.uncommitted_since_s(master_contact_of(record))
        if record.life.stage is LifeStage.ACTIVE
        else None
    )


def waiting_since_s(record: JobRecord, *, has_started: bool, is_managed: bool, now_s: float) -> float | None:
    """Since when the job waits for capacity to start; None: it does not wait, or EDL does not manage it."""
    if record.life.stage is not LifeStage.ACTIVE or has_started or not is_managed:
        return None
    return now_s if record.waiting_since_s is None else record.waiting_since_s


def is_ratio_measured(job: KubeJob) -> bool:
    """True if the job's spec has `trainersPerServer: auto`."""
    return job.spec.server is not None and job.spec.server.is_ratio_measured


def count_server_failure(record: JobRecord, now_s: float) -> JobRecord:
    """Count one more server that ended by itself; after a pause without failures the count starts at 1."""
    is_first = now_s - record.server_failed_at_s > pause_s(record.server_failures) + STEADY_AFTER_S
    failures = 1 if is_first else record.server_failures + 1
    return replace(record, server_failures=failures, server_failed_at_s=now_s)


def next_reconcile_at_s(life: Life, now_s: float) -> float:
    """Return when time alone may change something."""
    policy = life.policy
    if life.stage in {LifeStage.SUSPENDING, LifeStage.FINISHING, LifeStage.STOPPING}:
        return now_s + SOON_S
    due_s = inf
    if life.stage is LifeStage.OVER:
        if policy.ttl_after_finished_s is not None and life.ended_at_s is not None:
            due_s = life.ended_at_s + policy.ttl_after_finished_s
    elif life.stage is LifeStage.ACTIVE and policy.active_deadline_s is not None and life.started_at_s is not None:
        due_s = life.started_at_s + policy.active_deadline_s
    return min(max(due_s, now_s + SOON_S), now_s + RESYNC_S)


def released_servers(job: KubeJob, servers: Iterable[Raw], progress: JobProgress | None) -> frozenset[str]:
    """UIDs of servers beyond the master's number; it releases them once they own nothing."""
    if progress is None:
        return frozenset()
    consistent = (raw for raw in servers if has_consistent_name(raw, job.name))
    return frozenset(uid_of(raw) for raw in consistent if ordinal_of(raw) >= progress.servers_wanted)


def emptied_servers(record: JobRecord, servers: Iterable[Raw], progress: JobProgress) -> frozenset[str]:
    """UIDs of servers that go and own nothing, by this report of the master and the ones before.

    A server counts once a report names it with no bucket while its process runs.  It still counts when later reports do
    not name it.  A report that comes with a new lineage proves nothing: its master has just handled a loss.
    """
    before, owned = record.progress, dict(progress.buckets)
    is_proof = progress.phase in SERVING and before is not None and before.lineage == progress.lineage
    consistent = [raw for raw in servers if has_consistent_name(raw, record.job.name)]
    released = record.released | released_servers(record.job, consistent, progress)

    def is_empty(raw: Raw) -> bool:
        ordinal, uid = ordinal_of(raw), uid_of(raw)
        is_known = uid in record.emptied
        if ordinal not in owned or has_ended(raw):
            return is_known
        return owned[ordinal] == 0 and (is_known or (is_proof and (is_leaving(raw) or uid in released)))

    return frozenset(uid_of(raw) for raw in consistent if is_empty(raw))


def was_released(raw: Raw, end: PodTermination, record: JobRecord) -> bool:
    """True if the master had released this server before it ended with 0.

    A server that is wanted again after its release ends all the same.
    """
    return end.code == 0 and end.uid in record.released | released_servers(record.job, [raw], record.progress)


def is_failed(life: Life) -> bool:
    """True if the job has been given up."""
    return life.ending is JobEnding.FAILED


def _coarse_age_s(age_s: float | None) -> float | None:
    """Round an age down to 5, 10, 20, 40, ... s."""
    if age_s is None or age_s < SHORTEST_AGE_S:
        return None if age_s is None else 0.0
    return float(SHORTEST_AGE_S * 2 ** int(log2(age_s / SHORTEST_AGE_S)))


def seconds_left(progress: JobProgress) -> float | None:
    """Return until when the job is done at its present rate, to one digit; None: that is not known."""
    left = progress.total - progress.done - progress.quarantined
    if progress.samples_per_s <= 0 or progress.total <= 0:
        return None
    seconds = min(max(0.0, left / progress.samples_per_s), LONGEST_S)
    return float(f"{seconds:.1g}")
