"""Why this size?  One decision per job, in words that name the constraint and what would lift it."""

from __future__ import annotations

from autoscaler.domain import (
    Bottleneck,
    Cause,
    Decision,
    JobState,
    Reason,
    Role,
    Tier,
)
from autoscaler.planner.draft import Draft
from autoscaler.planner.job_draft import JobDraft


def decide(draft: Draft, job: JobDraft) -> Decision:
    """Return the job's decision from the finished draft."""
    spec = job.job
    attribute_shortage(draft, job)
    target = target_of(job)
    reason, cause = what_happens(job)
    bottleneck = job.bottleneck if job.bottleneck is not None else Bottleneck.NODE_FIT
    return Decision(
        job=spec.name,
        now=job.now,
        target=target,
        min=spec.trainer.min_replicas,
        max=spec.trainer.max_replicas,
        servers=job.servers_now,
        servers_target=0 if target == 0 else spec.server_count,
        reason=reason,
        cause=cause,
        bottleneck=bottleneck,
        message=tell(job, target, cause),
        share=float(draft.share(job) * spec.weight),
        is_degraded=job.is_degraded,
        notice=notice_of(draft, job),
    )


def target_of(job: JobDraft) -> int:
    """Return the size that the plan aims at: 0 or an allowed one (A1)."""
    spec = job.job.trainer
    match job.job.state:
        case JobState.SUSPENDED | JobState.OVER:
            return 0
        case JobState.ENDING:
            return spec.largest_allowed(job.now) if job.now else 0
        case JobState.ACTIVE:
            is_coming = job.is_running or job.size >= spec.min_replicas
            return spec.largest_allowed(job.size + job.held) if is_coming else 0


def what_happens(job: JobDraft) -> tuple[Reason, Cause | None]:
    """Return what this plan does to the job, and for whose sake."""
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
    if Cause.REFILL in came or any(pod.tier is Tier.CORE and pod.role is not Role.TRAINER for pod in job.created):
        return Reason.REFILLED, Cause.REFILL
    return (Reason.GROWN, came[0]) if came else (Reason.KEPT, None)


def tell(job: JobDraft, target: int, cause: Cause | None) -> str:
    """Return the sentence for status and events."""
    change = f"{job.now} trainers" if target == job.now else f"{job.now} to {target} trainers"
    for_whom = sorted({leaving.beneficiary for leaving in job.leaving if leaving.beneficiary})
    why = f", {cause}" if cause is not None else ""
    if for_whom:
        why += f" ({', '.join(for_whom[:3])}{', ...' if len(for_whom) > 3 else ''})"
    return f"{change}{why}; {job.message}" if job.message else f"{change}{why}"


def attribute_shortage(draft: Draft, job: JobDraft) -> None:
    """Where surplus of others fills the room that is missing, name their claim instead of the node."""
    if not job.is_running or job.bottleneck not in {Bottleneck.NODE_FIT, Bottleneck.STEP}:
        return
    holders = [other for other in draft.jobs.values() if other is not job and is_in_the_way(draft, job, other)]
    if not holders:
        return
    names = ", ".join(other.job.name for other in holders[:3])
    if all(other.job.priority > job.job.priority for other in holders):
        job.block(Bottleneck.PRIORITY, f"{job.message}; the room is held by jobs of higher priority ({names})")
    else:
        job.block(Bottleneck.FAIR_SHARE, f"{job.message}; the room is the fair share of {names}")


def is_in_the_way(draft: Draft, job: JobDraft, other: JobDraft) -> bool:
    """Whether one more trainer would fit on some node if this other job had no surplus there."""
    shape = job.job.trainer.shape
    for name, room in draft.rooms.items():
        held = [pod.requests for pod in other.trainers if pod.tier is Tier.SURPLUS and pod.place == name]
        held += [
            other.shape_of(pod.role).requests for pod in other.coming if pod.tier is Tier.SURPLUS and pod.node == name
        ]
        if held and room.node.accepts(shape) and shape.requests.fits_into(sum(held, start=room.later)):
            return True
    return False


def notice_of(draft: Draft, job: JobDraft) -> str:
    """Return what the user asked for and this cluster cannot give."""
    servers = job.job.servers
    if servers is None or draft.view.capabilities.servers_elastic:
        return ""
    if servers.max_replicas == servers.min_replicas and servers.pinned_replicas in {0, servers.min_replicas}:
        return ""
    return f"parameter servers stay at minReplicas {servers.min_replicas}: this cluster does not move their state"
