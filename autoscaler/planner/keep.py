"""P2: what each job has and keeps.

Jobs that are not active give their pods back.  Pods leave a node that is being drained.  A size above the ceiling
comes down.  Then each running job gets back what is missing of its core (`core`).  Next: `forced`.
"""

from __future__ import annotations

from typing import assert_never

from autoscaler.domain import Bottleneck, Cause, JobState
from autoscaler.planner.core import refill_core, take_swapped_room
from autoscaler.planner.draft import Draft
from autoscaler.planner.job_draft import JobDraft


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
