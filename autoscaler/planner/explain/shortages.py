"""Shortages: for each job that lacks only capacity the jobs whose surplus occupies it, else the node that lacks least.

What comes to a node together, one trainer or `perNode` of them, is a unit here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from autoscaler.domain import Bottleneck, JobName, NodeName, Role, Tier
from autoscaler.planner.formatting import describe_deficit, listed
from autoscaler.planner.placement.colocation import unit_shape
from autoscaler.planner.placement.node_choice import node_with_least_deficit
from autoscaler.planner.sharing.growth_queue import CAPACITY_BOTTLENECKS, step_of
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.working_copy import WorkingCopy

NODES_NAMED_FROM: Final = 8  # nodes searched for surplus of other jobs; of a step as many units at most


def name_shortages(copy: WorkingCopy) -> None:
    """Record for each job that lacks capacity whose surplus occupies it, else the node with the smallest deficit.

    Jobs of one shape have one answer, unless their own surplus is part of it. Where a trainer would fit, no other job's
    surplus is in its way: the reason that P5 found stands.
    """
    coming = surplus_coming(copy)
    for jobs in copy.by_trainer.values():
        shortages: dict[int, Shortage] = {}  # by the unit's shape
        last = NO_SHORTAGE
        for job in jobs:
            if job.bottleneck not in CAPACITY_BOTTLENECKS or job.spec.name in copy.carried.shortfalls:
                continue
            unit = unit_shape(copy, job)
            would_fit = job.bottleneck is Bottleneck.NODE_FIT and bool(job.message)
            if job.is_running and not would_fit:
                if (shortage := shortages.get(unit)) is None:
                    shortage = shortages[unit] = shortage_of(copy, unit, coming)
                if holders := shortage.holders_beside(job):
                    if last.holders is not holders or last.kind != (step_of(job), job.spec.priority):
                        last = shortage_text(job, holders)
                    job.block(last.bottleneck, last.message)
                    continue
            if not job.message:
                job.block(Bottleneck.NODE_FIT, nearest_node(copy, unit))


@dataclass(slots=True, kw_only=True)
class Shortage:
    """The first nodes where a unit would fit without surplus, and the jobs whose surplus is there."""

    copy: WorkingCopy
    unit: int  # its shape
    nodes: tuple[int, ...]
    coming: Mapping[NodeName, Collection[JobName]]  # `surplus_coming`
    holders: dict[int, tuple[PlannedJob, ...]] = field(default_factory=dict)  # by node, computed on demand
    gains: dict[int, int] = field(default_factory=dict)  # units by which more would fit without them, likewise
    present: int | None = None  # units that fit on all nodes as it is, counted for the first step of several

    def holders_beside(self, job: PlannedJob) -> Sequence[PlannedJob]:
        """Return the other jobs without whose surplus on these nodes the job's next size would fit; none if it would
        not.
        """
        lacking = self._lacking(step_of(job) // job.spec.trainer.per_node)
        found: Sequence[PlannedJob] = ()
        for at in self.nodes:
            others, gain = self._without(at, job)
            if gain > 0:
                found = others if not found else [*found, *(holder for holder in others if holder not in found)]
                lacking -= gain
            if lacking <= 0:
                return found
        return ()

    def _lacking(self, units: int) -> int:
        """Return how many of these units fit nowhere, of as many nodes as are searched.

        One is asked for only where none fits.  To count what fits, all nodes are looked at, for each shape.
        """
        if units <= 1:
            return 1
        if self.present is None:
            self.present = self.copy.capacity.copies(self.unit)
        return max(1, min(units - self.present, NODES_NAMED_FROM))

    def _without(self, at: int, job: PlannedJob) -> tuple[Sequence[PlannedJob], int]:
        """Return the other jobs with surplus on the node, and by how many units more would fit without it."""
        if (holders := self.holders.get(at)) is None:
            holders = self.holders[at] = holders_of(self.copy, at, self.coming)
            self.gains[at] = self._gain(at, holders)
        if job not in holders:
            return holders, self.gains[at]
        others = [holder for holder in holders if holder is not job]
        return others, self._gain(at, others)

    def _gain(self, at: int, holders: Sequence[PlannedJob]) -> int:
        capacity, gone = self.copy.capacity, [shape for one in holders for shape in surplus_on(self.copy, one, at)]
        return capacity.copies_without(at, self.unit, gone) - capacity.copies_without(at, self.unit, ())


def shortage_of(copy: WorkingCopy, unit: int, coming: Mapping[NodeName, Collection[JobName]]) -> Shortage:
    """Return the shortage of a unit."""
    return Shortage(copy=copy, unit=unit, nodes=copy.capacity.vacant_first(unit, NODES_NAMED_FROM), coming=coming)


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
