"""One job: its size and why, what comes next, progress, throughput, resizes, pods.  From its document alone.

Every number is a field of the TrainingJob that `edl get tj/NAME -o json` prints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from autoscaler.clusters.kubernetes.objects.fields import (
    Raw,
    condition_of,
    created_at_s,
    duration_s,
    integer,
    part,
    parts,
    percent_of,
    text,
    unix_s,
)
from autoscaler.throughput.remaining_time import RemainingTime
from autoscaler.views.cluster.cluster_picture import colours_of
from autoscaler.views.cluster.pod_view import PodView
from autoscaler.views.documents import ClusterDocuments
from autoscaler.views.jobs.remaining_time import remaining_of
from autoscaler.views.jobs.reported_metrics import MetricView, reported_metrics
from autoscaler.views.jobs.throughput import ThroughputView, throughput_of
from autoscaler.views.object_states import holding_conditions, job_message
from autoscaler.views.view_memo import ViewMemo

_ENDINGS = ("Completed", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSize:
    """How many trainers, or servers, a job has.  `pinned`: the user's number; 0: EDL decides."""

    ready: int
    target: int
    min: int
    max: int
    pinned: int
    leaving: int

    @property
    def is_changing(self) -> bool:
        """True while the job is not at its target."""
        return self.ready != self.target


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressView:
    """Progress of a job.  `percent` is text, as the status has it.

    `eta_s`: how long it takes at its present pace, to one digit, as plans reckon; `remaining`: at the size that is
    wanted.  None: not known.
    """

    percent: str
    epoch: int
    epochs: int
    samples_committed: int
    samples_total: int
    samples_per_s: int
    step: int
    steps: int
    resize_pause_ms: int
    checkpoint_at_s: float | None
    eta_s: float | None
    remaining: RemainingTime | None

    @property
    def share(self) -> float:
        """The part that is done, 0 to 1."""
        return (percent_of(self.percent) or 0.0) / 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeView:
    """One resize: `size_before` to `size_after`, its cause, who caused it, and in words why."""

    at_s: float | None
    size_before: int
    size_after: int
    role: str
    cause: str
    by: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemView:
    """A condition that tells of trouble."""

    condition: str
    reason: str
    message: str
    since_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One job.  `is_reconciled`: the operator has seen it; before that nothing else is known.

    `reason` and `message`: why the job has its size, or is not running; `since_s`: since when that holds;
    `standstill_since_s`: since when no trainer takes part, though it trains; `metrics`: what its script reported last.
    """

    namespace: str
    name: str
    colour: int
    is_reconciled: bool
    ending: str  # Completed or Failed; empty before
    conditions: tuple[str, ...]
    created_at_s: float
    waiting_since_s: float | None
    standstill_since_s: float | None
    ended_at_s: float | None
    priority_class: str
    weight: int
    share: str
    trainers: RoleSize
    core: int
    surplus: int
    servers: RoleSize | None
    copies: int
    single_copies: int
    moving_buckets: int
    masters_ready: int
    leader: str
    reason: str
    message: str
    since_s: float | None
    problems: tuple[ProblemView, ...]
    failures: int
    backoff_limit: int
    checkpoint_uri: str
    progress: ProgressView | None
    metrics: tuple[MetricView, ...]
    throughput: ThroughputView | None
    resizes: tuple[ResizeView, ...]

    @property
    def key(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_waiting(self) -> bool:
        """True if it has no size yet, or waits for capacity."""
        return not self.ending and self.is_reconciled and (self.waiting_since_s is not None or not self.trainers.target)

    @property
    def state(self) -> str:
        """One word for where it stands."""
        if self.ending:
            return self.ending
        if not self.is_reconciled:
            return "New"
        if self.standstill_since_s is not None:
            return "Standing still"
        for condition, word in (("Suspended", "Suspended"), ("Degraded", "Degraded"), ("Ready", "Running")):
            if condition in self.conditions:
                return word
        return "Starting" if self.trainers.target else "Waiting"

    @property
    def last_shrink(self) -> ResizeView | None:
        """The last resize of its trainers if that made it smaller, and it still is."""
        last = next((one for one in self.resizes if one.role == "trainer"), None)
        is_shrink = last is not None and self.trainers.target <= last.size_after < last.size_before
        return last if is_shrink else None


def job_views(documents: ClusterDocuments) -> tuple[JobView, ...]:
    """Return every job: those that run first, then those that ended, the oldest first."""
    memo = documents.memo
    return memo.once(_job_views, memo, documents.jobs, colours_of(documents))


def _job_views(memo: ViewMemo, jobs: Sequence[Raw], colours: Mapping[str, int]) -> tuple[JobView, ...]:
    plain = memo.each(job_view, jobs)
    found = memo.each_row(_coloured, ((job, colours[job.key]) for job in plain))
    return tuple(sorted(found, key=lambda job: (bool(job.ending), job.created_at_s, job.key)))


def _coloured(job: JobView, colour: int) -> JobView:
    return replace(job, colour=colour)


def job_view(job: Raw) -> JobView:
    """Return one job of the API server's, in the first colour."""
    status, trainers, servers = part(job, "status"), part(job, "status", "trainers"), part(job, "status", "servers")
    scaled = condition_of(job, "Scaled")
    return JobView(
        namespace=text(job, "metadata", "namespace"),
        name=text(job, "metadata", "name"),
        colour=0,
        is_reconciled=bool(status),
        ending=next((one for one in _ENDINGS if condition_of(job, one).get("status") == "True"), ""),
        conditions=holding_conditions(job),
        created_at_s=created_at_s(job),
        waiting_since_s=unix_s(text(status, "waitingSince")),
        standstill_since_s=unix_s(text(status, "standstillSince")),
        ended_at_s=unix_s(text(status, "completionTime")),
        priority_class=text(job, "spec", "priorityClassName") or "edl-core",
        weight=integer(job, "spec", "weight", default=100),
        share=text(status, "share"),
        trainers=_size(part(job, "spec", "trainer"), trainers),
        core=integer(trainers, "core"),
        surplus=integer(trainers, "surplus"),
        servers=_size(part(job, "spec", "parameterServer"), servers) if part(job, "spec", "parameterServer") else None,
        copies=integer(servers, "copies", default=1),
        single_copies=integer(servers, "singleCopies"),
        moving_buckets=integer(servers, "movingBuckets"),
        masters_ready=integer(status, "master", "ready"),
        leader=text(status, "master", "leader"),
        reason=text(status, "reason"),
        message=job_message(job),
        since_s=unix_s(text(scaled, "lastTransitionTime")),
        problems=tuple(_problems(job)),
        failures=integer(status, "failures"),
        backoff_limit=integer(job, "spec", "runPolicy", "backoffLimit", default=6),
        checkpoint_uri=text(job, "spec", "checkpoint", "uri"),
        progress=_progress(job),
        metrics=reported_metrics(job),
        throughput=throughput_of(job),
        resizes=tuple(_resize(one) for one in parts(status, "resizes")),
    )


def pods_of(pods: Iterable[PodView], job: JobView) -> tuple[PodView, ...]:
    """Return the pods of a job: trainers, then servers and masters, by number."""
    own = [pod for pod in pods if pod.owner == job.key and pod.role != "external"]
    return tuple(sorted(own, key=lambda pod: (_ROLES.index(pod.role.value), pod.ordinal, pod.name)))


_ROLES = ("trainer", "server", "master")


def _size(spec: Raw, status: Raw) -> RoleSize:
    low = integer(spec, "minReplicas")
    return RoleSize(
        ready=integer(status, "ready"),
        target=integer(status, "target"),
        min=low,
        max=integer(spec, "maxReplicas", default=low),
        pinned=integer(spec, "replicas"),
        leaving=integer(status, "leaving"),
    )


def _progress(job: Raw) -> ProgressView | None:
    progress = part(job, "status", "progress")
    total = integer(progress, "samplesTotal")
    if total <= 0:
        return None
    return ProgressView(
        percent=text(progress, "percent"),
        epoch=integer(progress, "epoch"),
        epochs=integer(progress, "epochs"),
        samples_committed=integer(progress, "samplesCommitted"),
        samples_total=total,
        samples_per_s=integer(progress, "samplesPerSecond"),
        step=integer(progress, "step"),
        steps=integer(progress, "steps"),
        resize_pause_ms=integer(progress, "resizePauseMilliseconds"),
        checkpoint_at_s=unix_s(text(progress, "lastCheckpointTime")),
        eta_s=duration_s(progress, "secondsLeft"),
        remaining=remaining_of(job),
    )


def _problems(job: Raw) -> Iterable[ProblemView]:
    for kind, bad in _TROUBLE:
        one = condition_of(job, kind)
        if one.get("status") in bad and text(one, "message") and text(one, "reason") not in _HEALTHY_REASONS:
            yield ProblemView(
                condition=kind,
                reason=text(one, "reason"),
                message=text(one, "message"),
                since_s=unix_s(text(one, "lastTransitionTime")),
            )


_HEALTHY_REASONS = frozenset({"NotActive", "Waiting"})
_TROUBLE = (
    ("Failed", {"True"}),
    ("Degraded", {"True"}),
    ("Idle", {"True"}),
    ("Progressing", {"False", "Unknown"}),
    ("CheckpointsCurrent", {"False", "Unknown"}),
)


def _resize(raw: Raw) -> ResizeView:
    return ResizeView(
        at_s=unix_s(text(raw, "time")),
        size_before=integer(raw, "from"),
        size_after=integer(raw, "to"),
        role=text(raw, "role") or "trainer",
        cause=text(raw, "cause"),
        by=text(raw, "by"),
        message=text(raw, "message"),
    )
