"""The planner's working copy of the cluster, on which the phases write one after the other.

Rooms are arrays (`rooms`: free now, free later), jobs are `JobDraft`s.  A trial is made on the draft itself and undone:
`mark` before it, `roll_back` to the mark if it came to nothing, `redo` to have it again.  So a trial costs what it
touches, not a copy of the cluster, and after a plan the draft is rolled back to the snapshot, which the next plan then
brings up to date (`memo`).

Here are the moves; what a draft is made of, and what can be asked of it, is `draft_state`.  Built by `memo`; nothing
here decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from autoscaler.domain import Cause, CreatePod, NodeName, Pod, Reservation, Role, Seat, ServerMove, Tier
from autoscaler.planner.draft_state import DraftState
from autoscaler.planner.working_copy.planned_job import JobDraft, Leaving, Promise


@dataclass(slots=True, kw_only=True, eq=False)
class Draft(DraftState):
    """The working copy with its moves."""

    # Trials.

    def mark(self) -> int:
        """Begin a trial and return the place in the log to which it can be rolled back."""
        self.trial_from = len(self.rooms.log)
        return self.trial_from

    def roll_back(self, mark: int) -> list[Any]:
        """Undo everything since the mark, notes (demands, reservations ...) apart; return what `redo` takes."""
        log = self.rooms.log
        undone = []
        while len(log) > mark:
            entry = log.pop()
            if isinstance(entry[0], JobDraft):
                job, saved = entry
                undone.append((job, job.save()))
                job.restore(saved)
                self.changed_jobs.append(job)
            else:
                at, shape, free, later, surplus = entry
                self.rooms.carry_out(at, shape, -free, -later, -surplus)
                undone.append(entry)
        self.trial_from = mark
        return undone

    def end(self) -> None:
        """Undo everything, for good."""
        log = self.rooms.log
        for entry in reversed(log):
            if isinstance(entry[0], JobDraft):
                entry[0].restore(entry[1])
        self.rooms.undo([entry for entry in log if not isinstance(entry[0], JobDraft)])
        log.clear()

    def redo(self, undone: list[Any]) -> None:
        """Do again what was rolled back."""
        log = self.rooms.log
        for entry in reversed(undone):
            if isinstance(entry[0], JobDraft):
                job, saved = entry
                log.append((job, job.save()))
                job.restore(saved)
                self.changed_jobs.append(job)
            else:
                log.append(entry)
                self.rooms.carry_out(*entry)

    def touch(self, job: JobDraft) -> None:
        """Note the job's state before it changes: once in each trial."""
        if job.touched <= self.trial_from:
            self.rooms.log.append((job, job.save()))
            job.touched = len(self.rooms.log)
            self.stirred.add(job.job.name)

    # Pods that come and go.

    def create(self, job: JobDraft, role: Role, tier: Tier, node: NodeName, cause: Cause) -> None:
        """Create a pod into room that is free now; where its number is still taken, the room is held for it."""
        ordinal = job.free_ordinal(role)
        if ordinal is None:
            self.promise(job, role, tier, node)
            return
        self.touch(job)
        grade = self._counted_grade(job, tier, ordinal)
        self._come(job, role, tier, node, now=True)
        job.ordinals.setdefault(role, set()).add(ordinal)
        pod = CreatePod(job=job.job.name, role=role, ordinal=ordinal, tier=tier, grade=grade, node=node, cause=cause)
        job.created.append(pod)

    def replace_server(self, job: JobDraft, move: ServerMove, *, now: bool) -> None:
        """Create the server in whose favour another one will leave, or hold its room and its number."""
        self.touch(job)
        self._come(job, Role.SERVER, Tier.CORE, move.node, now=now)
        job.ordinals[Role.SERVER].add(move.ordinal)
        if not now:
            job.promised.append(Promise(role=Role.SERVER, tier=Tier.CORE, node=move.node))
            return
        job.created.append(
            CreatePod(
                job=job.job.name,
                role=Role.SERVER,
                ordinal=move.ordinal,
                tier=Tier.CORE,
                node=move.node,
                cause=Cause.DEFRAGMENTATION,
                replaces=move.pod,
            )
        )

    def promise(self, job: JobDraft, role: Role, tier: Tier, node: NodeName) -> None:
        """Hold room, part of which is still being vacated, for a pod that a later plan will create."""
        self.touch(job)
        grade = self._counted_grade(job, tier, next(job.free_ordinals(role)))
        self._come(job, role, tier, node, now=False)
        job.promised.append(Promise(role=role, tier=tier, node=node, grade=grade))

    def _counted_grade(self, job: JobDraft, tier: Tier, ordinal: int) -> int:
        """The grade of surplus where a quota counts grades apart: then it is settled here; elsewhere by `emit`."""
        is_counted = tier is Tier.SURPLUS and self.quotas is not None and self.quotas.asks_for_grades
        return self.grade_at(job, ordinal) if is_counted else 0

    def _come(self, job: JobDraft, role: Role, tier: Tier, node: NodeName, *, now: bool) -> None:
        shape = job.shapes[role]
        is_surplus = role is Role.TRAINER and tier is Tier.SURPLUS
        self.rooms.move(self.rooms.index[node], shape, free=-1 if now else 0, later=-1, surplus=1 if is_surplus else 0)
        self.count(job, shape, times=1)
        self.changed_jobs.append(job)
        if role is Role.TRAINER:
            job.coming_trainers += 1
            job.core += tier is Tier.CORE

    def count(self, job: JobDraft, shape: int, *, times: int) -> None:
        """Add so many pods of a shape to what the job uses."""
        job.thirst = None
        for column, amount in enumerate(self.shapes.amounts[shape]):
            job.usage[column] += times * amount

    def remove(self, job: JobDraft, pods: Iterable[Pod], cause: Cause, beneficiary: str = "") -> None:
        """Tell pods of a job to leave."""
        self.touch(job)
        for pod in pods:
            shape = self.shapes.number(pod.shape)
            is_surplus = False
            for standing in (job.trainers, job.servers, job.masters):
                if pod in standing:
                    standing.remove(pod)
                    self.count(job, shape, times=-1)
                    is_surplus = standing is job.trainers and pod.tier is Tier.SURPLUS
                    job.core -= standing is job.trainers and pod.tier is Tier.CORE
            job.leaving.append(Leaving(pod=pod, cause=cause, beneficiary=beneficiary))
            if (at := self.rooms.place_of(pod)) is not None:
                self.rooms.move(at, shape, later=1, surplus=-1 if is_surplus else 0)
        self._forget_order(job)

    def withdraw(self, job: JobDraft) -> None:
        """Take back everything that this plan would create for the job."""
        self.touch(job)
        for created in job.created:
            job.ordinals[created.role].discard(created.ordinal)
            job.free_from.clear()
        for coming in job.coming:
            shape, now = job.shapes[coming.role], isinstance(coming, CreatePod)
            is_surplus = coming.role is Role.TRAINER and coming.tier is Tier.SURPLUS
            self.rooms.move(
                self.rooms.index[coming.node], shape, free=int(now), later=1, surplus=-1 if is_surplus else 0
            )
            self.count(job, shape, times=-1)
            job.core -= coming.role is Role.TRAINER and coming.tier is Tier.CORE
        job.thirst = None
        job.created.clear()
        job.promised.clear()
        job.coming_trainers = 0

    def shrink(self, job: JobDraft, pods: Iterable[Pod], cause: Cause, beneficiary: str = "") -> None:
        """Take trainers away, and as many more as make a whole step: an odd trainer is of no use to the job."""
        self.remove(job, pods, cause, beneficiary)
        trainer = job.job.trainer
        extra = len(job.trainers) - trainer.largest_allowed(len(job.trainers))
        if extra > 0:
            self.remove(job, self.last_in_line(job)[:extra], cause, beneficiary)

    def _forget_order(self, job: JobDraft) -> None:
        job.line, job.offers, job.thirst = None, {}, None
        self.changed_jobs.append(job)

    def reserve(self, job: JobDraft, seats: Iterable[tuple[Role, NodeName]]) -> None:
        """Remember the seats for which room is being made, so that the next plan finds the same ones."""
        noted = tuple(Seat(role=role, node=node) for role, node in seats)
        self.reservations.append(Reservation(job=job.job.name, seats=noted))
