"""Parts of the cluster under `Fairness.PROGRESS`: whose weights divide it, and each job's scale of progress (ADR 0275).

A job has a part while it runs, starts, or has capacity reserved for its minimum: as `Fairness.JOB` shares out among
those alone.  A job that waits, or that can never start, takes nothing, and makes nobody's part smaller.
"""

from __future__ import annotations

from collections.abc import Collection

from autoscaler.domain import JobState
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.progress import progress_scale


class Parts:
    """The scales of all jobs, by the weights of those that have a part now."""

    def __init__(self) -> None:
        self._total: int | None = None  # of the weights by which the scales stand; None: they do not stand

    def forget(self) -> None:
        """Have the scales made anew: jobs, their curves or the nodes have changed."""
        self._total = None

    def divide(self, jobs: Collection[PlannedJob], share_unit: int) -> bool:
        """Give each job its scale; False if all stand as they are. Keys that were derived from the old scales are
        dropped."""
        total = sum(job.spec.weight for job in jobs if has_part(job))
        if total == self._total:
            return False
        self._total = total
        for job in jobs:
            of_trainer = max(map(int.__mul__, job.trainer_amounts, job.rates), default=0)
            job.progress = progress_scale(job.spec, of_trainer, total, share_unit)
            job.forget_share()
        return True


def has_part(job: PlannedJob) -> bool:
    """True if the job takes capacity, or will have its minimum by this plan."""
    is_taking = job.is_running or job.size >= job.spec.trainer.min_replicas
    return job.spec.state is JobState.ACTIVE and is_taking
