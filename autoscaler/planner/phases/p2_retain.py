"""P2: what each job has and keeps.

Jobs that are not active give their pods back.  Pods leave a node that is being drained.  A size above the ceiling
comes down.  Then each running job gets back what is missing of its core (`core`).  Next: `forced`.
"""

from __future__ import annotations

from typing import assert_never

from autoscaler.domain import Bottleneck, Cause, JobState, Reclaim, Role, Tier
from autoscaler.planner.placement.colocation import pieces_of
from autoscaler.planner.placement.core_placement import Force, Seats, seat_all, seat_by_force, seat_on
from autoscaler.planner.sharing.change_limits import shrink_opens_at
from autoscaler.planner.working_copy.planned_job import JobDraft
from autoscaler.planner.working_copy.working_copy import Draft


def keep_running_jobs(draft: Draft) -> None:
    """Settle what stays of every job, jobs of high priority first."""
    for job in draft.jobs.values() if draft.rooms.draining else draft.stirred_jobs():
        settle_state(draft, job)
    for job in sorted(draft.stirred_jobs(), key=lambda job: (-job.job.priority, job.job.name)):
        if job.is_running and job.job.state is JobState.ACTIVE:
            refill_core(draft, job)
            take_swapped_room(draft, job)


def settle_state(draft: Draft, job: JobDraft) -> None:
    """Take away what the job's state, its node or its bounds no longer allow."""
    match job.job.state:
        case JobState.SUSPENDED | JobState.OVER:
            draft.remove(job, job.everything, Cause.EDIT, beneficiary=str(job.job.state))
            job.is_running = False
            job.block(Bottleneck.NOT_ACTIVE, f"the job is {job.job.state}")
        case JobState.ENDING:
            job.block(Bottleneck.NOT_ACTIVE, "its pods are leaving")
        case JobState.ACTIVE:
            leave_draining_nodes(draft, job)
            excess = len(job.trainers) - job.ceiling
            if excess > 0:
                draft.remove(job, draft.last_in_line(job)[:excess], Cause.EDIT, beneficiary="spec.trainer")
        case state:
            assert_never(state)


def leave_draining_nodes(draft: Draft, job: JobDraft) -> None:
    """Tell all of the job's pods on draining nodes to leave, core too: the owner's wish, and servers roll back once."""
    draining = draft.rooms.draining
    if draining:
        for pod in job.everything:
            if pod.place in draining:
                draft.remove(job, [pod], Cause.LOST_NODE, beneficiary=pod.place)


def refill_core(draft: Draft, job: JobDraft) -> None:
    """Give a running job the core pods that it lacks, one by one."""
    roles = job.missing(draft.view.capabilities)
    if roles and draft.now_s < job.job.hold_until_s:
        job.block(Bottleneck.COOLDOWN, "pause after failures", until_s=job.job.hold_until_s)
        return
    pieces = pieces_of(draft, job, sorted(roles))
    if not roles or all(refill(draft, job, piece.role, piece.copies) for piece in pieces):
        return
    draft.short.add(job.job.name)
    since_s = next((gap.since_s for gap in draft.view.history.shortfalls if gap.job == job.job.name), draft.now_s)
    gives_up_at_s = since_s + draft.policy.shortfall_limit_s
    missing = ", ".join(sorted(set(roles)))
    lack = draft.quota_lack(job, roles, now=False)
    bottleneck = Bottleneck.QUOTA if lack else Bottleneck.NODE_FIT
    message = lack or f"no room for its missing {missing}, not even in surplus of others"
    if draft.now_s < gives_up_at_s:
        job.block(bottleneck, message, until_s=gives_up_at_s)
    else:
        job.block(bottleneck, message)
        draft.withdraw(job)
        draft.remove(job, job.everything, Cause.PREEMPTION)
        job.is_running = False


def refill(draft: Draft, job: JobDraft, role: Role, copies: int) -> bool:
    """Create or promise one core pod, or those of one node; False if no room can be had for them."""
    if not job.awaits_number(role):
        return False
    if seat_all(draft, job, [role] * copies, now=True) is not None:
        return True
    force = Force(cause=Cause.GANG)
    seats = reserved_seat(draft, job, role) if copies == 1 else None
    seats = seats or seat_by_force(draft, job, [role] * copies, force)
    if seats is None:
        return False
    draft.reserve(job, seats)
    return True


def take_swapped_room(draft: Draft, job: JobDraft) -> None:
    """Put the core trainer where a surplus one has left for it, before the room is shared out."""
    if job.next_trainer_tier() is not Tier.CORE or job.size < job.job.trainer.min_replicas:
        return
    rooms, shape = draft.rooms, job.shapes[Role.TRAINER]
    for reservation in draft.view.history.reservations:
        for seat in reservation.seats if reservation.job == job.job.name else ():
            at = rooms.index.get(seat.node)
            if seat.role is not Role.TRAINER or at is None or job.size >= job.job.trainer.ceiling:
                continue
            if rooms.fits(at, shape, now=True):
                draft.create(job, Role.TRAINER, Tier.CORE, seat.node, Cause.CORE_SWAP)
                return
            if rooms.fits(at, shape, now=False):
                draft.promise(job, Role.TRAINER, Tier.CORE, seat.node)
                draft.reserve(job, [(Role.TRAINER, seat.node)])
                return


def restore_cores(draft: Draft) -> None:
    """Give running jobs that have their minimum, yet partly as surplus, their core back (`kubernetes.md` 6).

    What they grow by comes as core already.  Where that is not enough, one surplus trainer leaves and a core one takes
    its room: one at a time, each a window after the last growth.
    """
    for job in draft.stirred_jobs():
        is_there = job.is_running and job.job.state is JobState.ACTIVE and draft.now_s >= job.job.hold_until_s
        if is_there and job.next_trainer_tier() is Tier.CORE and job.size >= job.job.trainer.min_replicas:
            opens_at_s = shrink_opens_at(draft, job.job)
            if draft.now_s >= opens_at_s:
                swap(draft, job)
            else:
                draft.wake_at_s.append(opens_at_s)


def swap(draft: Draft, job: JobDraft) -> None:
    """Tell the job's last surplus trainer to leave and promise its room to a core one.

    With `reclaim: planner` a job at its minimum is left alone: the count protects it, a swap would only cost it work.
    """
    if not job.spare and draft.policy.reclaim is Reclaim.PLANNER:
        return
    rooms, shape = draft.rooms, job.shapes[Role.TRAINER]
    for pod in draft.last_in_line(job):
        at = rooms.open_place_of(pod)
        is_surplus = pod.tier is Tier.SURPLUS
        if is_surplus and at is not None and rooms.fits_without(at, shape, [draft.shapes.number(pod.shape)]):
            draft.remove(job, [pod], Cause.CORE_SWAP, beneficiary=job.job.name)
            draft.promise(job, Role.TRAINER, Tier.CORE, rooms.names[at])
            draft.reserve(job, [(Role.TRAINER, rooms.names[at])])
            return


def reserved_seat(draft: Draft, job: JobDraft, role: Role) -> Seats | None:
    """Take a seat for which an earlier plan made room, if one of this role still stands."""
    for reservation in draft.view.history.reservations:
        if reservation.job == job.job.name:
            for seat in reservation.seats:
                taken = [(seat.role, seat.node)]
                if seat.role is role and seat_on(draft, job, taken, now=False):
                    return taken
    return None
