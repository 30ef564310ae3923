"""Recovery of a job's record by a new leader, from the job's object, its status and its pods.  Pure.

Existing pods decide; the status is used only where no pod contradicts it (ADR 0152):

- An ending (Completed, Failed) is believed only while no trainer stands that was not deleted: EDL writes it only then.
  If trainers still run, the ending is forged or a mistake, and the job continues.
- Failures in a row are believed up to one below the limit: a number alone ends no job.
- The start is believed between the job's creation and that of its oldest pod.
- The last checkpoint's instant, and those since when the job waits or stands still, are believed up to now: alerts and
  texts alone rest on them.
- The measured number of trainers per server is believed: it moves servers within the bounds that the job's owner has
  set, and is measured anew.

Everything else of the status is written for people and never read again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import inf
from typing import Final

from autoscaler.clusters.kubernetes.objects.fields import ENDED_PHASES, Raw, created_at_s, integer, parts, text, unix_s
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.domain import Role
from autoscaler.jobs.life_events import FailureReason
from autoscaler.jobs.lifecycle import CompletionReason, JobEnding, Life, LifeStage
from autoscaler.jobs.server_ratio import ratio_in_status
from autoscaler.operator.job.job_pods import has_active_trainer
from autoscaler.operator.job.job_record import JobRecord
from autoscaler.operator.job.throughput_status import throughput_in_status

_ENDINGS: Final = (JobEnding.COMPLETED, JobEnding.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundJob:
    """Observed job: its status, its pods, and the roles that are present."""

    status: Raw
    pods: Collection[Raw]
    roles: frozenset[Role]


def recover_life(job: KubeJob, found: FoundJob, *, offset_s: float, now_s: float) -> Life:
    """Return the job's life.  `now_s` is the cluster's clock, `offset_s` takes Unix time to it."""
    policy = job.spec.run_policy
    started_at_s = _started_at_s(job, found, offset_s, now_s)
    if (condition := _valid_ending(found)) is not None:
        created_s = job.created_at_s + offset_s
        written_s = unix_s(text(found.status, "completionTime"))
        ended_at_s = now_s if written_s is None else min(max(written_s + offset_s, created_s), now_s)
        return Life(
            policy=policy,
            stage=LifeStage.STOPPING if found.roles else LifeStage.OVER,
            ending=JobEnding(text(condition, "type")),
            failure_reason=_failure_reason(condition),
            completion_reason=_completion_reason(condition),
            message=text(condition, "message"),
            started_at_s=started_at_s,
            ended_at_s=ended_at_s,
            stopped_role_count=1,
        )
    failures = max(0, min(integer(found.status, "failures"), max(1, policy.backoff_limit) - 1))
    stage = _stage(job, found)
    stopped = int(stage is LifeStage.SUSPENDING)  # at least the trainers have been stopped
    return Life(policy=policy, stage=stage, started_at_s=started_at_s, failures=failures, stopped_role_count=stopped)


def recover_record(job: KubeJob, found: FoundJob, *, offset_s: float, now_s: float) -> JobRecord:
    """Return the record of a job of which nothing else is known.  Its progress comes with its master's first answer."""
    return JobRecord(
        job=job,
        life=recover_life(job, found, offset_s=offset_s, now_s=now_s),
        ratio=ratio_in_status(found.status),
        throughput=throughput_in_status(found.status),
        checkpoint_at_s=recover_checkpoint_at_s(found.status, offset_s=offset_s, now_s=now_s),
        waiting_since_s=recover_waiting_since_s(job, found.status, offset_s=offset_s, now_s=now_s),
        standstill_since_s=recover_standstill_since_s(found.status, offset_s=offset_s, now_s=now_s),
        resizes_before=tuple(parts(found.status, "resizes")),
    )


def _stage(job: KubeJob, found: FoundJob) -> LifeStage:
    if not job.spec.run_policy.suspend:
        return LifeStage.ACTIVE
    return LifeStage.SUSPENDING if found.roles & {Role.TRAINER, Role.SERVER} else LifeStage.SUSPENDED


def _valid_ending(found: FoundJob) -> Raw | None:
    """Return the condition of the job's ending, if it can be believed."""
    if has_active_trainer(found.pods):
        return None
    for condition in parts(found.status, "conditions"):
        if condition.get("status") == "True" and text(condition, "type") in _ENDINGS:
            return condition
    return None


def _failure_reason(condition: Raw) -> FailureReason:
    try:
        return FailureReason(text(condition, "reason"))
    except ValueError:
        return FailureReason.GIVEN_UP


def _completion_reason(condition: Raw) -> CompletionReason:
    try:
        return CompletionReason(text(condition, "reason"))
    except ValueError:
        return CompletionReason.ALL_TRAINED


def _started_at_s(job: KubeJob, found: FoundJob, offset_s: float, now_s: float) -> float | None:
    oldest = [created_at_s(raw) for raw in found.pods if text(raw, "status", "phase") not in ENDED_PHASES]
    latest_s = min([*(at_s + offset_s for at_s in oldest), now_s])
    written_s = unix_s(text(found.status, "startTime"))
    if written_s is None:
        return None
    return max(job.created_at_s + offset_s, min(written_s + offset_s, latest_s))


def recover_checkpoint_at_s(status: Raw, *, offset_s: float, now_s: float) -> float:
    """Return when the last checkpoint was committed by the status; -inf: it names none."""
    written_s = unix_s(text(status, "progress", "lastCheckpointTime"))
    return -inf if written_s is None else min(written_s + offset_s, now_s)


def recover_waiting_since_s(job: KubeJob, status: Raw, *, offset_s: float, now_s: float) -> float | None:
    """Since when the job waits: by its status, or its creation if it has no status yet; None: unknown."""
    created_s = job.created_at_s + offset_s
    if not status:
        return min(created_s, now_s)
    written_s = unix_s(text(status, "waitingSince"))
    return None if written_s is None else max(created_s, min(written_s + offset_s, now_s))


def recover_standstill_since_s(status: Raw, *, offset_s: float, now_s: float) -> float | None:
    """Since when no trainer has taken part, by the status; None: it does not say so."""
    written_s = unix_s(text(status, "standstillSince"))
    return None if written_s is None else min(written_s + offset_s, now_s)
