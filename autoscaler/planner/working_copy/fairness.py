"""Fairness key of a job: one number by which jobs are ordered; the job with the lowest key takes the next step.

Between jobs the key is the weighted dominant share (the default), or the job's progress (`progress`). Between
namespaces (`Fairness.NAMESPACE`) the shares of a namespace's jobs, unweighted, are added up and compared first; weights
then divide what the namespace has among its own jobs. So ten small jobs of a team do not take ten shares (ADR 0115).
"""

from __future__ import annotations

from collections.abc import Iterable

from autoscaler.domain import Fairness, JobName, Role
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.working_copy import WorkingCopy


class Namespaces:
    """The dominant shares of each namespace's jobs, brought up to date for the jobs that changed."""

    def __init__(self, copy: WorkingCopy) -> None:
        self._copy = copy
        self._parts: dict[JobName, int] = {}
        self._totals: dict[str, int] = {}
        self._seen = 0
        for job in copy.jobs.values():
            self._count(job)
        self._seen = len(copy.changed_jobs)

    def total(self, namespace: str) -> int:
        """Return the sum of its jobs' dominant shares."""
        changed = self._copy.changed_jobs
        for job in changed[self._seen :]:
            self._count(job)
        self._seen = len(changed)
        return self._totals[namespace]

    def _count(self, job: PlannedJob) -> None:
        part, space = job.share() * job.spec.weight, job.spec.namespace
        self._totals[space] = self._totals.get(space, 0) + part - self._parts.get(job.spec.name, 0)
        self._parts[job.spec.name] = part


def fairness_key(copy: WorkingCopy, job: PlannedJob) -> int:
    """Return what the job has already as one number, in a unit in which all keys of a plan compare."""
    return before_share(copy, job) + job.attained()


def before_share(copy: WorkingCopy, job: PlannedJob) -> int:
    """Return the part of a fairness key that comes before the job's own share: its namespace's; 0 between jobs."""
    if copy.policy.fairness is not Fairness.NAMESPACE:
        return 0
    return namespaces_of(copy).total(job.spec.namespace) * above_shares(copy)


def is_entitled(copy: WorkingCopy, poor: PlannedJob, more: int, rich: PlannedJob, less: int) -> bool:
    """True if with `more` trainers the poor job still has less than the rich one with `less` fewer (A4)."""
    after, left = poor.attained(more=more), rich.attained(more=-less)
    if copy.policy.fairness is not Fairness.NAMESPACE or poor.spec.namespace == rich.spec.namespace:
        return after < left
    spaces = namespaces_of(copy)
    gained = (after - poor.attained()) * poor.spec.weight
    lost = (rich.attained() - left) * rich.spec.weight
    return spaces.total(poor.spec.namespace) + gained < spaces.total(rich.spec.namespace) - lost


def divide_into_parts(copy: WorkingCopy) -> None:
    """Under `Fairness.PROGRESS` let the parts be those of the jobs that this plan leaves running or starts."""
    jobs = copy.jobs.values()
    if copy.policy.fairness is not Fairness.PROGRESS or not copy.parts.divide(jobs, copy.share_unit):
        return
    copy.growth_lines.clear()
    copy.grades.forget_largest_share()
    copy.changed_jobs.extend(jobs)  # so their prices as victims are asked anew


def namespaces_of(copy: WorkingCopy) -> Namespaces:
    """Return the plan's sums, made on demand."""
    return copy.cache.get(Namespaces, lambda: Namespaces(copy))


def share_of(copy: WorkingCopy, job: PlannedJob, roles: Iterable[Role]) -> int:
    """Return the share that new pods of these roles alone would have."""
    amounts = [0] * len(job.rates)
    for role in roles:
        for column, amount in enumerate(copy.shapes.amounts[job.shapes[role]]):
            amounts[column] += amount
    return max(map(int.__mul__, amounts, job.rates), default=0)


def above_shares(copy: WorkingCopy) -> int:
    """Return a factor by which the smallest difference between namespaces outweighs any share of a job."""
    return 4 * copy.share_unit
