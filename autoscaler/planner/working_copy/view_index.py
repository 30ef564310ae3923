"""P0: the view as arrays and jobs, from which the working copy begins.

Every pod on a node occupies it, terminating ones included (`beside-the-scheduler.md` 13), and a nominated pod occupies
the node where it is nominated. A pod on a node that is not ready, or gone, occupies there and does not count as size.
Here the index is made from nothing; `memo` brings the last one up to date, which gives the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from math import inf, lcm
from typing import Any

from autoscaler.domain import ClusterView, Fairness, Job, JobName, Pod, PodName, PodPhase, Role, Shape, Tier
from autoscaler.planner.working_copy.free_capacity import FreeCapacity
from autoscaler.planner.working_copy.job_speed import worthwhile_size
from autoscaler.planner.working_copy.parts import Parts
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.shapes import Shapes, offered_by, unit_of

UNBOUND = (PodPhase.PENDING, PodPhase.GATED)


class ViewIndex:
    """All that the phases start from. `jobs` are as the view has them: nothing is planned yet."""

    def __init__(
        self, view: ClusterView, *, more_shapes: Iterable[Shape] = (), fairness: Fairness = Fairness.JOB
    ) -> None:
        self.view = view
        self.fairness = fairness
        self.shapes = Shapes(offered_by(view.nodes))
        self.members: dict[JobName, dict[PodName, Pod]] = {}
        self.waiting: dict[PodName, Pod] = {}  # unbound external pods, and masters that the cluster replaces
        self.unbound_core: dict[PodName, Pod] = {}
        self.preempted: dict[PodName, JobName] = {}
        self.pod_count_by_workload: Counter[str | None] = Counter()  # external pods by workload, terminating ones apart
        self.surplus_owners: dict[int, list[JobName | None]] = {}  # by node: the job of each surplus trainer
        self.newest_other_s = -inf
        self.newest_others = 0  # number of external pods created at that instant
        self.unsteady: dict[JobName, PlannedJob] = {}
        self.by_trainer: dict[int, list[PlannedJob]] = {}
        self.growable: dict[int, list[PlannedJob]] = {}
        self.growth_lines: dict[int, Sequence[PlannedJob]] = {}
        self.lasting: dict[tuple[type, Hashable], Any] = {}  # of the last plan's `PlanCache`
        number_shapes(self.shapes, view)
        for shape in more_shapes:
            self.shapes.number(shape)
        self.shapes.numbers_of(view.pods)
        self.capacity = FreeCapacity(view.nodes, self.shapes, pod_count=len(view.pods))
        self._occupy(view.pods)
        for pod in view.pods:
            self.add_pod(pod)
        self.jobs: dict[JobName, PlannedJob] = {}
        self.newest_job_s = -inf
        self.share_unit = 1
        self.parts = Parts()
        self.rebuild_jobs({job.name for job in view.jobs})
        self.rate_jobs()
        self.divide_into_parts()

    def _occupy(self, pods: Iterable[Pod]) -> None:
        """Subtract the requests of all pods at once."""
        capacity = self.capacity
        gated, terminating = PodPhase.GATED, PodPhase.TERMINATING
        standing = [
            pod for pod in pods if pod.phase is not gated and (pod.node or pod.nominated_node) in capacity.index
        ]
        leaving = [pod for pod in standing if pod.phase is terminating]
        capacity.add_many(capacity.free, *self._where(standing), times=-1)
        capacity.later[:] = capacity.free
        capacity.add_many(capacity.later, *self._where(leaving), times=1)

    def _where(self, pods: Sequence[Pod]) -> tuple[list[int], list[int]]:
        """Return nodes and shapes of pods that have a node."""
        index = self.capacity.index
        places = [index[pod.node or pod.nominated_node] for pod in pods]  # type: ignore[index]  # they have a node
        return places, self.shapes.numbers_of(pods)

    def needs_rebuild(self) -> bool:
        """True if there are resources, amounts, shapes or pods for which the arrays were not made."""
        capacity, shapes = self.capacity, self.shapes
        return (
            len(shapes.columns) > len(capacity.columns)
            or not capacity.can_hold(shapes.largest)
            or len(shapes) > capacity.shape_limit
            or len(self.view.pods) > capacity.pod_limit
        )

    def replace_pod(self, before: Pod | None, after: Pod | None) -> None:
        """Account for one pod that went, came or changed. Its job is rebuilt by `rebuild_jobs`."""
        for pod, times in ((before, 1), (after, -1)):
            if pod is None:
                continue
            number, at = self.shapes.number(pod.shape), self.capacity.place_of(pod)
            if len(self.shapes.columns) > len(self.capacity.columns) or not self.capacity.can_hold(self.shapes.largest):
                return  # outgrown
            if at is not None and pod.phase is not PodPhase.GATED:
                is_staying = pod.phase is not PodPhase.TERMINATING
                self.capacity.carry_out(at, number, times, times if is_staying else 0, 0)
        if before is not None:
            self.remove_pod(before)
        if after is not None:
            self.add_pod(after)

    def find_newest_other(self) -> None:
        """Find the newest external pod again if the last of those that came then has gone."""
        if self.newest_others < 1:
            arrivals = [pod.created_at_s for pod in self.view.pods if pod.job is None]
            self.newest_other_s = max(arrivals, default=-inf)
            self.newest_others = arrivals.count(self.newest_other_s)

    def remove_pod(self, pod: Pod) -> None:
        """Undo `add_pod`; to be followed by `find_newest_other`."""
        self.waiting.pop(pod.name, None)
        if pod.job is not None:
            del self.members[pod.job][pod.name]
            self.unbound_core.pop(pod.name, None)
            self.preempted.pop(pod.name, None)
            return
        if pod.phase is not PodPhase.TERMINATING:
            self.pod_count_by_workload[pod.workload] -= 1
        self.newest_others -= pod.created_at_s == self.newest_other_s

    def add_pod(self, pod: Pod) -> None:
        """Enter a pod in the indices."""
        is_external = pod.role not in {Role.TRAINER, Role.SERVER}  # so is a master that the cluster replaces
        if is_external and pod.phase is PodPhase.PENDING and pod.place is None:
            self.waiting[pod.name] = pod
        if pod.job is not None:
            self.members.setdefault(pod.job, {})[pod.name] = pod
            if pod.tier is Tier.CORE and pod.phase in UNBOUND:
                self.unbound_core[pod.name] = pod
            if pod.is_preempted:
                self.preempted[pod.name] = pod.job
            return
        if pod.phase is not PodPhase.TERMINATING:
            self.pod_count_by_workload[pod.workload] += 1
        if pod.created_at_s > self.newest_other_s:
            self.newest_other_s, self.newest_others = pod.created_at_s, 0
        self.newest_others += pod.created_at_s == self.newest_other_s

    def rebuild_jobs(self, names: Iterable[JobName]) -> None:
        """Rebuild these jobs; other jobs of the view stay as they are."""
        old, wanted = self.jobs, set(names)
        self.newest_job_s = max((job.submitted_at_s for job in self.view.jobs), default=-inf)
        gone = [planned for name, planned in old.items() if name in wanted]
        self.jobs = {
            job.name: old[job.name] if job.name in old and job.name not in wanted else self._build(job)
            for job in self.view.jobs
        }
        for planned in gone:
            if planned.spec.name in self.jobs:
                self.jobs[planned.spec.name].rates = planned.rates
                self.jobs[planned.spec.name].progress = planned.progress
        self.unsteady = {name: planned for name, planned in self.jobs.items() if not planned.is_steady}
        self.by_trainer, self.growable, self.growth_lines = {}, {}, {}
        for planned in self.jobs.values():
            self.by_trainer.setdefault(planned.shapes[Role.TRAINER], []).append(planned)
            if planned.can_grow:
                self.growable.setdefault(planned.shapes[Role.TRAINER], []).append(planned)
        gone += [planned for name, planned in old.items() if name not in self.jobs and name not in wanted]
        self._count_surplus(gone, times=-1)
        self._count_surplus([self.jobs[name] for name in wanted if name in self.jobs], times=1)

    def _count_surplus(self, jobs: Iterable[PlannedJob], *, times: int) -> None:
        """Add what the surplus of these jobs holds to the nodes, or take it away."""
        index, surplus = self.capacity.index, Tier.SURPLUS
        held = [
            pod
            for job in jobs
            for pod in job.trainers
            if pod.tier is surplus and (pod.node or pod.nominated_node) in index
        ]
        places, shapes = self._where(held)
        for at, pod in zip(places, held, strict=True):
            if times > 0:
                self.surplus_owners.setdefault(at, []).append(pod.job)
            else:
                self.surplus_owners[at].remove(pod.job)
        self.capacity.add_many(self.capacity.surplus, places, shapes, times=times)

    def _build(self, job: Job) -> PlannedJob:
        """Sort a job's pods by role and state, and add them up."""
        planned = PlannedJob(spec=job, shapes=shapes_of(self.shapes, job), ceiling=job.trainer.ceiling)
        planned.worthwhile = worthwhile_size(job)
        elastic = job.servers if self.view.capabilities.servers_elastic else None
        planned.server_limit = job.server_count if elastic is None else elastic.max_replicas
        planned.trainer_amounts = self.capacity.request_amounts(planned.shapes[Role.TRAINER])
        members = self.members.get(job.name, {})
        for name in sorted(members):
            self._count_in(planned, members[name])
        planned.usage = self._sum_of([*planned.trainers, *planned.servers, *planned.masters])
        planned.leaving_usage = self._sum_of([pod for pod in members.values() if pod.phase is PodPhase.TERMINATING])
        planned.now = len(planned.trainers)
        planned.servers_now = len(planned.servers)
        planned.core = [pod.tier for pod in planned.trainers].count(Tier.CORE)
        planned.is_running = bool(planned.trainers or planned.servers or planned.masters)
        planned.classify(self.view.capabilities)
        return planned

    def _sum_of(self, pods: Sequence[Pod]) -> list[int]:
        """Return the sum of pods' requests, by column."""
        total = [0] * len(self.capacity.columns)
        for number, count in Counter(self.shapes.numbers_of(pods)).items():
            for column, amount in enumerate(self.shapes.amounts[number]):
                total[column] += count * amount
        return total

    def _count_in(self, planned: PlannedJob, pod: Pod) -> None:
        role, phase = pod.role, pod.phase
        planned.ordinals[role].add(pod.ordinal)
        if phase is PodPhase.TERMINATING:
            return
        place = pod.node or pod.nominated_node
        if phase is PodPhase.GATED or (place is not None and place not in self.capacity.ready):
            planned.inactive.append(pod)  # nowhere, or on a node that is lost
        elif role is Role.TRAINER:
            planned.trainers.append(pod)
        elif role is Role.SERVER:
            planned.servers.append(pod)
        else:
            planned.masters.append(pod)

    def rate_jobs(self) -> None:
        """Set the unit of shares, in which each job's share is an integer (ADR 0112), and each job's rates."""
        capacity = self.capacity
        capacities = {
            shape: capacity.ready_capacity_of(shape)
            for shape in {planned.shapes[Role.TRAINER] for planned in self.jobs.values()}
        }
        scales = {(capacities[planned.shapes[Role.TRAINER]], planned.spec.weight) for planned in self.jobs.values()}
        parts = {held * weight for held_by, weight in scales for held in held_by if held > 0}
        self.share_unit = lcm(*parts)
        rates = {
            (held_by, weight): tuple(self.share_unit // (held * weight) if held > 0 else 0 for held in held_by)
            for held_by, weight in scales
        }
        self.growth_lines = {}
        for planned in self.jobs.values():
            planned.forget_share()
            planned.rates = rates[(capacities[planned.shapes[Role.TRAINER]], planned.spec.weight)]
        self.parts.forget()

    def divide_into_parts(self) -> None:
        """Under `Fairness.PROGRESS` give each job its scale, by the parts of the jobs as the view has them."""
        if self.fairness is Fairness.PROGRESS and self.parts.divide(self.jobs.values(), self.share_unit):
            self.growth_lines.clear()


def number_shapes(shapes: Shapes, view: ClusterView) -> None:
    """Number the shapes of all that may yet be created: those of jobs and workloads."""
    for job in view.jobs:
        shapes_of(shapes, job)
        if job.trainer.per_node > 1:
            shapes.number(unit_of(job.trainer))
    for workload in view.workloads:
        shapes.number(workload.shape)


def shapes_of(shapes: Shapes, job: Job) -> dict[Role, int]:
    """Return the numbers of the shapes of a job's new pods, by role."""
    numbers = {Role.TRAINER: shapes.number(job.trainer.shape), Role.MASTER: shapes.number(job.master.shape)}
    if job.servers is not None:
        numbers[Role.SERVER] = shapes.number(job.servers.shape)
    return numbers
