"""The timers that keep voluntary changes calm (A6).  Forced ones never ask here.

Each job has two: it grows no sooner than `up_window_s` after its last shrink, and shrinks voluntarily no sooner than
`down_window_s` after its last growth.  A quiet window after a submission or a new pod of others holds all of them, so
that a burst is answered once.  Every function returns the instant from which the change is allowed.
"""

from __future__ import annotations

from math import inf

from autoscaler.domain import ClusterView, Job, Pod, Policy, Resize, Role


def growth_opens_at(view: ClusterView, policy: Policy, job: Job) -> float:
    """When the job may grow."""
    last = resize_of(view, job).shrunk_at_s
    return max(started_after(view, job, last) + policy.up_window_s, quiet_from(view, policy))


def shrink_opens_at(view: ClusterView, policy: Policy, job: Job) -> float:
    """When the job may be shrunk voluntarily."""
    last = resize_of(view, job).grown_at_s
    return max(started_after(view, job, last) + policy.down_window_s, quiet_from(view, policy))


def is_old_enough(policy: Policy, pod: Pod, now_s: float) -> bool:
    """Whether the trainer has run long enough to be taken voluntarily."""
    return now_s >= pod.created_at_s + policy.victim_age_s


def transfers_left(view: ClusterView, policy: Policy, now_s: float) -> int:
    """How many trainers may still be moved for fairness within this minute."""
    recent = sum(at_s > now_s - 60.0 for at_s in view.history.transfers_at_s)
    return max(0, policy.transfers_per_minute - recent)


def resize_of(view: ClusterView, job: Job) -> Resize:
    """Return what is remembered of the job's resizes."""
    return next((entry for entry in view.history.resizes if entry.job == job.name), Resize(job=job.name))


def started_after(view: ClusterView, job: Job, last_s: float | None) -> float:
    """Return the instant at which a window starts: the last resize; for jobs older than the memory, its beginning."""
    if last_s is not None:
        return last_s
    return view.history.since_s if job.submitted_at_s < view.history.since_s else -inf


def quiet_from(view: ClusterView, policy: Policy) -> float:
    """Return when the burst is over: the newest submission or pod of others, plus the quiet window."""
    arrivals = [job.submitted_at_s for job in view.jobs]
    arrivals += [pod.created_at_s for pod in view.pods if pod.role is Role.OTHER]
    return max(arrivals, default=-inf) + policy.quiet_window_s
