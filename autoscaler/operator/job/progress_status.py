"""Progress of a job in its status: written by the operator, and read back by those who plan without it.  Pure.

The status is for people, so its numbers are rounded. `secondsLeft` is there for plans: exactly what the operator plans
with, which its other numbers tell too coarsely near a job's end.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, isfinite
from typing import Final

from autoscaler.clusters.kubernetes.cluster_view import JobRuntime
from autoscaler.clusters.kubernetes.objects.fields import (
    Raw,
    duration_s,
    integer,
    part,
    percent_of,
    text,
    to_time,
    unix_s,
)
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.jobs.progress import JobProgress, shortened
from autoscaler.operator.job.idle_status import idle_in_status
from autoscaler.operator.job.job_record import LONGEST_S, JobRecord, facts_of, seconds_left
from autoscaler.operator.job.recovery import FoundJob, recover_record
from autoscaler.operator.job.throughput_status import curve_in_status
from master.api.master_status import JobPhase

LONGEST_PAUSE_S: Final = 1e6
_MOST_METRICS: Final = 16
_LONGEST_METRIC: Final = 64


def progress_status(record: JobRecord, offset_s: float) -> dict[str, object]:
    """Return the part of the status, of a record whose master has answered.  `offset_s`: the clock less Unix time."""
    progress = record.progress
    assert progress is not None
    report: dict[str, object] = {
        "epoch": progress.epoch,
        "epochs": progress.epochs,
        "samplesCommitted": progress.committed,
        "samplesTotal": progress.total,
        "samplesQuarantined": progress.quarantined,
        "lineage": progress.lineage,
    }
    if progress.stopped_at is not None:
        report["stoppedAtStep"] = progress.stopped_at
    if record.job.spec.server is not None or record.job.spec.group is not None:
        report["waitingPercent"] = round(100 * progress.waiting_share)
    if progress.total:
        report["percent"] = f"{100 * progress.done / progress.total:.1f}%"
    if (left_s := seconds_left(progress)) is not None:
        report["secondsLeft"] = left_s
    if 1 <= progress.samples_per_s < inf:
        report["samplesPerSecond"] = int(float(f"{progress.samples_per_s:.2g}"))  # few digits: few writes
    if metrics := _metrics(progress):
        report["metrics"] = metrics
    if isfinite(record.checkpoint_at_s):
        report["lastCheckpointTime"] = to_time(record.checkpoint_at_s - offset_s)
    return report | _group_status(progress)


def facts_in_status(job: KubeJob, found: FoundJob, now_unix_s: float, *, is_held: bool = False) -> JobRuntime:
    """Return the facts that the operator plans with, by `job_record.facts_of`, as far as the job's status tells them.

    Windows, pauses after failures, and nodes that the job avoids are in no status: they count as over, and as none.
    """
    status = found.status
    record = recover_record(job, found, offset_s=0.0, now_s=now_unix_s)
    throughput = replace(record.throughput, curve=curve_in_status(status, now_unix_s))
    record = replace(record, progress=progress_in_status(status, now_unix_s), throughput=throughput)
    facts = facts_of(record, now_unix_s, is_held=is_held)
    told_s = duration_s(status, "progress", "secondsLeft")
    return replace(
        facts,
        remaining_s=facts.remaining_s if told_s is None else min(told_s, LONGEST_S),
        idle=idle_in_status(status, namespace=job.namespace),
    )


def progress_in_status(status: Raw, now_unix_s: float) -> JobProgress | None:
    """Return what a status tells of progress that a plan asks for; None without any."""
    told = part(status, "progress")
    total, percent = max(0, integer(told, "samplesTotal")), percent_of(text(told, "percent"))
    saved_at_s = unix_s(text(told, "lastCheckpointTime"))
    if not told:
        return None
    return JobProgress(
        phase=JobPhase.TRAINING,  # a plan asks for none
        total=0 if percent is None else total,
        done=round(total * (percent or 0.0) / 100),
        quarantined=max(0, integer(told, "samplesQuarantined")),
        checkpoint_age_s=None if saved_at_s is None else max(0.0, now_unix_s - saved_at_s),
        samples_per_s=float(max(0, integer(told, "samplesPerSecond"))),
        waiting_share=min(100, max(0, integer(told, "waitingPercent"))) / 100,
        resize_pause_s=max(0, integer(told, "resizePauseMilliseconds")) / 1000,
    )


def _group_status(progress: JobProgress) -> dict[str, object]:
    """Steps, pause and comparisons of a group; nothing of a job with parameter servers."""
    report: dict[str, object] = {}
    if progress.steps:
        report |= {"step": progress.step, "steps": progress.steps}
    if 0 < progress.resize_pause_s < LONGEST_PAUSE_S:
        report["resizePauseMilliseconds"] = round(1000 * progress.resize_pause_s)
    if progress.compared_by:
        report["replicas"] = {
            "step": progress.compared_step,
            "trainers": progress.compared_by,
            "digest": progress.compared_digest[:64],
            "request": progress.compared_request[:64],
        }
    return report


def _metrics(progress: JobProgress) -> dict[str, float]:
    """What the script reported by `Session.report`, to three digits: the first names of the alphabet, shortened."""
    told = ((shortened(name)[:_LONGEST_METRIC], value) for name, value in progress.metrics if isfinite(value))
    return {name: float(f"{value:.3g}") for name, value in list(told)[:_MOST_METRICS]}
