"""P2: pods that jobs may retain, and refill of missing core pods.

Pods of inactive jobs, pods on draining nodes and pods above the ceiling are removed. Then each running job gets its
missing core pods back: in free capacity, in capacity that is being vacated, else in place of surplus, its own where
that costs the same. A gang whose core cannot be refilled for a minute leaves whole and queues again, since it holds
capacity without training (`beside-the-scheduler.md` 5). A minimum that consists partly of surplus pods gets core pods
back, one by one (`beside-the-scheduler.md` 6, ADR 0104).
"""

from __future__ import annotations

from typing import assert_never

from autoscaler.domain import Bottleneck, Cause, JobSetting, JobState, Reclaim, Role, Tier
from autoscaler.planner.placement.colocation import bundles_of
from autoscaler.planner.placement.core_placement import (
    Placements,
    ReclaimPermit,
    try_place_all,
    try_place_on,
    try_place_reclaiming,
)
from autoscaler.planner.sharing.change_limits import shrink_opens_at
from autoscaler.planner.sharing.efficiency import release_inefficient
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.ranks import removal_order
from autoscaler.planner.working_copy.working_copy import WorkingCopy


def retain_running_jobs(copy: WorkingCopy) -> None:
    """Remove pods that jobs may not keep and refill the core of running jobs, high priorities first."""
    for job in copy.jobs.values() if copy.capacity.draining else copy.dirty_jobs():
        release_disallowed(copy, job)
    for job in sorted(copy.dirty_jobs(), key=lambda job: (-job.spec.priority, job.spec.name)):
        if job.is_running and job.spec.state is JobState.ACTIVE:
            replace_hung(copy, job)
            refill_core(copy, job)
            fill_swapped_capacity(copy, job)


def release_disallowed(copy: WorkingCopy, job: PlannedJob) -> None:
    """Remove the pods that the job's state, its node or its bounds no longer allow."""
    match job.spec.state:
        case JobState.SUSPENDED | JobState.OVER:
            if pods := job.all_pods:  # an ended job that has none is left untouched
                copy.remove(job, pods, Cause.EDIT, beneficiary=JobSetting(str(job.spec.state)))
            job.is_running = False
            job.block(Bottleneck.NOT_ACTIVE, f"the job is {job.spec.state}")
        case JobState.ENDING:
            job.block(Bottleneck.NOT_ACTIVE, "its pods are leaving")
        case JobState.ACTIVE:
            remove_from_draining_nodes(copy, job)
            excess = len(job.trainers) - job.ceiling
            if excess > 0:
                copy.remove(job, removal_order(copy, job)[:excess], Cause.EDIT, beneficiary=JobSetting("spec.trainer"))
            release_inefficient(copy, job)
        case state:
            assert_never(state)


def replace_hung(copy: WorkingCopy, job: PlannedJob) -> None:
    """Remove one trainer that hangs; P2 or growth brings another.  One works on beside it, so nobody else restarts.

    Where all stand still the cause is not a process: the job is left as it is, and its status says so.
    """
    hung = job.hung_trainers()
    works = len(job.trainers) - len(job.idle_trainers())
    if hung and (works or len(job.trainers) == 1) and copy.now_s >= job.spec.hold_until_s:
        copy.remove(job, hung[:1], Cause.HUNG)


def remove_from_draining_nodes(copy: WorkingCopy, job: PlannedJob) -> None:
    """Remove all of the job's pods on draining nodes, core too: the node's owner asked for it, and all of them leave
    at once, so that the job rolls back only once.
    """
    draining = copy.capacity.draining
    if draining:
        for pod in job.all_pods:
            if pod.place in draining:
                copy.remove(job, [pod], Cause.LOST_NODE, beneficiary=pod.place)


def refill_core(copy: WorkingCopy, job: PlannedJob) -> None:
    """Give a running job the core pods that it lacks, one by one; stop it where that has failed for too long."""
    roles = job.missing(copy.view.capabilities)
    if roles and copy.now_s < job.spec.hold_until_s:
        job.block(Bottleneck.COOLDOWN, job.hold_text, until_s=job.spec.hold_until_s)
        return
    bundles = bundles_of(copy, job, sorted(roles))
    if not roles or all(refill(copy, job, bundle.role, bundle.copies) for bundle in bundles):
        return
    copy.carried.shortfalls.add(job.spec.name)
    since_s = next((gap.since_s for gap in copy.view.history.shortfalls if gap.job == job.spec.name), copy.now_s)
    gives_up_at_s = since_s + copy.policy.shortfall_limit_s
    missing = ", ".join(sorted(set(roles)))
    lack = copy.quotas.find_problem(job, roles, now=False)
    bottleneck = Bottleneck.QUOTA if lack else Bottleneck.NODE_FIT
    message = lack or f"no capacity for its missing {missing}, even if all surplus were reclaimed"
    if copy.now_s < gives_up_at_s:
        job.block(bottleneck, message, until_s=gives_up_at_s)
    else:
        job.block(bottleneck, message)
        copy.withdraw(job)
        copy.remove(job, job.all_pods, Cause.PREEMPTION)
        job.is_running = False


def refill(copy: WorkingCopy, job: PlannedJob, role: Role, copies: int) -> bool:
    """Create or reserve one core pod, or those of one node; return False if they fit nowhere."""
    if not job.awaits_ordinal(role):
        return False
    if try_place_all(copy, job, [role] * copies, now=True) is not None:
        return True
    permit = ReclaimPermit(cause=Cause.GANG)
    placements = reserved_placement(copy, job, role) if copies == 1 else None
    placements = placements or try_place_reclaiming(copy, job, [role] * copies, permit)
    if placements is None:
        return False
    copy.carried.remember_placements(job.spec.name, placements)
    return True


def fill_swapped_capacity(copy: WorkingCopy, job: PlannedJob) -> None:
    """Place the core trainer where a surplus one has left for it, before free capacity is shared out."""
    if job.next_trainer_tier() is not Tier.CORE or job.size < job.spec.trainer.min_replicas:
        return
    capacity, shape = copy.capacity, job.shapes[Role.TRAINER]
    for reservation in copy.view.history.reservations:
        for placement in reservation.placements if reservation.job == job.spec.name else ():
            at = capacity.index.get(placement.node)
            if placement.role is not Role.TRAINER or at is None or job.size >= job.spec.trainer.ceiling:
                continue
            if capacity.fits(at, shape, now=True):
                copy.create(job, Role.TRAINER, Tier.CORE, placement.node, Cause.CORE_SWAP)
                return
            if capacity.fits(at, shape, now=False):
                copy.reserve(job, Role.TRAINER, Tier.CORE, placement.node)
                copy.carried.remember_placements(job.spec.name, [(Role.TRAINER, placement.node)])
                return


def restore_cores(copy: WorkingCopy) -> None:
    """Give core trainers to running jobs whose minimum consists partly of surplus pods (`beside-the-scheduler.md` 6).

    Their growth comes as core already. Where that is not enough, one surplus trainer leaves and a core one replaces
    it: one at a time, each a window after the last growth.
    """
    for job in copy.dirty_jobs():
        is_whole = job.size >= job.spec.trainer.min_replicas and job.is_in_service(copy.now_s)
        if is_whole and job.next_trainer_tier() is Tier.CORE and copy.is_due(shrink_opens_at(copy, job.spec)):
            swap_in_core(copy, job)


def swap_in_core(copy: WorkingCopy, job: PlannedJob) -> None:
    """Remove the job's last surplus trainer and reserve its capacity for a core one.

    With `reclaim: planner` a job at its minimum is left alone: the count protects it, and a swap would only cost it
    work.
    """
    if not job.spare and copy.policy.reclaim is Reclaim.PLANNER:
        return
    capacity, shape = copy.capacity, job.shapes[Role.TRAINER]
    for pod in removal_order(copy, job):
        at = capacity.open_place_of(pod)
        is_surplus = pod.tier is Tier.SURPLUS
        if is_surplus and at is not None and capacity.fits_without(at, shape, [copy.shapes.number(pod.shape)]):
            copy.remove(job, [pod], Cause.CORE_SWAP, beneficiary=job.spec.name)
            copy.reserve(job, Role.TRAINER, Tier.CORE, capacity.names[at])
            copy.carried.remember_placements(job.spec.name, [(Role.TRAINER, capacity.names[at])])
            return


def reserved_placement(copy: WorkingCopy, job: PlannedJob, role: Role) -> Placements | None:
    """Return the placement that an earlier plan reserved, if one of this role is still possible."""
    for reservation in copy.view.history.reservations:
        if reservation.job == job.spec.name:
            for placement in reservation.placements:
                taken = [(placement.role, placement.node)]
                if placement.role is role and try_place_on(copy, job, taken, now=False):
                    return taken
    return None
