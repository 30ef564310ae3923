"""Grades of surplus trainers: how early one leaves when a scheduler chooses, 1 to 8, fixed when it is created.

kube-scheduler preempts the lowest priority class first, so a trainer's class encodes how large a share its job
reaches with it: grade k is class -k, and the first victims are the last trainers of the largest jobs.  That is
max-min fairness by preemption, which holds while EDL is down too (`beside-the-scheduler.md` 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from autoscaler.domain import JobName, Pod, Tier
from autoscaler.planner.working_copy.planned_job import PlannedJob

GRADES: Final = 8
"""With 8 classes as with 10, what is left unfair is at most one class wide; below -10 pods count as expendable."""


class Grades:
    """The grades of the surplus that a plan creates, by the largest share that any admitted job reaches."""

    def __init__(self, jobs: Mapping[JobName, PlannedJob], dirty: AbstractSet[JobName]) -> None:
        """`dirty`: jobs whose share at the ceiling may change within the plan; that of others is kept between plans."""
        self._jobs = jobs
        self._dirty = dirty
        self._largest_share = 0  # computed on demand

    def grade_at(self, job: PlannedJob, ordinal: int) -> int:
        """Return the grade of a surplus trainer by the share that the job reaches with it."""
        if not self._largest_share:
            admitted = (other for other in self._jobs.values() if other.is_running or other.is_starting)
            self._largest_share = max(map(self.share_at_ceiling, admitted), default=0)
        return grade_of(job.attained(more=ordinal + 1 - job.size), self._largest_share)

    def forget_largest_share(self) -> None:
        """Have the largest share computed again: the plan has admitted further jobs."""
        self._largest_share = 0

    def share_at_ceiling(self, job: PlannedJob) -> int:
        if job.spec.name in self._dirty:
            return job.attained(more=job.ceiling - job.size)
        if job.ceiling_share is None:
            job.ceiling_share = job.attained(more=job.ceiling - job.size)
        return job.ceiling_share


def grade_of(share: int, largest: int) -> int:
    """Return 1 + floor(8 * share / largest), from 1 to 8.

    `share`: the weighted dominant share that the job reaches with this trainer; `largest`: the largest that any
    admitted job reaches at its maximum, in the same unit.  With nothing to compare the grade is 1.
    """
    if largest <= 0:
        return 1
    return max(1, min(1 + GRADES * share // largest, GRADES))


def grade_of_pod(pod: Pod) -> int:
    """Return the grade of an existing pod; 0 for core.  Where surplus is at core's level all grades are alike."""
    if pod.tier is not Tier.SURPLUS:
        return 0
    return -pod.priority if 1 <= -pod.priority <= GRADES else 1
