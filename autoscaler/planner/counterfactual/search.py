"""Search for the smallest change of each kind after which a plan gives the job more (A8).

The planner is greedy, so more of a resource may hurt, and bisection could miss the smallest change. Each ladder
is climbed rung by rung, with one plan each: the first rung that lifts the job is the smallest of its kind by
construction. Ladders are short because their unit is the one in which people buy; one whose top gives nothing is not
climbed. Kinds that suit the bottleneck are tried first; the others only if none of those helps; then pairs, each part
as small as the other allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from autoscaler.domain import Bottleneck, Decision, Job, JobName, Plan, Resources
from autoscaler.planner import Memo, plan
from autoscaler.planner.counterfactual import cluster_changes, job_changes, priority_changes, time_changes
from autoscaler.planner.counterfactual.change import (
    ChangeKind,
    Counterfactual,
    Explanation,
    HypotheticalChange,
    Ladder,
    PlanInputs,
    without_run_times,
    without_windows,
)

PLANS_ALLOWED: Final = 2_000  # seconds on a large cluster, a moment on a small one

CAPACITY: Final = (
    ChangeKind.OPEN,
    ChangeKind.HEADROOM,
    ChangeKind.QUOTA,
    ChangeKind.STEP,
    ChangeKind.MIN,
    ChangeKind.RESOURCE,
    ChangeKind.NODES,
)
PRECEDENCE: Final = (ChangeKind.WEIGHT, ChangeKind.PRIORITY)

KINDS_BY_BOTTLENECK: Final[Mapping[Bottleneck, tuple[ChangeKind, ...]]] = {
    Bottleneck.MAX: (ChangeKind.MAX,),
    Bottleneck.EFFICIENCY: (ChangeKind.EFFICIENCY,),
    Bottleneck.PINNED: (ChangeKind.PIN,),
    Bottleneck.NOT_ACTIVE: (ChangeKind.RESUME,),
    Bottleneck.STALE_VIEW: (ChangeKind.VIEW,),
    Bottleneck.QUOTA: (ChangeKind.QUOTA,),
    Bottleneck.NEVER_FITS: (ChangeKind.STEP, ChangeKind.MIN, ChangeKind.RESOURCE, ChangeKind.NODES),
}
"""Kinds of change that can lift each bottleneck; default: `CAPACITY` and `PRECEDENCE`."""

PAIRS: Final = (
    (ChangeKind.PIN, ChangeKind.MAX),
    (ChangeKind.MAX, ChangeKind.EFFICIENCY),
    *(
        (gate, other)
        for gate in (ChangeKind.RESUME, ChangeKind.PIN, ChangeKind.EFFICIENCY)
        for other in (*PRECEDENCE, *CAPACITY)
    ),
    *(
        (ChangeKind.MAX, other) for other in (*PRECEDENCE, *CAPACITY) if other not in {ChangeKind.STEP, ChangeKind.MIN}
    ),  # they change its sizes
    (ChangeKind.MIN, ChangeKind.RESOURCE),
    (ChangeKind.PRIORITY, ChangeKind.RESOURCE),
    (ChangeKind.QUOTA, ChangeKind.NODES),
    (ChangeKind.PRIORITY, ChangeKind.NODES),
    (ChangeKind.MIN, ChangeKind.NODES),
)


class _SearchIsLongError(Exception):
    """The limit of plans is reached."""


@dataclass(slots=True, kw_only=True)
class AnswerSearch:
    """Search state of one question."""

    inputs: PlanInputs
    job: Job
    more_than: int  # the size to exceed
    plans: int = 0
    most: int = PLANS_ALLOWED
    goes_on: Callable[[], bool] = lambda: True
    memo: Memo
    answers: list[Counterfactual] = field(default_factory=list)

    def size_with(self, *changes: HypotheticalChange) -> int:
        """Return the job's target with these changes and without windows."""
        if self.plans >= self.most or not self.goes_on():
            raise _SearchIsLongError
        self.plans += 1
        return size_after(self.inputs, self.job.name, *changes, memo=self.memo)

    def climb(self, ladder: Ladder, below: HypotheticalChange | None = None) -> Counterfactual | None:
        """Return the first rung that lifts the job; with `below` only of those smaller than it.

        After the first rung the last is tried: where even that gives nothing, those between are left alone.
        """
        rungs = [change for change in ladder if below is None or change.amount < below.amount]
        for at, change in enumerate(rungs):
            if at == 1 and self.size_with(rungs[-1]) <= self.more_than:
                return None
            size = self.size_with(change)
            if size > self.more_than:
                return Counterfactual(changes=(change,), size=size)
        return None

    def climb_all(self, ladders: Iterable[Ladder]) -> None:
        """Add the smallest change of all these ladders; resources apart, since a GiB is not less than a GPU."""
        best: dict[str, Counterfactual] = {}
        for ladder in ladders:
            if ladder:
                of = str(getattr(ladder[0], "resource", ""))
                known = best.get(of)
                found = self.climb(ladder, below=known.changes[0] if known is not None else None)
                best |= {} if found is None else {of: found}
        self.answers += best.values()

    def climb_pair(self, first: Ladder, second: Ladder) -> Counterfactual | None:
        """Return a pair of rungs of which neither can be smaller beside the other."""
        if not first or not second or self.size_with(*in_order(first[-1], second[-1])) <= self.more_than:
            return None
        left, right = first[-1], second[-1]
        while True:
            lower = self.lowest(first, right)
            other = self.lowest(second, lower)
            if (lower, other) == (left, right):
                return Counterfactual(changes=(left, right), size=self.size_with(*in_order(left, right)))
            left, right = lower, other

    def lowest(self, ladder: Ladder, beside: HypotheticalChange) -> HypotheticalChange:
        """Return the first rung that lifts the job beside the other change; one of the ladder's does."""
        return next(rung for rung in ladder if self.size_with(*in_order(rung, beside)) > self.more_than)


def in_order(*changes: HypotheticalChange) -> list[HypotheticalChange]:
    """Return changes in the order of their kinds: one order for a pair, whichever part is searched."""
    return sorted(changes, key=lambda change: list(ChangeKind).index(change.kind))


def explain(
    inputs: PlanInputs,
    name: JobName,
    *,
    more_than: int = 0,
    most: int = PLANS_ALLOWED,
    goes_on: Callable[[], bool] = lambda: True,
) -> Explanation:
    """Return why the job has its size, and the smallest changes of each kind that give it more (A8).

    `more_than`: the size that is to be exceeded, at least the one that the job has once all windows are over.
    A new plan with an answer's changes, windows off, gives exactly its size.  `goes_on` is asked before each change is
    tried: once it says no, the answers so far are returned as cut.  Raises KeyError for no such job.
    """
    job = inputs.job(name)
    memo = Memo()
    actual = plan(inputs.view, inputs.policy, inputs.now_s, memo=memo)
    settled_plan = plan(without_run_times(inputs.view), without_windows(inputs.policy), inputs.now_s, memo=memo)
    decision, settled = decision_of(actual, name), decision_of(settled_plan, name)
    to_exceed = max(settled.target, more_than)
    search = AnswerSearch(inputs=inputs, job=job, more_than=to_exceed, most=most, goes_on=goes_on, memo=memo)
    is_cut = False
    try:
        search.answers += by_time(inputs, actual, decision, search.memo)
        try_changes(search, settled)
    except _SearchIsLongError:
        is_cut = True
    return Explanation(
        decision=decision, settled=settled, answers=tuple(search.answers), plans=search.plans, is_cut=is_cut
    )


def try_changes(search: AnswerSearch, settled: Decision) -> None:
    """Try what suits the bottleneck, then everything else, then pairs; end with what first helps."""
    inputs, job = search.inputs, search.job
    suited = KINDS_BY_BOTTLENECK.get(settled.bottleneck, (*PRECEDENCE, *CAPACITY))
    missing, size = missing_of(job, settled), settled.target
    for kinds in (suited, tuple(kind for kind in ChangeKind if kind not in suited)):
        for kind in kinds:
            search.climb_all(ladders(kind, inputs, job, missing, size))
        if search.answers:
            return
    for left, right in PAIRS:
        for first in ladders(left, inputs, job, missing, size):
            for second in ladders(right, inputs, job, missing, size):
                found = search.climb_pair(first, second)
                if found is not None:
                    search.answers.append(found)
                    return


def ladders(kind: ChangeKind, inputs: PlanInputs, job: Job, missing: Resources, size: int) -> Iterator[Ladder]:
    """Return what can be tried of a kind. `size`: the one that is to be exceeded."""
    is_waiting = not any(pod.job == job.name for pod in inputs.view.pods)
    found: Mapping[ChangeKind, Callable[[], Iterator[Ladder]]] = {
        ChangeKind.VIEW: lambda: time_changes.view_ladders(inputs),
        ChangeKind.RESUME: lambda: job_changes.resume_ladders(job),
        ChangeKind.PIN: lambda: job_changes.pin_ladders(job),
        ChangeKind.MAX: lambda: job_changes.max_ladders(job),
        ChangeKind.EFFICIENCY: lambda: job_changes.efficiency_ladders(job),
        ChangeKind.STEP: lambda: job_changes.step_ladders(job, size),
        ChangeKind.MIN: lambda: job_changes.min_ladders(job) if is_waiting else iter(()),
        ChangeKind.WEIGHT: lambda: priority_changes.weight_ladders(inputs, job),
        ChangeKind.PRIORITY: lambda: priority_changes.priority_ladders(inputs, job),
        ChangeKind.HEADROOM: lambda: priority_changes.headroom_ladders(inputs),
        ChangeKind.OPEN: lambda: cluster_changes.open_ladders(inputs, job),
        ChangeKind.QUOTA: lambda: cluster_changes.quota_ladders(inputs, job, missing),
        ChangeKind.RESOURCE: lambda: cluster_changes.resource_ladders(inputs, job, missing),
        ChangeKind.NODES: lambda: cluster_changes.node_ladders(inputs, job, missing),
        ChangeKind.TIME: lambda: iter(()),  # `by_time`
    }
    return found[kind]()


def by_time(inputs: PlanInputs, actual: Plan, decision: Decision, memo: Memo) -> list[Counterfactual]:
    """Return the first instant at which the job is larger, or has a reserved change carried out; None otherwise."""
    if decision.bottleneck is Bottleneck.STALE_VIEW:
        return []
    for wait, then in time_changes.instants(inputs, actual, memo):
        later = decision_of(then, decision.job)
        is_kept = decision.bottleneck in time_changes.TIMED and later.bottleneck not in time_changes.TIMED
        if later.target > decision.target or (is_kept and later.target == decision.target > decision.now):
            return [Counterfactual(changes=(wait,), size=later.target)]
    return []


def size_after(inputs: PlanInputs, name: JobName, *changes: HypotheticalChange, memo: Memo | None = None) -> int:
    """Target of the job with these changes applied, windows off."""
    is_timed = any(change.kind is ChangeKind.TIME for change in changes)
    if not is_timed:
        inputs = replace(inputs, view=without_run_times(inputs.view), policy=without_windows(inputs.policy))
    for change in changes:
        inputs = change.apply(inputs)
    return decision_of(plan(inputs.view, inputs.policy, inputs.now_s, memo=memo), name).target


def decision_of(found: Plan, name: JobName) -> Decision:
    return next(decision for decision in found.decisions if decision.job == name)


def missing_of(job: Job, settled: Decision) -> Resources:
    """Return the requests of the job's next size: a step of trainers, or the whole gang."""
    if settled.target == 0:
        return cluster_changes.gang_of(job)
    count = next_size_above(job, settled.target) - settled.target
    return job.trainer.shape.requests.plus(job.trainer.shape.requests, times=count - 1)


def next_size_above(job: Job, size: int) -> int:
    """Return the next size, whatever the present maximum and pin."""
    free = replace(job.trainer, pinned_replicas=0)
    inside = free.next_size(size)
    return inside if inside is not None else next(iter(job_changes.sizes_beyond(free)), size + 1)
