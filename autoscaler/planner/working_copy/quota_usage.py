"""ResourceQuota usage: what a namespace may still request before the API server refuses it.

As with free capacity there are two amounts. *Now* is the hard limit less what is used: a pod created within it is
accepted. *Later* counts pods that are leaving as gone. A quota counts pods from creation until they are gone, whoever
made them (`beside-the-scheduler.md` 9 and 19), so what is used comes from the cluster; what this plan adds and
removes, and what was leaving before, is counted from the jobs. Several quotas of a namespace hold at once, each for
the pods that it counts: all, or those of some classes (ADR 0116).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

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


class QuotaUsage:
    """The quotas of a view, and what its jobs used when the plan began."""

    def __init__(self, view: ClusterView, shapes: Shapes, jobs: Iterable[PlannedJob], grades: Grades) -> None:
        self.asks_for_grades = not all(quota.counts_all for quota in view.quotas)
        self._grades = grades
        self._shapes = shapes
        self._pods = view.pods
        self._left_before: dict[JobName, list[Pod]] | None = None  # once asked for
        self._limits: dict[str, list[tuple[Quota, str, int]]] = {}  # by namespace: quota, resource, what is left
        for quota in view.quotas:
            limits = self._limits.setdefault(quota.namespace, [])
            limits += [(quota, limit.resource, limit.hard - limit.used) for limit in quota.limits]
        self._jobs: dict[str, list[PlannedJob]] = {}
        self._before: dict[JobName, list[int]] = {}
        for job in jobs if self._limits else ():
            if job.spec.namespace in self._limits:
                self._jobs.setdefault(job.spec.namespace, []).append(job)
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
        for quota, resource, left in self._limits.get(job.spec.namespace, ()):
            if resource not in columns:
                continue
            column = columns.index(resource)
            counted = (role for role, grade in pods if quota.counts_all or quota.counts(job.spec, role, grade))
            needed = sum(self._amount(job.shapes[role], column) for role in counted)
            if needed <= 0:
                continue
            remaining = left - self._taken(quota, job.spec.namespace, column, now=now)
            if needed > remaining:
                yield QuotaExcess(quota=quota, resource=resource, column=column, remaining=remaining, needed=needed)

    def _taken(self, quota: Quota, namespace: str, column: int, *, now: bool) -> int:
        """Return what this plan has added to the used amount of a quota; later: less what leaves."""
        jobs = self._jobs.get(namespace, ())
        if not quota.counts_all:
            return sum(self._counted(quota, job, column, now=now) for job in jobs)
        if now:
            return sum(self._amount(job.shapes[pod.role], column) for job in jobs for pod in job.coming)
        return sum(job.usage[column] - self._before[job.spec.name][column] - job.leaving_usage[column] for job in jobs)

    def _counted(self, quota: Quota, job: PlannedJob, column: int, *, now: bool) -> int:
        """Return the same for one job and a quota that counts only some pods."""
        coming = (pod for pod in job.coming if quota.counts(job.spec, pod.role, pod.grade))
        taken = sum(self._amount(job.shapes[pod.role], column) for pod in coming)
        if now:
            return taken
        leaving = [leaving.pod for leaving in job.leaving] + self._leaving_before().get(job.spec.name, [])
        counted = (pod for pod in leaving if quota.counts(job.spec, pod.role, grade_of_pod(pod)))
        return taken - sum(self._amount(self._shapes.number(pod.shape), column) for pod in counted)

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
