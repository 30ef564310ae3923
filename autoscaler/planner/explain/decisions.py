"""Decisions: for each job of a plan its target, the reason and cause of a change, and the bottleneck that keeps it
there. Who occupies the capacity that a job lacks is `shortages`.
"""

from __future__ import annotations

from autoscaler.domain import Bottleneck, Cause, Decision, JobState, Reason, Role, Tier
from autoscaler.planner.explain.shortages import name_shortages
from autoscaler.planner.explain.summary import limit_beside, summarize
from autoscaler.planner.sharing.elastic_servers import servers_wanted
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.working_copy import WorkingCopy


def explain_sizes(copy: WorkingCopy) -> tuple[Decision, ...]:
    """Return each job's decision from the finished working copy."""
    name_shortages(copy)
    return tuple(decision_for(copy, job) for job in copy.jobs.values())


def decision_for(copy: WorkingCopy, job: PlannedJob) -> Decision:
    """Return one job's decision; a job to which nothing happens keeps the one that it had for the same reason."""
    is_quiet, last = job.touched < 0 and not job.is_starting, job.unchanged_decision
    if is_quiet and last is not None and last.bottleneck is job.bottleneck and last.message == job.message:
        return last
    decision = new_decision(copy, job)
    job.unchanged_decision = decision if is_quiet else None
    return decision


def new_decision(copy: WorkingCopy, job: PlannedJob) -> Decision:
    """Return one job's decision, computed from the copy."""
    spec = job.spec
    target = target_of(job)
    reason, cause = reason_of(job)
    bottleneck = job.bottleneck if job.bottleneck is not None else Bottleneck.NODE_FIT
    return Decision(
        job=spec.name,
        now=job.now,
        target=target,
        min=spec.trainer.min_replicas,
        max=spec.trainer.max_replicas,
        servers=job.servers_now,
        servers_target=0 if target == 0 else max(spec.server_count, servers_wanted(copy, job, target)),
        reason=reason,
        cause=cause,
        bottleneck=bottleneck,
        message=summarize(job),
        limit=limit_beside(job),
        share=job.share() * spec.weight / copy.share_unit,
        progress=None if job.progress is None else round(job.progress.relative(job.size), 3),
        is_degraded=job.is_degraded,
        notice=notice_of(copy, job),
        held_up_by=job.held_up_by,
    )


def target_of(job: PlannedJob) -> int:
    """Return the size that the plan aims at: 0 or an allowed one (A1)."""
    spec = job.spec.trainer
    match job.spec.state:
        case JobState.SUSPENDED | JobState.OVER:
            return 0
        case JobState.ENDING:
            return spec.largest_allowed(job.now) if job.now else 0
        case JobState.ACTIVE:
            is_coming = job.is_running or job.size >= spec.min_replicas
            return spec.largest_allowed(job.size + job.waiting_growth) if is_coming else 0


def reason_of(job: PlannedJob) -> tuple[Reason, Cause | None]:
    """Return what this plan does to the job, and why."""
    left = [leaving.cause for leaving in job.leaving if leaving.pod.role is Role.TRAINER]
    came = [pod.cause for pod in job.created if pod.role is Role.TRAINER]
    if job.is_starting:
        return Reason.STARTED, Cause.START
    if job.leaving and not (job.trainers or job.servers or job.masters):
        return Reason.STOPPED, job.leaving[0].cause
    if left:
        return Reason.SHRUNK, left[0]
    if not job.is_running:
        return Reason.WAITING, None
    back = Cause.REFILL
    if back in came or any(
        pod.tier is Tier.CORE and pod.role is not Role.TRAINER and pod.cause is back for pod in job.created
    ):
        return Reason.REFILLED, Cause.REFILL
    causes = {change.cause for change in job.leaving} | {pod.cause for pod in job.created}
    if Cause.DEFRAGMENTATION in causes:
        return Reason.MOVED, Cause.DEFRAGMENTATION
    given_back = [leaving.cause for leaving in job.leaving if leaving.cause in {Cause.RATIO, Cause.EDIT}]
    if given_back and not came:
        return Reason.SHRUNK, given_back[0]  # by servers
    return (Reason.GROWN, came[0]) if came else (Reason.KEPT, None)


def notice_of(copy: WorkingCopy, job: PlannedJob) -> str:
    """Notice about a request of the user that the cluster cannot fulfil."""
    servers = job.spec.servers
    if servers is None or copy.view.capabilities.servers_elastic:
        return ""
    if servers.max_replicas == servers.min_replicas and servers.pinned_replicas in {0, servers.min_replicas}:
        return ""
    return f"parameter servers stay at minReplicas {servers.min_replicas}: this cluster does not move their state"
