"""Shortages: whose surplus holds the room that a job lacks, or on which node least is missing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from autoscaler.domain import Bottleneck, JobName, NodeName, Role, Tier
from autoscaler.planner.formatting import describe_lack, listed
from autoscaler.planner.placement.node_choice import nearest_room
from autoscaler.planner.sharing.growth_queue import STARVED, step_of
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.working_copy import WorkingCopy

NODES_NAMED_FROM: Final = 8  # nodes searched for one whose surplus is others' alone


def name_shortages(copy: WorkingCopy) -> None:
    """Record for each job without room whose room it is: others' surplus on some node, else nobody's and what comes
    nearest.

    Jobs of one shape have one answer, unless their own surplus is part of it.
    """
    coming = surplus_coming(copy)
    for shape, jobs in copy.by_trainer.items():
        shortage, last = None, NO_SHORTAGE
        for job in jobs:
            if job.bottleneck not in STARVED or job.spec.name in copy.carried.shortfalls:
                continue
            if job.is_running:
                if shortage is None:
                    nodes = copy.capacity.vacant_first(shape, NODES_NAMED_FROM)
                    shortage = Shortage(shape=shape, nodes=nodes, coming=coming)
                if holders := shortage.holders_beside(copy, job):
                    if last.holders is not holders or last.kind != (step_of(job), job.spec.priority):
                        last = shortage_text(job, holders)
                    job.block(last.bottleneck, last.message)
                    continue
            if not job.message:
                job.block(Bottleneck.NODE_FIT, nearest_node(copy, shape))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """The first nodes where a shape would fit without surplus, and whose surplus stands there."""

    shape: int
    nodes: tuple[int, ...]
    coming: Mapping[NodeName, Collection[JobName]]  # `surplus_coming`
    holders: dict[int, tuple[PlannedJob, ...]] = field(default_factory=dict)  # by node, once asked for

    def holders_beside(self, copy: WorkingCopy, job: PlannedJob) -> Sequence[PlannedJob]:
        """Return the other jobs, by name, whose surplus alone stands in this job's way on one of the nodes."""
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
    """Return whether the room belongs to others by priority or by fairness, in words."""
    step, priority = step_of(job), job.spec.priority
    names = listed([holder.spec.name for holder in holders])
    if all(holder.spec.priority > priority for holder in holders):
        message = f"could grow by {step}: the room belongs to {names}, of higher priority"
        return ShortageText(holders, (step, priority), Bottleneck.PRIORITY, message)
    message = f"could grow by {step}: the room is the fair share of {names}"
    return ShortageText(holders, (step, priority), Bottleneck.FAIR_SHARE, message)


def nearest_node(copy: WorkingCopy, shape: int) -> str:
    """Return what is missing for one more trainer on the node that comes nearest, in words."""
    at = nearest_room(copy, shape)
    if at is None:
        return "no open node accepts its trainers"
    needs, has = describe_lack(copy.shapes.shapes[shape].requests, copy.capacity.later_on(at))
    return f"could grow with {needs} on one node; {copy.capacity.names[at]} has {has}"


def surplus_on(copy: WorkingCopy, job: PlannedJob, at: int) -> list[int]:
    """Return the shapes of the job's surplus on a node, what comes included."""
    name = copy.capacity.names[at]
    standing = [copy.shapes.number(pod.shape) for pod in job.trainers if pod.place == name and pod.tier is Tier.SURPLUS]
    coming = [pod for pod in job.coming if pod.tier is Tier.SURPLUS and pod.node == name]
    return standing + [job.shapes[Role.TRAINER]] * len(coming)


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
