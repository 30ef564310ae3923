"""Memo of the last plan: its index is brought up to date, so a plan after one event costs the event, not the cluster.

Values of the domain are frozen, so an object that is still there has not changed: old and new view are compared by
identity, and only what differs is taken out of the arrays and put in again. What the last plan wrote is undone from
its log. A plan with a memo equals the plan without one (A5; ADR 0112). What cannot be brought up to date exactly
(nodes that come, go or change their labels; new resources) is made from nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress, count
from operator import attrgetter, is_not
from typing import Final

from autoscaler.domain import ClusterView, JobName, Node, NodeName, Policy
from autoscaler.domain.view import NamedItem
from autoscaler.planner.working_copy.grades import Grades
from autoscaler.planner.working_copy.plan_records import ExternalDemand, PlanCache, carry_over
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.quota_usage import QuotaUsage
from autoscaler.planner.working_copy.shapes import offered_by
from autoscaler.planner.working_copy.view_index import ViewIndex, shapes_of
from autoscaler.planner.working_copy.working_copy import WorkingCopy

STRIDE: Final = 256  # things compared at once

BINDING_S: Final = 20.0
"""Age up to which an unbound core pod counts as about to be bound."""

kept_settings: Final = attrgetter("fairness", "reclaim")
"""Settings that fairness keys and offers depend on, which stay with the index from plan to plan."""


class Memo:
    """The last plan's index, for repeated planning.

    It changes no answer, only its cost.
    """

    def __init__(self) -> None:
        self._index: ViewIndex | None = None
        self._policy: Policy | None = None  # of the last plan

    def begin(self, view: ClusterView, policy: Policy, now_s: float) -> WorkingCopy:
        """Return the working copy on which the phases write. Until `end` the memo is empty, so an error costs only the
        memo."""
        index, self._index = self._index, None
        is_as_before = self._policy is None or kept_settings(policy) == kept_settings(self._policy)
        if index is None or not is_as_before or not update_index(index, view):
            index = ViewIndex(view, fairness=policy.fairness)
        wanted = [headroom.shape for headroom in policy.headroom]
        for shape in wanted:
            index.shapes.number(shape)
        if index.needs_rebuild():
            index = ViewIndex(view, more_shapes=wanted, fairness=policy.fairness)
        self._begun = index
        carried = carry_over(view.history, index.preempted.values(), now_s=now_s, policy=policy)
        dirty = {*index.unsteady, *(carried.idle_gifts_at_s.keys() & index.jobs.keys())}
        grades, changed = Grades(index.jobs, dirty), list[PlannedJob]()
        return WorkingCopy(
            view=view,
            policy=policy,
            now_s=now_s,
            shapes=index.shapes,
            capacity=index.capacity,
            jobs=index.jobs,
            by_trainer=index.by_trainer,
            growable=index.growable,
            growth_lines=index.growth_lines,
            dirty=dirty,
            share_unit=index.share_unit,
            parts=index.parts,
            surplus_owners=index.surplus_owners,
            quotas=QuotaUsage(view, index.shapes, index.jobs.values(), grades, changed),
            grades=grades,
            changed_jobs=changed,
            external=ExternalDemand(
                waiting=[index.waiting[name] for name in sorted(index.waiting)],
                pod_count_by_workload=index.pod_count_by_workload,
            ),
            carried=carried,
            cache=PlanCache(index.lasting if policy == self._policy else None),
            is_gang_binding=any(now_s - pod.created_at_s < BINDING_S for pod in index.unbound_core.values()),
            burst_until_s=index.newest_job_s + policy.burst_window_s,
            quiet_from_s=max(index.newest_job_s, index.newest_other_s) + policy.quiet_window_s,
        )

    def end(self, copy: WorkingCopy) -> None:
        """Undo what the phases wrote and keep the index."""
        copy.end()
        self._begun.lasting = copy.cache.lasting
        self._policy = copy.policy
        for job in copy.jobs.values():
            job.reset()
        copy.capacity.shorten_touched()
        self._begun.divide_into_parts()
        self._index = self._begun


def update_index(index: ViewIndex, view: ClusterView) -> bool:
    """Make the index that of another view; return False, with the index invalid, if that is not possible."""
    old = index.view
    nodes = list(differences(old.nodes, view.nodes))
    jobs = [thing for pair in differences(old.jobs, view.jobs) for thing in pair if thing is not None]
    if not all(is_same_place(before, after) for before, after in nodes) or old.capabilities != view.capabilities:
        return False
    pods = list(differences(old.pods, view.pods))
    index.view = view
    for job in jobs:
        shapes_of(index.shapes, job)
    for workload in view.workloads if view.workloads is not old.workloads else ():
        index.shapes.number(workload.shape)
    for before, after in pods:
        index.replace_pod(before, after)
    index.find_newest_other()
    changed = [after for _, after in nodes if after is not None]
    if (
        not offered_by(changed) <= index.shapes.offered
        or index.needs_rebuild()
        or not all(map(index.capacity.replace_node, changed))
    ):
        return False
    dirty = {job.name for job in jobs} | jobs_on(index, {node.name for node in changed})
    dirty.update(pod.job for pair in pods for pod in pair if pod is not None and pod.job is not None)
    if dirty:
        index.rebuild_jobs(dirty)
    if changed or jobs:
        index.rate_jobs()
    index.divide_into_parts()
    return True


def jobs_on(index: ViewIndex, names: set[NodeName]) -> set[JobName]:
    """Return the jobs with pods on these nodes."""
    if not names:
        return set()
    return {job for job, pods in index.members.items() if any(pod.place in names for pod in pods.values())}


def is_same_place(before: Node | None, after: Node | None) -> bool:
    """True if only the amounts and the state of a node have changed."""
    return (
        before is not None
        and after is not None
        and (before.labels, before.taints, before.name) == (after.labels, after.taints, after.name)
    )


def differences(
    old: tuple[NamedItem, ...], new: tuple[NamedItem, ...]
) -> Iterator[tuple[NamedItem | None, NamedItem | None]]:
    """Yield (before, after) of what differs between two tuples that are sorted by name; None where there is none."""
    if old is new:
        return
    at, to = 0, 0
    while at < len(old) and to < len(new):
        some, others = old[at : at + STRIDE], new[to : to + STRIDE]
        same = len(some) if some == others else common_prefix_length(some, others)
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


def common_prefix_length(old: tuple[NamedItem, ...], new: tuple[NamedItem, ...]) -> int:
    """Return how many things at the front are the very same objects."""
    return next(compress(count(), map(is_not, old, new)), min(len(old), len(new)))
