"""The planner's working copy of the cluster, on which the phases write one after the other.

Nodes are arrays (`capacity`: free now, and free once what is leaving has left), jobs are `PlannedJob`s, and other
results are in `plan_records`.  A phase tries a change on the copy itself: `mark` before the trial, `roll_back` undoes
a failed one, `redo` repeats it.  So a trial costs
what it touches, and after a plan the copy is rolled back to the view, which the next plan brings up to date (`memo`).

The methods move pods and undo moves; none of them decides.  Which trainers of a job leave first is `ranks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autoscaler.domain import (
    NO_BENEFICIARY,
    Beneficiary,
    Cause,
    ClusterView,
    CreatePod,
    History,
    JobName,
    NodeName,
    Pod,
    Policy,
    Role,
    ServerMove,
    Tier,
)
from autoscaler.planner.working_copy.free_capacity import FreeCapacity
from autoscaler.planner.working_copy.grades import Grades
from autoscaler.planner.working_copy.offers import cut_out
from autoscaler.planner.working_copy.parts import Parts
from autoscaler.planner.working_copy.plan_records import CarriedOver, ExternalDemand, PlanCache
from autoscaler.planner.working_copy.planned_job import Leaving, PlannedJob, ReservedPod
from autoscaler.planner.working_copy.quota_usage import QuotaUsage
from autoscaler.planner.working_copy.shapes import Shapes


@dataclass(slots=True, kw_only=True, eq=False)
class WorkingCopy:
    """One plan's copy of the cluster.  Built by `memo`."""

    view: ClusterView
    policy: Policy
    now_s: float
    shapes: Shapes
    capacity: FreeCapacity
    jobs: Mapping[JobName, PlannedJob]  # in the order of their names
    by_trainer: Mapping[int, Sequence[PlannedJob]]  # jobs by the shape of their trainers
    growable: Mapping[int, Sequence[PlannedJob]]  # those that lack nothing but capacity in the view, likewise
    growth_lines: dict[int, Sequence[PlannedJob]]  # those, sorted on demand (`growth_queue`)
    dirty: set[JobName]  # jobs that were not steady in the view, and those that this plan has touched
    share_unit: int  # shares count in parts of one by this
    parts: Parts
    surplus_owners: Mapping[int, Sequence[JobName | None]]  # the job of each surplus trainer in the view, by node
    changed_jobs: list[PlannedJob]  # whose pods came or went, again and again
    quotas: QuotaUsage
    grades: Grades
    external: ExternalDemand
    carried: CarriedOver
    cache: PlanCache
    is_gang_binding: bool = False  # core pods of a recent start are still without a node
    burst_until_s: float = 0.0  # until then further submissions are expected
    quiet_from_s: float = 0.0  # end of the quiet window after the newest submission or external pod
    starts: list[JobName] = field(default_factory=list)  # gangs that this plan starts, the first first
    unpaid: set[JobName] = field(default_factory=set)  # whose growth would not pay off
    whole: set[JobName] = field(default_factory=set)  # whose growth pays off only in one resize: it comes together
    wake_at_s: list[float] = field(default_factory=list)  # instants at which time alone may change the answer
    trial_from: int = 0  # where in the log the present trial begins

    @property
    def history(self) -> History:
        """History of earlier plans."""
        return self.view.history

    @property
    def moves_servers(self) -> bool:
        """True if servers may go to another node: the adapter can do it, and the policy wants it."""
        can, policy = self.view.capabilities, self.policy
        is_wanted = policy.server_moves_per_minute > 0 or policy.server_moves_percent_per_minute > 0
        return is_wanted and can.moves_servers and can.servers_elastic

    def dirty_jobs(self) -> list[PlannedJob]:
        """Jobs in name order, without those that were steady in the view and that this plan has not touched.

        Of those that are left out all pods stay and nothing comes: most phases have nothing to do there.
        """
        return [self.jobs[name] for name in sorted(self.dirty)]

    def is_due(self, at_s: float) -> bool:
        """True if the instant has come; if not, the next plan is made then at the latest."""
        if self.now_s >= at_s:
            return True
        self.wake_at_s.append(at_s)
        return False

    def on_empty_nodes(self) -> WorkingCopy:
        """Return a copy with the same jobs and with no pods on the nodes, to ask what an empty cluster would hold."""
        return replace(self, capacity=self.capacity.emptied(), cache=PlanCache())

    # Trials.

    def mark(self) -> int:
        """Begin a trial and return the place in the log to which it can be rolled back."""
        self.trial_from = len(self.capacity.log)
        return self.trial_from

    def roll_back(self, mark: int) -> list[Any]:
        """Undo all moves since the mark, not the records (demands, reservations ...); return what `redo` takes."""
        log = self.capacity.log
        undone = []
        while len(log) > mark:
            entry = log.pop()
            if isinstance(entry[0], PlannedJob):
                job, saved = entry
                undone.append((job, job.save()))
                job.restore(saved)
                self.changed_jobs.append(job)
            else:
                at, shape, free, later, surplus = entry
                self.capacity.carry_out(at, shape, -free, -later, -surplus)
                undone.append(entry)
        self.trial_from = mark
        return undone

    def redo(self, undone: list[Any]) -> None:
        """Do again what was rolled back."""
        log = self.capacity.log
        for entry in reversed(undone):
            if isinstance(entry[0], PlannedJob):
                job, saved = entry
                log.append((job, job.save()))
                job.restore(saved)
                self.changed_jobs.append(job)
            else:
                log.append(entry)
                self.capacity.carry_out(*entry)

    def end(self) -> None:
        """Undo everything; `redo` cannot repeat it."""
        log = self.capacity.log
        for entry in reversed(log):
            if isinstance(entry[0], PlannedJob):
                entry[0].restore(entry[1])
        self.capacity.undo([entry for entry in log if not isinstance(entry[0], PlannedJob)])
        log.clear()

    def touch(self, job: PlannedJob) -> None:
        """Save the job's state before it changes: once in each trial."""
        if job.touched <= self.trial_from:
            self.capacity.log.append((job, job.save()))
            job.touched = len(self.capacity.log)
            self.dirty.add(job.spec.name)

    # Pods that come and go.

    def create(self, job: PlannedJob, role: Role, tier: Tier, node: NodeName, cause: Cause) -> None:
        """Create a pod into capacity that is free now; if its ordinal is still taken, reserve the capacity."""
        ordinal = job.free_ordinal(role)
        if ordinal is None:
            self.reserve(job, role, tier, node)
            return
        self.touch(job)
        grade = self._counted_grade(job, tier, ordinal)
        self._add(job, role, tier, node, now=True)
        job.ordinals.setdefault(role, set()).add(ordinal)
        pod = CreatePod(job=job.spec.name, role=role, ordinal=ordinal, tier=tier, grade=grade, node=node, cause=cause)
        job.created.append(pod)

    def reserve(self, job: PlannedJob, role: Role, tier: Tier, node: NodeName) -> None:
        """Reserve capacity, part of which is still being vacated, for a pod that a later plan creates."""
        self.touch(job)
        grade = self._counted_grade(job, tier, next(job.free_ordinals(role)))
        self._add(job, role, tier, node, now=False)
        job.reserved.append(ReservedPod(role=role, tier=tier, node=node, grade=grade))

    def replace_server(self, job: PlannedJob, move: ServerMove, *, now: bool) -> None:
        """Create the server in whose favour another one will leave, or reserve its capacity and its ordinal."""
        self.touch(job)
        self._add(job, Role.SERVER, Tier.CORE, move.node, now=now)
        job.ordinals[Role.SERVER].add(move.ordinal)
        if not now:
            job.reserved.append(ReservedPod(role=Role.SERVER, tier=Tier.CORE, node=move.node))
            return
        job.created.append(
            CreatePod(
                job=job.spec.name,
                role=Role.SERVER,
                ordinal=move.ordinal,
                tier=Tier.CORE,
                node=move.node,
                cause=Cause.DEFRAGMENTATION,
                replaces=move.pod,
            )
        )

    def remove(
        self, job: PlannedJob, pods: Iterable[Pod], cause: Cause, beneficiary: Beneficiary = NO_BENEFICIARY
    ) -> None:
        """Remove pods of a job; their capacity is free later."""
        self.touch(job)
        gone = list(pods)
        names = {pod.name for pod in gone}
        stood = {name for staying in (job.trainers, job.servers, job.masters) for name in cut_out(staying, names)}
        for pod in gone:
            shape = self.shapes.number(pod.shape)
            is_trainer = pod.role is Role.TRAINER and pod.name in stood
            if pod.name in stood:
                self._count(job, shape, times=-1)
            job.core -= is_trainer and pod.tier is Tier.CORE
            job.leaving.append(Leaving(pod=pod, cause=cause, beneficiary=beneficiary))
            if (at := self.capacity.place_of(pod)) is not None:
                is_surplus = is_trainer and pod.tier is Tier.SURPLUS
                self.capacity.move(at, shape, later=1, surplus=-1 if is_surplus else 0)
        job.forget_removal_order(gone)
        job.growth_key = None
        self.changed_jobs.append(job)

    def withdraw(self, job: PlannedJob) -> None:
        """Cancel all creations of this plan for the job."""
        self.touch(job)
        for created in job.created:
            job.ordinals[created.role].discard(created.ordinal)
            job.free_from.clear()
        for coming in job.coming:
            shape, now = job.shapes[coming.role], isinstance(coming, CreatePod)
            is_surplus = coming.role is Role.TRAINER and coming.tier is Tier.SURPLUS
            at = self.capacity.index[coming.node]
            self.capacity.move(at, shape, free=int(now), later=1, surplus=-1 if is_surplus else 0)
            self._count(job, shape, times=-1)
            job.core -= coming.role is Role.TRAINER and coming.tier is Tier.CORE
        job.growth_key = None
        job.created.clear()
        job.reserved.clear()
        job.coming_trainers = 0
        self.changed_jobs.append(job)

    def _counted_grade(self, job: PlannedJob, tier: Tier, ordinal: int) -> int:
        """Return the grade of surplus where a quota counts grades apart; elsewhere P7 gives it."""
        return self.grades.grade_at(job, ordinal) if tier is Tier.SURPLUS and self.quotas.asks_for_grades else 0

    def _add(self, job: PlannedJob, role: Role, tier: Tier, node: NodeName, *, now: bool) -> None:
        shape = job.shapes[role]
        is_surplus = role is Role.TRAINER and tier is Tier.SURPLUS
        at = self.capacity.index[node]
        self.capacity.move(at, shape, free=-1 if now else 0, later=-1, surplus=1 if is_surplus else 0)
        self._count(job, shape, times=1)
        self.changed_jobs.append(job)
        if role is Role.TRAINER:
            job.coming_trainers += 1
            job.core += tier is Tier.CORE

    def _count(self, job: PlannedJob, shape: int, *, times: int) -> None:
        """Add pods of a shape to what the job uses, or subtract them."""
        job.growth_key = None
        for column, amount in enumerate(self.shapes.amounts[shape]):
            job.usage[column] += times * amount
