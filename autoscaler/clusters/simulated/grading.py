"""Which priority a new pod of a job gets: core its job's, surplus what the mode of reclaim says (kubernetes.md 1 to 3).

With `reclaim: scheduler` surplus has graded classes, so that the scheduler's first victims are the replicas of the
largest share.  With `reclaim: planner` it carries core's value and the scheduler never takes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from autoscaler.domain import CreatePod, Job, Reclaim, Resources, Role, Tier

CORE_VALUE: Final = 0  # of the built-in class `edl-core`
CLASSES: Final = 8


def priority_of(
    job: Job, want: CreatePod, *, trainers: int, reclaim: Reclaim, all_jobs: Iterable[Job], capacity: Resources
) -> int:
    """The priority of a pod that is created as its job's `trainers`-th trainer (or server, or master)."""
    if want.tier is not Tier.SURPLUS:
        return job.priority
    if reclaim is Reclaim.PLANNER or want.role is not Role.TRAINER:
        return CORE_VALUE
    if want.grade:
        return -want.grade
    most = max(share(other, other.trainer.ceiling, capacity) for other in all_jobs)
    return -min(CLASSES, 1 + int(CLASSES * share(job, trainers, capacity) / most)) if most else -1


def share(job: Job, trainers: int, capacity: Resources) -> float:
    """The weighted dominant share of a job with so many trainers, its servers and masters included."""
    usage = job.trainer.shape.requests
    usage = usage.plus(usage, times=trainers - 1).plus(job.master.shape.requests, times=job.master.replicas)
    if job.servers is not None:
        usage = usage.plus(job.servers.shape.requests, times=job.server_count)
    parts = (amount / whole for name, amount in usage.amounts() if (whole := capacity.amount(name)))
    return max(parts, default=0.0) / job.weight
