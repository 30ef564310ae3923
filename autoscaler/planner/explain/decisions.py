"""Decisions: for each job of a plan its target, the reason and cause of a change, and the bottleneck that keeps it
there.

If a job lacks only capacity, the decision names the jobs whose surplus occupies it (`name_shortages`), or the node
with the smallest deficit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from autoscaler.domain import Bottleneck, Cause, Decision, JobName, JobState, NodeName, Reason, Role, Tier
from autoscaler.planner.explain.summary import limit_beside, summarize
from autoscaler.planner.formatting import describe_deficit, listed
from autoscaler.planner.placement.colocation import unit_shape
from autoscaler.planner.placement.node_choice import node_with_least_deficit
from autoscaler.planner.sharing.elastic_servers import servers_wanted
from autoscaler.planner.sharing.growth_queue import CAPACITY_BOTTLENECKS, step_of
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.working_copy import WorkingCopy

NODES_NAMED_FROM: Final = 8  # nodes searched for one whose surplus is all of other jobs


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


def name_shortages(copy: WorkingCopy) -> None:
    """Record for each job that lacks capacity whose surplus occupies it, else the node with the smallest deficit.

    Jobs of one shape have one answer, unless their own surplus is part of it. Where a trainer would fit, no other job's
    surplus is in its way: the reason that P5 found stands.
    """
    coming = surplus_coming(copy)
    for shape, jobs in copy.by_trainer.items():
        shortage, last = None, NO_SHORTAGE
        for job in jobs:
            if job.bottleneck not in CAPACITY_BOTTLENECKS or job.spec.name in copy.carried.shortfalls:
                continue
            would_fit = job.bottleneck is Bottleneck.NODE_FIT and bool(job.message)
            if job.is_running and not would_fit:
                if shortage is None:
                    nodes = copy.capacity.vacant_first(shape, NODES_NAMED_FROM)
                    shortage = Shortage(shape=shape, nodes=nodes, coming=coming)
                if holders := shortage.holders_beside(copy, job):
                    if last.holders is not holders or last.kind != (step_of(job), job.spec.priority):
                        last = shortage_text(job, holders)
                    job.block(last.bottleneck, last.message)
                    continue
            if not job.message:
                job.block(Bottleneck.NODE_FIT, nearest_node(copy, unit_shape(copy, job)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """The first nodes where a shape would fit without surplus, and the jobs whose surplus is there."""

    shape: int
    nodes: tuple[int, ...]
    coming: Mapping[NodeName, Collection[JobName]]  # `surplus_coming`
    holders: dict[int, tuple[PlannedJob, ...]] = field(default_factory=dict)  # by node, computed on demand

    def holders_beside(self, copy: WorkingCopy, job: PlannedJob) -> Sequence[PlannedJob]:
        """Return the other jobs, by name, whose surplus alone prevents the placement on one of the nodes."""
        for at in self.nodes:
            if (holders := self.holders.get(at)) is None:
                holders = self.holders[at] = holders_of(copy, at, self.coming)
            if holders and job not in holders:
                return holders
            others = [holder for holder in holders if holder is not job]
            gone = [shape for holder in others for shape in surplus_on(copy, holder, at)]
            if others and copy.capacity.fits_without(at, self.shape, gone):
                return others
        return ()


@dataclass(frozen=True, slots=True)
class ShortageText:
    """Bottleneck and message for all jobs of one step and one priority."""

    holders: Sequence[PlannedJob]
    kind: tuple[int, int]
    bottleneck: Bottleneck
    message: str


NO_SHORTAGE: Final = ShortageText((), (0, 0), Bottleneck.NODE_FIT, "")


def shortage_text(job: PlannedJob, holders: Sequence[PlannedJob]) -> ShortageText:
    """Return why other jobs occupy the capacity, by priority or by fairness, as text."""
    step, priority = step_of(job), job.spec.priority
    names = listed([holder.spec.name for holder in holders])
    if all(holder.spec.priority > priority for holder in holders):
        message = f"could grow by {step}: {names}, of higher priority, occupy the capacity"
        return ShortageText(holders, (step, priority), Bottleneck.PRIORITY, message)
    measure = "" if job.progress is None else "by progress "
    message = f"could grow by {step}: {measure}the capacity is the fair share of {names}"
    return ShortageText(holders, (step, priority), Bottleneck.FAIR_SHARE, message)


def nearest_node(copy: WorkingCopy, shape: int) -> str:
    """Return what is missing for one more of this shape on the node with the smallest deficit, as text.

    Nothing is missing where pods leave that this plan takes at its end, such as those that make up no allowed size.
    """
    at = node_with_least_deficit(copy, shape)
    if at is None:
        return "no open node accepts its trainers"
    needs, has = describe_deficit(copy.shapes.shapes[shape].requests, copy.capacity.later_on(at))
    if not needs:
        return f"could grow on {copy.capacity.names[at]} once the pods that leave it have left"
    return f"could grow with {needs} free on one node; {copy.capacity.names[at]} has {has}"


def surplus_on(copy: WorkingCopy, job: PlannedJob, at: int) -> list[int]:
    """Return the shapes of the job's surplus on a node, what comes included."""
    name = copy.capacity.names[at]
    present = [copy.shapes.number(pod.shape) for pod in job.trainers if pod.place == name and pod.tier is Tier.SURPLUS]
    coming = [pod for pod in job.coming if pod.tier is Tier.SURPLUS and pod.node == name]
    return present + [job.shapes[Role.TRAINER]] * len(coming)


def surplus_coming(copy: WorkingCopy) -> Mapping[NodeName, set[JobName]]:
    """Return the jobs whose surplus comes to each node."""
    by_node: dict[NodeName, set[JobName]] = {}
    for job in copy.dirty_jobs():
        for pod in job.coming:
            if pod.tier is Tier.SURPLUS:
                by_node.setdefault(pod.node, set()).add(job.spec.name)
    return by_node


def holders_of(copy: WorkingCopy, at: int, coming: Mapping[NodeName, Collection[JobName]]) -> tuple[PlannedJob, ...]:
    """Return the jobs with surplus on a node, `surplus_coming` included, in the order of their names."""
    names = {name for name in copy.surplus_owners.get(at, ()) if name is not None}
    names.update(coming.get(copy.capacity.names[at], ()))
    return tuple(copy.jobs[name] for name in sorted(names) if surplus_on(copy, copy.jobs[name], at))
