"""ResourceQuota usage: what a namespace may still request before the API server refuses it.

As with free capacity there are two amounts. *Now* is the hard limit less what is used: a pod created within it is
accepted. *Later* counts pods that are leaving as gone. A quota counts pods from creation until they are gone, whoever
made them (`beside-the-scheduler.md` 9 and 19), so what is used comes from the cluster; what this plan adds and
removes, and what was leaving before, is counted from the jobs. Several quotas of a namespace hold at once, each for
the pods that it counts: all, or those of some classes (ADR 0116). What a job counts for is summed again only when the
job has changed: a plan asks for each of a thousand jobs whether its namespace has room for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from autoscaler.domain import ClusterView, JobName, Pod, PodPhase, Quota, Role
from autoscaler.planner.formatting import describe_amount
from autoscaler.planner.working_copy.grades import Grades, grade_of_pod
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.shapes import Shapes

NewPod = tuple[Role, int]
"""A pod that may come: its role, and its grade if it is surplus; 0: core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaExcess:
    """A quota limit that is too small for the requested pods. `remaining`: of its amount."""

    quota: Quota
    resource: str
    column: int
    remaining: int
    needed: int

    def __str__(self) -> str:
        had, needed = (
            describe_amount(self.resource, max(0, self.remaining)),
            describe_amount(self.resource, self.needed),
        )
        return f"quota {self.quota.name} leaves {had} {self.resource}, {needed} needed"

    def counts(self, job: PlannedJob, pod: Pod) -> bool:
        """True if the pod counts against the limit, so that its end makes the excess smaller."""
        return self.quota.counts(job.spec, pod.role, grade_of_pod(pod))


@dataclass(slots=True, kw_only=True)
class _Limit:
    """One resource of a quota: what it leaves by the cluster, and what the jobs' changes in this plan take of that."""

    quota: Quota
    resource: str
    left: int
    taken_now: int = 0
    taken_later: int = 0
    by_job: dict[JobName, tuple[int, int]] = field(default_factory=dict)  # each job's part of both

    def count(self, job: JobName, part: tuple[int, int]) -> None:
        """Replace the job's part."""
        now, later = self.by_job.get(job, (0, 0))
        self.taken_now += part[0] - now
        self.taken_later += part[1] - later
        self.by_job[job] = part


class QuotaUsage:
    """The quotas of a view, and what its jobs used when the plan began.

    `changed`: a log, to which each job is added whenever a pod of it comes or goes.
    """

    def __init__(
        self,
        view: ClusterView,
        shapes: Shapes,
        jobs: Iterable[PlannedJob],
        grades: Grades,
        changed: Sequence[PlannedJob],
    ) -> None:
        self.asks_for_grades = not all(quota.counts_all for quota in view.quotas)
        self._grades = grades
        self._shapes = shapes
        self._pods = view.pods
        self._left_before: dict[JobName, list[Pod]] | None = None  # once asked for
        self._limits: dict[str, list[_Limit]] = {}  # by namespace
        for quota in view.quotas:
            limits = self._limits.setdefault(quota.namespace, [])
            limits += [
                _Limit(quota=quota, resource=limit.resource, left=limit.hard - limit.used) for limit in quota.limits
            ]
        self._changed = changed
        self._seen = len(changed)
        self._stale: dict[str, dict[JobName, PlannedJob]] = {}  # by namespace: jobs whose part is to be counted again
        self._before: dict[JobName, list[int]] = {}
        for job in jobs if self._limits else ():
            if job.spec.namespace in self._limits:
                self._stale.setdefault(job.spec.namespace, {})[job.spec.name] = job
                self._before[job.spec.name] = list(job.usage)

    @property
    def has_limits(self) -> bool:
        """True if there is any quota."""
        return bool(self._limits)

    def find_problem(self, job: PlannedJob, roles: Iterable[Role], *, now: bool) -> str:
        """Return the limit that is too small for new pods of these roles, as text; empty if none is."""
        if not self._limits:
            return ""
        found = self.excess(job, self.new_pods(job, roles), now=now)
        return "" if found is None else str(found)

    def new_pods(self, job: PlannedJob, roles: Iterable[Role]) -> list[NewPod]:
        """Return what new pods of these roles would be: core while the job lacks core trainers, then surplus."""
        lacking, ordinals = job.spec.trainer.min_replicas - job.core, job.free_ordinals(Role.TRAINER)
        found: list[NewPod] = []
        for role in roles:
            grade = 0
            if role is Role.TRAINER:
                ordinal, lacking = next(ordinals), lacking - 1
                if lacking < 0:
                    grade = self._grades.grade_at(job, ordinal) if self.asks_for_grades else 1
            found.append((role, grade))
        return found

    def excess(self, job: PlannedJob, pods: Sequence[NewPod], *, now: bool) -> QuotaExcess | None:
        """Return the first limit that does not hold these pods, `now` or once all that leaves is gone."""
        return next(self._exceeded(job, pods, now=now), None)

    def _exceeded(self, job: PlannedJob, pods: Sequence[NewPod], *, now: bool) -> Iterator[QuotaExcess]:
        columns = self._shapes.columns
        for limit in self._limits.get(job.spec.namespace, ()):
            quota, resource = limit.quota, limit.resource
            if resource not in columns:
                continue
            column = columns.index(resource)
            counted = (role for role, grade in pods if quota.counts_all or quota.counts(job.spec, role, grade))
            needed = sum(self._amount(job.shapes[role], column) for role in counted)
            if needed <= 0:
                continue
            self._count_changed(job.spec.namespace)
            remaining = limit.left - (limit.taken_now if now else limit.taken_later)
            if needed > remaining:
                yield QuotaExcess(quota=quota, resource=resource, column=column, remaining=remaining, needed=needed)

    def _count_changed(self, namespace: str) -> None:
        """Bring the limits of the namespace up to date with its jobs."""
        for job in self._changed[self._seen :]:
            if job.spec.namespace in self._limits:
                self._stale.setdefault(job.spec.namespace, {})[job.spec.name] = job
        self._seen = len(self._changed)
        columns = self._shapes.columns
        for job in self._stale.pop(namespace, {}).values():
            for limit in self._limits[namespace]:
                if limit.resource in columns:
                    limit.count(job.spec.name, self.part_of(limit.quota, job, columns.index(limit.resource)))

    def part_of(self, quota: Quota, job: PlannedJob, column: int) -> tuple[int, int]:
        """Return what this plan has added for the job to the used amount of a quota; later: less what leaves."""
        is_all = quota.counts_all
        coming = (pod for pod in job.coming if is_all or quota.counts(job.spec, pod.role, pod.grade))
        taken = sum(self._amount(job.shapes[pod.role], column) for pod in coming)
        if is_all:
            return taken, job.usage[column] - self._before[job.spec.name][column] - job.leaving_usage[column]
        leaving = [leaving.pod for leaving in job.leaving] + self._leaving_before().get(job.spec.name, [])
        counted = (pod for pod in leaving if quota.counts(job.spec, pod.role, grade_of_pod(pod)))
        return taken, taken - sum(self._amount(self._shapes.number(pod.shape), column) for pod in counted)

    def _leaving_before(self) -> dict[JobName, list[Pod]]:
        """Return the pods that were leaving when the plan began, by their jobs."""
        if self._left_before is None:
            self._left_before = {}
            for pod in self._pods:
                if pod.job is not None and pod.phase is PodPhase.TERMINATING:
                    self._left_before.setdefault(pod.job, []).append(pod)
        return self._left_before

    def _amount(self, shape: int, column: int) -> int:
        amounts = self._shapes.amounts[shape]
        return amounts[column] if column < len(amounts) else 0
