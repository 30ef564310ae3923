"""P4, last resort: a waiting gang takes whole running jobs of lower priority (`Policy.preempts_jobs`; off by default).

Asked only when all surplus that the gang may take does not make it room.  One job is enough wherever one is: the lowest
priority first, then the one whose checkpoint is freshest, which loses least.  Where several are, none leaves in vain.
A job that is taken leaves whole, its servers and master too, and queues again; nothing is taken from a job of the same
priority or above.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, isnan

from autoscaler.domain import (
    Admission,
    Bottleneck,
    Cause,
    JobState,
    NodeName,
    Role,
)
from autoscaler.planner.placement.core_placement import (
    Force,
    Seats,
    core_of,
    seat_all,
    seat_by_force,
    seat_on,
)
from autoscaler.planner.placement.reclaimable import price_of
from autoscaler.planner.working_copy.node_arrays import Mask
from autoscaler.planner.working_copy.planned_job import JobDraft
from autoscaler.planner.working_copy.ranks import full_rank
from autoscaler.planner.working_copy.working_copy import Draft


def preempted_seats(draft: Draft, job: JobDraft, avoid: Mask | None, *, spare_priority: int | None) -> Seats | None:
    """Take the room of jobs of lower priority, and surplus; None if even that is too little.  Work on a trial."""
    if not draft.policy.preempts_jobs:
        return None
    gang = Gang(draft=draft, job=job, avoid=avoid, spare_priority=spare_priority)
    lower = lower_jobs(draft, job)
    if not lower or not gang.fits_without(lower):  # the answer of most plans, at the price of one trial
        return None
    victims = next(filter(gang.fits_without, choices(lower)))
    return gang.seats_without(needed_of(gang, victims))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """The gang that waits, and the room that it may take."""

    draft: Draft
    job: JobDraft
    avoid: Mask | None
    spare_priority: int | None

    def seats_without(self, victims: Sequence[JobDraft]) -> Seats | None:
        """Stop these jobs and seat the gang; None, with nothing changed, if there is no room even so."""
        mark = self.draft.mark()
        for victim in victims:
            stop(self.draft, victim, self.job)
        force = Force(cause=Cause.GANG, spare_priority=self.spare_priority)
        seats = seat_by_force(self.draft, self.job, core_of(self.job), force, avoid=self.avoid)
        if seats is None:
            self.draft.roll_back(mark)
        return seats

    def fits_without(self, victims: Sequence[JobDraft]) -> bool:
        """Whether there is room once these jobs have left; nothing is changed."""
        mark = self.draft.mark()
        seats = self.seats_without(victims)
        self.draft.roll_back(mark)
        return seats is not None


def needed_of(gang: Gang, victims: Sequence[JobDraft]) -> Sequence[JobDraft]:
    """Return those without whom the gang does not fit; of two that would do the cheaper one is kept."""
    needed = victims
    for dear in reversed(victims):
        others = [victim for victim in needed if victim is not dear]
        if others and gang.fits_without(others):
            needed = others
    return needed


def lower_jobs(draft: Draft, job: JobDraft) -> Sequence[JobDraft]:
    """Return the running jobs of lower priority, cheapest first."""
    lower = [
        other
        for other in draft.jobs.values()
        if other.is_running and other.job.state is JobState.ACTIVE and other.job.priority < job.job.priority
    ]
    return sorted(lower, key=cost_of)


def choices(lower: Sequence[JobDraft]) -> Iterator[Sequence[JobDraft]]:
    """Yield whom to take, cheapest first: each job alone, then more and more of them, all in the end."""
    yield from ([other] for other in lower)
    yield from (lower[:count] for count in range(2, len(lower) + 1))


def cost_of(job: JobDraft) -> tuple[int, float, str]:
    """Sort key: whose loss is the smallest.  An unknown checkpoint counts as dear (A7)."""
    age_s = job.job.checkpoint_age_s
    return (job.job.priority, inf if age_s is None or isnan(age_s) else age_s, job.job.name)


def stop(draft: Draft, victim: JobDraft, winner: JobDraft) -> None:
    """Tell all of the job's pods to leave."""
    draft.withdraw(victim)
    draft.remove(victim, victim.everything, Cause.PREEMPTION, beneficiary=winner.job.name)
    victim.is_running = False
    victim.block(Bottleneck.PRIORITY, f"gave its room to job {winner.job.name}, of higher priority")


def free_quota(draft: Draft, job: JobDraft, roles: list[Role], spare_priority: int | None) -> bool:
    """Have surplus of the job's namespace leave until these pods are within its quotas.

    The cheapest jobs give first, a step at a time; `spare_priority`: jobs of this priority and above give nothing.
    False, with the draft spoiled, if all of it is too little.  Work on a trial.
    """
    asked, rank = draft.newcomers(job, roles), full_rank(job.job.priority)
    while draft.quotas is not None and (excess := draft.quotas.excess(job, asked, now=False)) is not None:
        givers = {
            other.job.name: pods
            for other in draft.jobs.values()
            if other.job.namespace == job.job.namespace
            and (spare_priority is None or other.job.priority < spare_priority)
            and other.spare
            and other.trainer_amounts[excess.column] > 0
            and (pods := [pod for pod in draft.offers(other, rank).pods if excess.counts(other, pod)])
        }
        if not givers:
            return False
        giver = min((draft.jobs[name] for name in givers), key=lambda other: (*price_of(draft, other), other.job.name))
        draft.shrink(giver, givers[giver.job.name][:1], Cause.GANG, beneficiary=job.job.name)
    return True


def reserved_seats(draft: Draft, job: JobDraft, barred: frozenset[NodeName], *, now: bool = False) -> Seats | None:
    """Take the seats for which an earlier plan made room, if all of them still stand."""
    for reservation in draft.view.history.reservations:
        if reservation.job == job.job.name:
            seats = [(seat.role, seat.node) for seat in reservation.seats]
            is_whole = sorted(role for role, _ in seats) == sorted(core_of(job))
            is_open = not barred.intersection(node for _, node in seats)
            return seats if is_whole and is_open and seat_on(draft, job, seats, now=now) else None
    return None


def leaving_seats(draft: Draft, job: JobDraft, barred: frozenset[NodeName]) -> Seats | None:
    """Take room that is free or being vacated."""
    return seat_all(draft, job, core_of(job), now=False, avoid=mask_of(draft, barred))


def vacated_seats(draft: Draft, job: JobDraft, barred: frozenset[NodeName]) -> Seats | None:
    """Take surplus: anybody's, or not that of higher classes."""
    force = Force(cause=Cause.GANG, spare_priority=spared_by(draft, job))
    return seat_by_force(draft, job, core_of(job), force, avoid=mask_of(draft, barred))


def taken_seats(draft: Draft, job: JobDraft, barred: frozenset[NodeName]) -> Seats | None:
    """Take whole jobs of lower priority, where the policy says so."""
    return preempted_seats(draft, job, mask_of(draft, barred), spare_priority=spared_by(draft, job))


def spared_by(draft: Draft, job: JobDraft) -> int | None:
    """From which priority on the gang leaves others' surplus alone; None if it takes anybody's."""
    return job.job.priority + 1 if draft.policy.admission is Admission.STRICT_CLASS else None


def mask_of(draft: Draft, barred: frozenset[NodeName]) -> Mask | None:
    """Return the barred nodes as the choice of nodes wants them."""
    return draft.rooms.mask(barred) if barred else None
