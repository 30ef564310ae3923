"""Why this size?  One decision per job: target, reason, cause, and the constraint that keeps it there.

The sentence for people is `story`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoscaler.domain import (
    NOTHING,
    Bottleneck,
    Cause,
    Decision,
    JobName,
    JobState,
    NodeName,
    Reason,
    Resources,
    Role,
    Tier,
)
from autoscaler.planner.draft import Draft, Room
from autoscaler.planner.job_draft import JobDraft
from autoscaler.planner.share import step_of
from autoscaler.planner.story import listed, tell

Held = Mapping[NodeName, Sequence[tuple[JobDraft, Resources]]]


def decide(draft: Draft) -> tuple[Decision, ...]:
    """Return each job's decision from the finished draft."""
    held = held_by_surplus(draft)
    for job in draft.jobs.values():
        if job.job.name not in draft.short:
            attribute_shortage(job, held, draft.rooms)
    return tuple(decision_for(draft, job) for job in draft.jobs.values())


def decision_for(draft: Draft, job: JobDraft) -> Decision:
    """Return one job's decision."""
    spec = job.job
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
        message=tell(job),
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


def attribute_shortage(job: JobDraft, held: Held, rooms: Mapping[NodeName, Room]) -> None:
    """Where surplus of others fills the room that is missing, name their claim instead of the node."""
    if not job.is_running or job.bottleneck not in {Bottleneck.NODE_FIT, Bottleneck.STEP}:
        return
    shape = job.job.trainer.shape
    holders: dict[JobName, JobDraft] = {}
    for node, holdings in held.items():
        room = rooms[node]
        if not room.node.accepts(shape):
            continue
        for holder, amount in holdings:
            is_new = holder is not job and holder.job.name not in holders
            if is_new and shape.requests.fits_into(room.later + amount):
                holders[holder.job.name] = holder
    if not holders:
        return
    names = listed(sorted(holders))
    if all(holder.job.priority > job.job.priority for holder in holders.values()):
        job.block(Bottleneck.PRIORITY, f"could grow by {step_of(job)}: the room belongs to {names}, of higher priority")
    else:
        job.block(Bottleneck.FAIR_SHARE, f"could grow by {step_of(job)}: the room is the fair share of {names}")


def held_by_surplus(draft: Draft) -> Held:
    """Return, by open node, what each job's surplus takes there, what comes included."""
    held: dict[NodeName, list[tuple[JobDraft, Resources]]] = {}
    for job in draft.jobs.values():
        here: dict[NodeName, Resources] = {}
        standing = [(pod.place, pod.requests) for pod in job.trainers if pod.tier is Tier.SURPLUS]
        coming = [(pod.node, job.job.trainer.shape.requests) for pod in job.coming if pod.tier is Tier.SURPLUS]
        for node, requests in [*standing, *coming]:
            if node in draft.rooms:
                here[node] = here.get(node, NOTHING) + requests
        for node, amount in here.items():
            held.setdefault(node, []).append((job, amount))
    return held


def notice_of(draft: Draft, job: JobDraft) -> str:
    """Return what the user asked for and this cluster cannot give."""
    servers = job.job.servers
    if servers is None or draft.view.capabilities.servers_elastic:
        return ""
    if servers.max_replicas == servers.min_replicas and servers.pinned_replicas in {0, servers.min_replicas}:
        return ""
    return f"parameter servers stay at minReplicas {servers.min_replicas}: this cluster does not move their state"
