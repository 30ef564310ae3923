"""Why this size?  One decision per job: target, reason, cause, and the constraint that keeps it there.

The sentence for people is `story`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from autoscaler.domain import Bottleneck, Cause, Decision, JobName, JobState, NodeName, Reason, Role, Tier
from autoscaler.planner.draft import Draft
from autoscaler.planner.elastic import servers_wanted
from autoscaler.planner.fit import nearest_room
from autoscaler.planner.job_draft import JobDraft
from autoscaler.planner.share import STARVED
from autoscaler.planner.story import listed, tell
from autoscaler.planner.thirst import step_of
from autoscaler.planner.words import describe_lack

NODES_NAMED_FROM: Final = 8  # nodes searched for one whose surplus is others' alone


def decide(draft: Draft) -> tuple[Decision, ...]:
    """Return each job's decision from the finished draft."""
    name_shortages(draft)
    return tuple(decision_for(draft, job) for job in draft.jobs.values())


def decision_for(draft: Draft, job: JobDraft) -> Decision:
    """Return one job's decision.  A job that nothing happens to has the decision that it had for the same reason."""
    is_quiet, last = job.touched < 0 and not job.is_starting, job.quiet
    if is_quiet and last is not None and last.bottleneck is job.bottleneck and last.message == job.message:
        return last
    decision = fresh_decision(draft, job)
    job.quiet = decision if is_quiet else None
    return decision


def fresh_decision(draft: Draft, job: JobDraft) -> Decision:
    """Return one job's decision, put together anew."""
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
        servers_target=0 if target == 0 else max(spec.server_count, servers_wanted(draft, job, target)),
        reason=reason,
        cause=cause,
        bottleneck=bottleneck,
        message=tell(job),
        share=draft.share(job) * spec.weight / draft.unit,
        is_degraded=job.is_degraded,
        notice=notice_of(draft, job),
        held_up_by=job.held_up_by,
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


def name_shortages(draft: Draft) -> None:
    """Say whose room it is that jobs lack: that of others' surplus on some node, else nobody's, and what comes nearest.

    Jobs of one shape have one answer, unless their own surplus is part of it.
    """
    coming = draft.surplus_coming()
    for shape, jobs in draft.by_trainer.items():
        shortage, last = None, NOTHING_SAID
        for job in jobs:
            if job.bottleneck not in STARVED or job.job.name in draft.short:
                continue
            if job.is_running:
                shortage = shortage_of(draft, shape, coming) if shortage is None else shortage
                if holders := shortage.holders_beside(draft, job):
                    if last.holders is not holders or last.kind != (step_of(job), job.job.priority):
                        last = said_of(job, holders)
                    job.block(last.bottleneck, last.message)
                    continue
            if not job.message:
                job.block(Bottleneck.NODE_FIT, nearest_node(draft, shape))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """The first nodes where a shape would fit if all surplus there were gone, and whose surplus that is."""

    shape: int
    nodes: tuple[int, ...]
    coming: Mapping[NodeName, Collection[JobName]]  # `Draft.surplus_coming`
    holders: dict[int, tuple[JobDraft, ...]] = field(default_factory=dict)  # by node, as far as anybody has asked

    def holders_beside(self, draft: Draft, job: JobDraft) -> Sequence[JobDraft]:
        """Return, by name, the other jobs whose surplus alone stands in this one's way on one of the nodes."""
        for at in self.nodes:
            if (holders := self.holders.get(at)) is None:
                holders = self.holders[at] = draft.holders_of(at, self.coming)
            if holders and job not in holders:
                return holders
            others = [holder for holder in holders if holder is not job]
            gone = [shape for holder in others for shape in draft.surplus_on(holder, at)]
            if others and draft.rooms.fits_without(at, self.shape, gone):
                return others
        return ()


def shortage_of(draft: Draft, shape: int, coming: Mapping[NodeName, Collection[JobName]]) -> Shortage:
    """Find them, in the order of names."""
    return Shortage(shape=shape, nodes=draft.rooms.vacant_first(shape, NODES_NAMED_FROM), coming=coming)


@dataclass(frozen=True, slots=True)
class Said:
    """Whose room it is, in words: the same for all jobs of a step and a priority."""

    holders: Sequence[JobDraft]
    kind: tuple[int, int]
    bottleneck: Bottleneck
    message: str


NOTHING_SAID: Final = Said((), (0, 0), Bottleneck.NODE_FIT, "")


def said_of(job: JobDraft, holders: Sequence[JobDraft]) -> Said:
    """The room belongs to others by priority or by fairness."""
    step, priority = step_of(job), job.job.priority
    names = listed([holder.job.name for holder in holders])
    if all(holder.job.priority > priority for holder in holders):
        message = f"could grow by {step}: the room belongs to {names}, of higher priority"
        return Said(holders, (step, priority), Bottleneck.PRIORITY, message)
    message = f"could grow by {step}: the room is the fair share of {names}"
    return Said(holders, (step, priority), Bottleneck.FAIR_SHARE, message)


def nearest_node(draft: Draft, shape: int) -> str:
    """Say what is missing for one more, and on which node it comes nearest."""
    at = nearest_room(draft, shape)
    if at is None:
        return "no open node accepts its trainers"
    needs, has = describe_lack(draft.shapes.shapes[shape].requests, draft.rooms.later_on(at))
    return f"could grow with {needs} on one node; {draft.rooms.names[at]} has {has}"


def notice_of(draft: Draft, job: JobDraft) -> str:
    """Return what the user asked for and this cluster cannot give."""
    servers = job.job.servers
    if servers is None or draft.view.capabilities.servers_elastic:
        return ""
    if servers.max_replicas == servers.min_replicas and servers.pinned_replicas in {0, servers.min_replicas}:
        return ""
    return f"parameter servers stay at minReplicas {servers.min_replicas}: this cluster does not move their state"
