"""Changes to the job's own document: maximum, pin, minimum, step, suspension.  Unit: one trainer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from autoscaler.domain import Job, JobName, JobState, TrainerSpec
from autoscaler.errors import InvalidSpecError
from autoscaler.planner.counterfactual.change import ChangeKind, Ladder, NumberChange, PlanInputs

SIZES_TRIED: Final = 8
"""Sizes beyond maxReplicas; raising the maximum further rarely helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaiseMax(NumberChange):
    """maxReplicas raised."""

    subject: ClassVar = "maxReplicas"
    kind: ChangeKind = ChangeKind.MAX

    def apply(self, inputs: PlanInputs) -> PlanInputs:
        return inputs.with_job(edited(inputs.job(self.job), max_replicas=self.to))


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovePin:
    """trainer.replicas set to 0."""

    job: JobName
    before: int
    amount: float = 1
    kind: ChangeKind = ChangeKind.PIN

    def apply(self, inputs: PlanInputs) -> PlanInputs:
        return inputs.with_job(edited(inputs.job(self.job), pinned_replicas=0))

    def describe(self) -> str:
        return f"trainer.replicas 0 in place of {self.before}, so that EDL decides"


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerMin(NumberChange):
    """minReplicas lowered, for a job that waits for all of them."""

    subject: ClassVar = "minReplicas"
    kind: ChangeKind = ChangeKind.MIN

    def apply(self, inputs: PlanInputs) -> PlanInputs:
        return inputs.with_job(edited(inputs.job(self.job), min_replicas=self.to))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortenStep(NumberChange):
    """A finer step between the allowed sizes."""

    subject: ClassVar = "step"
    kind: ChangeKind = ChangeKind.STEP

    def apply(self, inputs: PlanInputs) -> PlanInputs:
        return inputs.with_job(edited(inputs.job(self.job), step=self.to))


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """A suspended job resumed."""

    job: JobName
    amount: float = 1
    kind: ChangeKind = ChangeKind.RESUME

    def apply(self, inputs: PlanInputs) -> PlanInputs:
        return inputs.with_job(replace(inputs.job(self.job), state=JobState.ACTIVE))

    def describe(self) -> str:
        return f"edl resume tj/{self.job}"


def max_ladders(job: Job) -> Iterator[Ladder]:
    """Yield one ladder: the next sizes beyond the maximum.  A maximum between two of them changes nothing.

    A pin at the largest size has to go with it.
    """
    spec = replace(job.trainer, pinned_replicas=0)
    yield [RaiseMax(job=job.name, before=spec.max_replicas, to=to) for to in sizes_beyond(spec)]


def sizes_beyond(spec: TrainerSpec) -> list[int]:
    """Return the sizes that a larger maximum would allow, the first few."""
    found: list[int] = []
    high = size = spec.largest_allowed(spec.max_replicas)
    while len(found) < SIZES_TRIED and high < 2 * (spec.max_replicas + SIZES_TRIED * spec.step):
        high += 1
        if high > spec.max_replicas and replace(spec, max_replicas=high).largest_allowed(high) > size:
            size = high
            found.append(high)
    return found


def pin_ladders(job: Job) -> Iterator[Ladder]:
    """Yield the removal of a pin."""
    if job.trainer.pinned_replicas:
        yield [RemovePin(job=job.name, before=job.trainer.pinned_replicas)]


def resume_ladders(job: Job) -> Iterator[Ladder]:
    """Yield the end of a suspension."""
    if job.state is JobState.SUSPENDED:
        yield [Resume(job=job.name)]


def min_ladders(job: Job) -> Iterator[Ladder]:
    """Yield the smaller minimums, one by one."""
    low = job.trainer.min_replicas
    changes = [LowerMin(job=job.name, before=low, to=to) for to in range(low - 1, 0, -1)]
    yield [change for change in changes if is_possible(job.trainer, min_replicas=change.to)]


def step_ladders(job: Job) -> Iterator[Ladder]:
    """Yield the finer steps, one by one."""
    step = job.trainer.step
    changes = [ShortenStep(job=job.name, before=step, to=to) for to in range(step - 1, 0, -1)]
    yield [change for change in changes if is_possible(job.trainer, step=change.to)]


def edited(job: Job, **fields: Any) -> Job:
    """Return the job with other numbers in its trainers' part.  Raises InvalidSpecError."""
    return replace(job, trainer=replace(job.trainer, **fields))


def is_possible(spec: TrainerSpec, **fields: Any) -> bool:
    """True if a job's document may have these values."""
    try:
        replace(spec, **fields)
    except InvalidSpecError:
        return False
    return True
