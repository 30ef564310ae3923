"""How long a job still takes at its planned size, for people and scripts: of its document, or of a plan made now.

The operator writes the time into `status.progress.remaining`; `edl get`, `edl describe` and the page read it there. A
plan may have other sizes, so `edl plan` asks the same model about them (`throughput.remaining_time`).
"""

from __future__ import annotations

from autoscaler.clusters.kubernetes.objects.fields import Raw, integer, part, percent_of, text
from autoscaler.domain import Decision, Job
from autoscaler.throughput.remaining_time import RemainingTime, RemainingWork, remaining_time
from autoscaler.views.jobs.throughput import number
from autoscaler.views.phrases import format_age


def remaining_of(job: Raw) -> RemainingTime | None:
    """Return how long a job of the API server's takes at the size that is wanted; None where that is not known."""
    told = part(job, "status", "progress", "remaining")
    found = RemainingTime(
        trainers=integer(told, "trainers"),
        seconds=number(told, "seconds"),
        shortest_s=number(told, "shortestSeconds"),
        longest_s=number(told, "longestSeconds"),
    )
    is_time = "seconds" in told and 0 <= found.shortest_s <= found.seconds <= found.longest_s
    is_current = 0 < found.trainers == integer(job, "status", "trainers", "target")  # an earlier operator's may be old
    return found if is_time and is_current else None


def planned_remaining(job: Job, decision: Decision) -> RemainingTime | None:
    """Return how long a job takes at the size that a plan gives it; None where that is not known."""
    if job.remaining_work is None:
        return None
    return remaining_time(job.remaining_work, job.throughput, trainers=decision.target, servers=decision.servers_target)


def work_of(job: Raw) -> RemainingWork | None:
    """Return what is left of a job of the API server's, and its present rate; None before its samples are known."""
    status, progress = part(job, "status"), part(job, "status", "progress")
    total, done = integer(progress, "samplesTotal"), percent_of(text(progress, "percent"))
    if total <= 0 or done is None:
        return None
    return RemainingWork(
        samples=max(0.0, total * (1 - done / 100) - max(0, integer(progress, "samplesQuarantined"))),
        samples_per_s=float(max(0, integer(progress, "samplesPerSecond"))),
        trainers=max(0, integer(status, "trainers", "ready")),
        servers=max(0, integer(status, "servers", "ready")),
    )


def format_remaining(found: RemainingTime | None) -> str:
    """`12m`, or `12m (8-20m)` where the range is wider than what is shown of it; empty if the time is not known."""
    if found is None:
        return ""
    expected, low, high = (format_age(one) for one in (found.seconds, found.shortest_s, found.longest_s))
    if low == high:
        return expected
    has_one_unit = low[-1] == high[-1] and low[:-1].isdigit() and high[:-1].isdigit()
    return f"{expected} ({low[:-1] if has_one_unit else low}-{high})"
