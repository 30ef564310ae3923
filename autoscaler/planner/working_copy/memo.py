"""The last snapshot, brought up to date: a plan after one event costs the event, not the cluster.

Values of the domain are frozen, so an object that is still there has not changed: old and new view are compared by
identity, and only what differs is taken out of the arrays and put in anew.  What the last plan wrote on the snapshot is
undone from its log.  A plan with a memo equals the plan without one (A5; ADR 0112); whatever cannot be brought up
to date exactly (nodes that come, go or change their labels; new resources) is made from nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress, count
from operator import attrgetter, is_not
from typing import Final, TypeVar

from autoscaler.domain import ClusterView, JobName, Node, NodeName, Policy
from autoscaler.domain.view import Named
from autoscaler.planner.working_copy.shapes import offered_by
from autoscaler.planner.working_copy.view_index import Snapshot, shapes_of
from autoscaler.planner.working_copy.working_copy import Draft

STRIDE: Final = 256  # things compared at once

BINDING_S: Final = 20.0
"""A core pod that is younger is about to be bound; an older one waits for something that may never come."""

what_is_kept_of: Final = attrgetter("fairness", "reclaim")
"""The settings that jobs' claims and offers rest on, which stay with the snapshot from plan to plan."""

Thing = TypeVar("Thing", bound=Named)


class Memo:
    """Kept by whoever plans again and again, and given to each plan.  It changes no answer, only its price."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._policy: Policy | None = None  # of the last plan

    def begin(self, view: ClusterView, policy: Policy, now_s: float) -> Draft:
        """Return the draft on which the phases write.  Until `end` the memo is empty, so an error costs the memo."""
        snapshot, self._snapshot = self._snapshot, None
        is_as_before = self._policy is None or what_is_kept_of(policy) == what_is_kept_of(self._policy)
        if snapshot is None or not is_as_before or not bring_up_to_date(snapshot, view):
            snapshot = Snapshot(view)
        wanted = [headroom.shape for headroom in policy.headroom]
        for shape in wanted:
            snapshot.shapes.number(shape)
        if snapshot.is_outgrown():
            snapshot = Snapshot(view, more_shapes=wanted)
        self._begun = snapshot
        return Draft(
            view=view,
            policy=policy,
            now_s=now_s,
            shapes=snapshot.shapes,
            rooms=snapshot.rooms,
            jobs=snapshot.jobs,
            unit=snapshot.unit,
            waiting=[snapshot.waiting[name] for name in sorted(snapshot.waiting)],
            standing=snapshot.standing,
            stirred=set(snapshot.unsettled),
            by_trainer=snapshot.by_trainer,
            drinkers=snapshot.drinkers,
            lines=snapshot.lines,
            kept_supplies=snapshot.supplies if policy == self._policy else {},
            held_on=snapshot.held_on,
            is_gang_binding=any(now_s - pod.created_at_s < BINDING_S for pod in snapshot.unbound_core.values()),
            preempted_now=set(snapshot.preempted.values()),
            burst_until_s=snapshot.newest_job_s + policy.burst_window_s,
            quiet_from_s=max(snapshot.newest_job_s, snapshot.newest_other_s) + policy.quiet_window_s,
        )

    def end(self, draft: Draft) -> None:
        """Undo what the phases wrote and keep the snapshot."""
        draft.end()
        self._begun.supplies = draft.supplies
        self._policy = draft.policy
        for job in draft.jobs.values():
            job.forget_notes()
        draft.rooms.shorten_touched()
        self._snapshot = self._begun


def bring_up_to_date(snapshot: Snapshot, view: ClusterView) -> bool:
    """Make the snapshot that of another view; False, with the snapshot spoiled, where that cannot be done."""
    old = snapshot.view
    nodes = list(differences(old.nodes, view.nodes))
    jobs = [thing for pair in differences(old.jobs, view.jobs) for thing in pair if thing is not None]
    if not all(is_same_place(before, after) for before, after in nodes) or old.capabilities != view.capabilities:
        return False
    pods = list(differences(old.pods, view.pods))
    snapshot.view = view
    for job in jobs:
        shapes_of(snapshot.shapes, job)
    for workload in view.workloads if view.workloads is not old.workloads else ():
        snapshot.shapes.number(workload.shape)
    for before, after in pods:
        snapshot.exchange(before, after)
    snapshot.find_newest_other()
    changed = [after for _, after in nodes if after is not None]
    if (
        not offered_by(changed) <= snapshot.shapes.offered
        or snapshot.is_outgrown()
        or not all(map(snapshot.rooms.replace_node, changed))
    ):
        return False
    dirty = {job.name for job in jobs} | jobs_on(snapshot, {node.name for node in changed})
    dirty.update(pod.job for pair in pods for pod in pair if pod is not None and pod.job is not None)
    if dirty:
        snapshot.put_jobs(dirty)
    if changed or jobs:
        snapshot.rate_jobs()
    return True


def jobs_on(snapshot: Snapshot, names: set[NodeName]) -> set[JobName]:
    """Return the jobs with pods on these nodes."""
    if not names:
        return set()
    return {job for job, pods in snapshot.members.items() if any(pod.place in names for pod in pods.values())}


def is_same_place(before: Node | None, after: Node | None) -> bool:
    """Whether a node changed in nothing but its amounts and its state."""
    return (
        before is not None
        and after is not None
        and (before.labels, before.taints, before.name) == (after.labels, after.taints, after.name)
    )


def differences(old: tuple[Thing, ...], new: tuple[Thing, ...]) -> Iterator[tuple[Thing | None, Thing | None]]:
    """Yield (before, after) of what differs between two tuples that are sorted by name; None where there is none."""
    if old is new:
        return
    at, to = 0, 0
    while at < len(old) and to < len(new):
        some, others = old[at : at + STRIDE], new[to : to + STRIDE]
        same = len(some) if some == others else equal_ahead(some, others)
        if same:
            at, to = at + same, to + same
            continue
        before, after = old[at], new[to]
        if before.name == after.name:
            yield before, after
            at, to = at + 1, to + 1
        elif before.name < after.name:
            yield before, None
            at += 1
        else:
            yield None, after
            to += 1
    for before in old[at:]:
        yield before, None
    for after in new[to:]:
        yield None, after


def equal_ahead(old: tuple[Thing, ...], new: tuple[Thing, ...]) -> int:
    """How many things at the front are the very same objects."""
    return next(compress(count(), map(is_not, old, new)), min(len(old), len(new)))
