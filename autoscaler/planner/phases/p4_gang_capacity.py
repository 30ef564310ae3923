"""P4: sources of capacity for a waiting gang, in order of cost.

Reserved capacity, capacity that is being vacated, surplus of other jobs, and last whole running jobs of lower priority
(`Policy.preempts_jobs`, off by default). A gang whose namespace has used up its quota with its own surplus takes that
surplus back, since a job below its minimum makes no progress.

Preemption takes one job wherever one is enough: the lowest priority, then the one with the freshest checkpoint, which
loses least. Where it takes several, each is needed. A preempted job leaves whole, servers and master too, and queues
again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, isnan

from autoscaler.domain import Admission, Bottleneck, Cause, JobState, NodeName, Role
from autoscaler.planner.placement.core_placement import (
    Placements,
    ReclaimPermit,
    core_roles,
    try_place_all,
    try_place_on,
    try_place_reclaiming,
)
from autoscaler.planner.placement.reclaimable import price_of
from autoscaler.planner.working_copy.node_arrays import Mask
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.ranks import full_rank, offers_of, shrink
from autoscaler.planner.working_copy.working_copy import WorkingCopy


def lower_jobs(copy: WorkingCopy, job: PlannedJob) -> Sequence[PlannedJob]:
    """Return the running jobs of lower priority, cheapest first."""
    lower = [
        other
        for other in copy.jobs.values()
        if other.is_running and other.spec.state is JobState.ACTIVE and other.spec.priority < job.spec.priority
    ]
    return sorted(lower, key=preemption_cost)


def victim_choices(lower: Sequence[PlannedJob]) -> Iterator[Sequence[PlannedJob]]:
    """Sets of victim jobs, cheapest first: each job alone, then growing sets."""
    yield from ([other] for other in lower)
    yield from (lower[:count] for count in range(2, len(lower) + 1))


def preemption_cost(job: PlannedJob) -> tuple[int, float, str]:
    """Sort key: lowest priority, freshest checkpoint, name. An unknown checkpoint counts as old, so that it makes no
    victim (A7)."""
    age_s = job.spec.checkpoint_age_s
    return (job.spec.priority, inf if age_s is None or isnan(age_s) else age_s, job.spec.name)


def stop_job(copy: WorkingCopy, victim: PlannedJob, winner: PlannedJob) -> None:
    """Remove all of the job's pods."""
    copy.withdraw(victim)
    copy.remove(victim, victim.all_pods, Cause.PREEMPTION, beneficiary=winner.spec.name)
    victim.is_running = False
    victim.block(Bottleneck.PRIORITY, f"stopped: job {winner.spec.name}, of higher priority, takes its capacity")


def free_quota(copy: WorkingCopy, job: PlannedJob, roles: list[Role], protected_priority: int | None) -> bool:
    """Remove surplus of the job's namespace until these pods are within its quotas.

    The cheapest jobs give first, a step at a time; jobs of priority `protected_priority` and above give nothing.
    Returns False, with the trial to be rolled back, if all of it is too little.
    """
    new_pods, rank = copy.quotas.new_pods(job, roles), full_rank(job.spec.priority)
    while copy.quotas.has_limits and (excess := copy.quotas.excess(job, new_pods, now=False)) is not None:
        givers = {
            other.spec.name: pods
            for other in copy.jobs.values()
            if other.spec.namespace == job.spec.namespace
            and (protected_priority is None or other.spec.priority < protected_priority)
            and other.spare
            and other.trainer_amounts[excess.column] > 0
            and (pods := [pod for pod in offers_of(copy, other, rank).pods if excess.counts(other, pod)])
        }
        if not givers:
            return False
        giver = min((copy.jobs[name] for name in givers), key=lambda other: (*price_of(copy, other), other.spec.name))
        shrink(copy, giver, givers[giver.spec.name][:1], Cause.GANG, beneficiary=job.spec.name)
    return True


def reserved_placements(
    copy: WorkingCopy, job: PlannedJob, barred: frozenset[NodeName], *, now: bool = False
) -> Placements | None:
    """Return the placements that an earlier plan reserved, if all of them are still possible."""
    for reservation in copy.view.history.reservations:
        if reservation.job == job.spec.name:
            placements = [(placement.role, placement.node) for placement in reservation.placements]
            is_whole = sorted(role for role, _ in placements) == sorted(core_roles(job))
            is_open = not barred.intersection(node for _, node in placements)
            return placements if is_whole and is_open and try_place_on(copy, job, placements, now=now) else None
    return None


def leaving_placements(copy: WorkingCopy, job: PlannedJob, barred: frozenset[NodeName]) -> Placements | None:
    """Place the gang into capacity that is free or being vacated."""
    return try_place_all(copy, job, core_roles(job), now=False, avoid=mask_of_barred(copy, barred))


def vacated_placements(copy: WorkingCopy, job: PlannedJob, barred: frozenset[NodeName]) -> Placements | None:
    """Place the gang by removing surplus: of all jobs, or only of lower classes."""
    permit = ReclaimPermit(cause=Cause.GANG, protected_priority=protected_priority_of(copy, job))
    return try_place_reclaiming(copy, job, core_roles(job), permit, avoid=mask_of_barred(copy, barred))


def preempting_placements(copy: WorkingCopy, job: PlannedJob, barred: frozenset[NodeName]) -> Placements | None:
    """Place the gang by stopping whole jobs of lower priority, where the policy allows it."""

    def fits_without(victims: Sequence[PlannedJob]) -> bool:
        mark = copy.mark()
        placements = placements_without(copy, job, barred, victims)
        copy.roll_back(mark)
        return placements is not None

    lower = lower_jobs(copy, job) if copy.policy.preempts_jobs else ()
    if not lower or not fits_without(lower):  # fails for most plans; costs one trial
        return None
    victims = needed = next(filter(fits_without, victim_choices(lower)))
    for expensive in reversed(victims):  # of two alternatives the cheaper one is taken
        others = [victim for victim in needed if victim is not expensive]
        if others and fits_without(others):
            needed = others
    return placements_without(copy, job, barred, needed)


def placements_without(
    copy: WorkingCopy, job: PlannedJob, barred: frozenset[NodeName], victims: Sequence[PlannedJob]
) -> Placements | None:
    """Stop these jobs and place the gang, removing surplus too.  To be called in a trial."""
    for victim in victims:
        stop_job(copy, victim, job)
    return vacated_placements(copy, job, barred)


def protected_priority_of(copy: WorkingCopy, job: PlannedJob) -> int | None:
    """Return the priority from which on others' surplus is spared; None if the gang may take anybody's."""
    return job.spec.priority + 1 if copy.policy.admission is Admission.STRICT_CLASS else None


def mask_of_barred(copy: WorkingCopy, barred: frozenset[NodeName]) -> Mask | None:
    """Return the barred nodes as a mask; None if there are none."""
    return copy.capacity.mask(barred) if barred else None
