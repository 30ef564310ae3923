"""What namespaces may still ask for: ResourceQuota, seen before the API server refuses (`kubernetes.md` 9 and 19).

As with rooms there are two amounts.  Now: the hard limit less what is used; a pod created within it is accepted.
Later: what leaves counts as gone.  A quota bounds pods from creation until they are gone, whoever made them, so what is
used comes from the cluster; what this plan adds and takes away, and what was leaving before, is counted from the jobs.

Several quotas of a namespace hold at once.  `Draft.quota_lack` is the one question.  A gang whose namespace has used
up its quota with its own surplus takes that back (`free_quota`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from autoscaler.domain import JobName, Quota
from autoscaler.planner.job_draft import JobDraft
from autoscaler.planner.shapes import Shapes
from autoscaler.planner.words import describe_amount


class QuotaBook:
    """The quotas of a view, and what its jobs used when the plan began."""

    def __init__(self, quotas: Iterable[Quota], shapes: Shapes, jobs: Iterable[JobDraft]) -> None:
        self._shapes = shapes
        self._limits: dict[str, list[tuple[str, str, int]]] = {}  # by namespace: quota, resource, what is left
        for quota in quotas:
            limits = self._limits.setdefault(quota.namespace, [])
            limits += [(quota.name, limit.resource, limit.hard - limit.used) for limit in quota.limits]
        self._jobs: dict[str, list[JobDraft]] = {}
        self._before: dict[JobName, list[int]] = {}
        for job in jobs:
            if job.job.namespace in self._limits:
                self._jobs.setdefault(job.job.namespace, []).append(job)
                self._before[job.job.name] = list(job.usage)

    def lack(self, namespace: str, asked: Sequence[int], *, now: bool) -> str:
        """Return what is too much of these amounts, by column, in words; empty if they are within every limit."""
        found = next(self._exceeded(namespace, asked, now=now), None)
        if found is None:
            return ""
        quota, resource, column, room = found
        had, needed = describe_amount(resource, max(0, room)), describe_amount(resource, asked[column])
        return f"quota {quota} leaves {had} {resource}, {needed} needed"

    def column_over(self, namespace: str, asked: Sequence[int]) -> int | None:
        """Return of what these amounts are too much even once all that leaves is gone; None if of nothing."""
        return next((column for _, _, column, _ in self._exceeded(namespace, asked, now=False)), None)

    def _exceeded(self, namespace: str, asked: Sequence[int], *, now: bool) -> Iterator[tuple[str, str, int, int]]:
        """Yield the limits that do not hold these amounts: quota, resource, its column, what is left."""
        columns = self._shapes.columns
        for quota, resource, left in self._limits.get(namespace, ()):
            column = columns.index(resource) if resource in columns else len(asked)
            amount = asked[column] if column < len(asked) else 0
            if amount <= 0:
                continue
            jobs = self._jobs.get(namespace, ())
            room = left - sum(job.usage[column] - self._before[job.job.name][column] for job in jobs)
            room -= sum(self._freed(job, column) if now else -job.leaving_usage[column] for job in jobs)
            if amount > room:
                yield quota, resource, column, room

    def _freed(self, job: JobDraft, column: int) -> int:
        """What pods that leave in this plan had counted as used by the job."""
        coming = sum(self._amount(job.shapes[pod.role], column) for pod in job.coming)
        return self._before[job.job.name][column] - (job.usage[column] - coming)

    def _amount(self, shape: int, column: int) -> int:
        amounts = self._shapes.amounts[shape]
        return amounts[column] if column < len(amounts) else 0
