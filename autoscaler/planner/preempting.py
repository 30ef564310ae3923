"""P4, last resort: a waiting gang takes whole running jobs of lower priority (`Policy.preempts_jobs`; off by default).

Asked only when all surplus that the gang may take does not make it room.  One job is enough wherever one is: the lowest
priority first, then the one whose checkpoint is freshest, which loses least.  A job that is taken leaves whole, its
servers and master too, and queues again; nothing is taken from a job of the same priority or above.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, isnan

from autoscaler.domain import Bottleneck, Cause, JobState
from autoscaler.planner.draft import Draft
from autoscaler.planner.job_draft import JobDraft
from autoscaler.planner.node_arrays import Mask
from autoscaler.planner.seating import Force, Seats, core_of, seat_by_force


def preempted_seats(draft: Draft, job: JobDraft, avoid: Mask | None, *, spare_priority: int | None) -> Seats | None:
    """Take the room of jobs of lower priority, and surplus; None if even that is too little.  Work on a trial."""
    if not draft.policy.preempts_jobs:
        return None
    for victims in choices(draft, job):
        mark = draft.mark()
        for victim in victims:
            stop(draft, victim, job)
        force = Force(cause=Cause.GANG, spare_priority=spare_priority)
        seats = seat_by_force(draft, job, core_of(job), force, avoid=avoid)
        if seats is not None:
            return seats
        draft.roll_back(mark)
    return None


def choices(draft: Draft, job: JobDraft) -> Iterator[Sequence[JobDraft]]:
    """Yield whom to take, cheapest first: each job alone, then more and more of them."""
    lower = [
        other
        for other in draft.jobs.values()
        if other.is_running and other.job.state is JobState.ACTIVE and other.job.priority < job.job.priority
    ]
    lower.sort(key=cost_of)
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
