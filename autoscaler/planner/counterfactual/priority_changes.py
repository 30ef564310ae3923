"""Changes of weight, priority and headroom.

Weights rise by tenths.  Only the order of priorities matters, so the ladder has each existing priority and the value
above it: between two of its rungs no plan differs, and the smallest rung is the smallest priority.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from autoscaler.domain import Headroom, Job
from autoscaler.planner.counterfactual.change import ChangeKind, Ladder, NumberChange, PlanInputs

WEIGHTS_TRIED: Final = 32
PRIORITIES_TRIED: Final = 16
PRIORITY_OF_CORE: Final = 0  # stands beside those that occur: surplus ranks there with `reclaim: planner`


@dataclass(frozen=True, slots=True, kw_only=True)
class RaiseWeight(NumberChange):
    """spec.weight raised."""

    subject: ClassVar = "weight"
    kind: ChangeKind = ChangeKind.WEIGHT

    def apply(self, inputs: PlanInputs) -> PlanInputs:
        return inputs.with_job(replace(inputs.job(self.job), weight=self.to))


@dataclass(frozen=True, slots=True, kw_only=True)
class RaisePriority(NumberChange):
    """The job's priority class exchanged for one of a higher value.  Existing pods keep their priority."""

    subject: ClassVar = "a priority class of value"
    kind: ChangeKind = ChangeKind.PRIORITY

    def apply(self, inputs: PlanInputs) -> PlanInputs:
        return inputs.with_job(replace(inputs.job(self.job), priority=self.to))


@dataclass(frozen=True, slots=True, kw_only=True)
class LessHeadroom:
    """Fewer pods of headroom; the last entries of the policy go first."""

    before: int
    to: int
    kind: ChangeKind = ChangeKind.HEADROOM

    @property
    def amount(self) -> float:
        return self.before - self.to

    def apply(self, inputs: PlanInputs) -> PlanInputs:
        left, kept = self.to, list[Headroom]()
        for headroom in inputs.policy.headroom:
            kept.append(replace(headroom, count=min(headroom.count, left)))
            left -= kept[-1].count
        return replace(inputs, policy=replace(inputs.policy, headroom=tuple(kept)))

    def describe(self) -> str:
        return f"headroom for {self.to} pods in place of {self.before}"


def weight_ladders(inputs: PlanInputs, job: Job) -> Iterator[Ladder]:
    """Yield larger weights, where another job has the same priority."""
    if not any(other.priority == job.priority for other in inputs.view.jobs if other.name != job.name):
        return
    unit = weight_unit(job.weight)
    steps = range(1, WEIGHTS_TRIED + 1)
    yield [RaiseWeight(job=job.name, before=job.weight, to=job.weight + step * unit) for step in steps]


def weight_unit(weight: int) -> int:
    """Return the step in which a weight is raised: a tenth of it, at least 1."""
    return max(1, -(-weight // 10))


def priority_ladders(inputs: PlanInputs, job: Job) -> Iterator[Ladder]:
    """Yield the priorities at which the order of anything changes, lowest first."""
    view = inputs.view
    known = {PRIORITY_OF_CORE, *(thing.priority for kind in (view.jobs, view.pods, view.workloads) for thing in kind)}
    rungs = sorted({rung for value in known for rung in (value, value + 1) if rung > job.priority})
    yield [RaisePriority(job=job.name, before=job.priority, to=to) for to in rungs[:PRIORITIES_TRIED]]


def headroom_ladders(inputs: PlanInputs) -> Iterator[Ladder]:
    """Yield less and less headroom."""
    count = sum(headroom.count for headroom in inputs.policy.headroom)
    yield [LessHeadroom(before=count, to=to) for to in range(count - 1, -1, -1)]
