"""."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from autoscaler.domain import Bottleneck, JobName, NodeName
from autoscaler.planner.formatting import describe_lack, listed
from autoscaler.planner.placement.node_choice import nearest_room
from autoscaler.planner.sharing.growth_queue import STARVED, step_of
from autoscaler.planner.working_copy.planned_job import JobDraft
from autoscaler.planner.working_copy.working_copy import Draft

NODES_NAMED_FROM: Final = 8  # nodes searched for one whose surplus is others' alone


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
