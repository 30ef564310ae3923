"""Changes to the job's own document: maximum, pin, minimum, step or sizes, suspension.  Unit: one trainer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
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
    is_listed: bool = False

    def apply(self, inputs: PlanInputs) -> PlanInputs:
        job = inputs.job(self.job)
        return inputs.with_job(edited(job, max_replicas=self.to, sizes=with_size(job.trainer, self.to)))

    def describe(self) -> str:
        return f"{NumberChange.describe(self)}{in_sizes(self.to, is_listed=self.is_listed)}"


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
    is_listed: bool = False

    def apply(self, inputs: PlanInputs) -> PlanInputs:
        job = inputs.job(self.job)
        return inputs.with_job(edited(job, min_replicas=self.to, sizes=with_size(job.trainer, self.to)))

    def describe(self) -> str:
        return f"{NumberChange.describe(self)}{in_sizes(self.to, is_listed=self.is_listed)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortenStep(NumberChange):
    """A finer step between the allowed sizes."""

    subject: ClassVar = "step"
    kind: ChangeKind = ChangeKind.STEP

    def apply(self, inputs: PlanInputs) -> PlanInputs:
        return inputs.with_job(edited(inputs.job(self.job), step=self.to))


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerEfficiency:
    """Less asked of each further trainer; 0: nothing."""

    job: JobName
    before: float
    to: float
    kind: ChangeKind = ChangeKind.EFFICIENCY

    @property
    def amount(self) -> float:
        return self.before - self.to

    def apply(self, inputs: PlanInputs) -> PlanInputs:
        return inputs.with_job(edited(inputs.job(self.job), efficiency=self.to))

    def describe(self) -> str:
        return f"trainer.efficiency {self.to:g} in place of {self.before:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddSize(NumberChange):
    """One more size in the list, `before` being the next one that it has."""

    subject: ClassVar = "sizes"
    kind: ChangeKind = ChangeKind.STEP

    def apply(self, inputs: PlanInputs) -> PlanInputs:
        job = inputs.job(self.job)
        return inputs.with_job(edited(job, sizes=with_size(job.trainer, self.to)))

    def describe(self) -> str:
        return f"{self.to} before {self.before} in trainer.sizes"


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
    is_listed = bool(spec.sizes)
    yield [RaiseMax(job=job.name, before=spec.max_replicas, to=to, is_listed=is_listed) for to in sizes_beyond(spec)]


def sizes_beyond(spec: TrainerSpec) -> list[int]:
    """Return the sizes that a larger maximum would allow, the first few; of listed ones, what may be listed next."""
    if spec.sizes:
        return [spec.max_replicas + more * spec.per_node for more in range(1, SIZES_TRIED + 1)]
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


def efficiency_ladders(job: Job) -> Iterator[Ladder]:
    """Yield what less could be asked of a trainer, in twentieths, down to nothing."""
    asked = job.trainer.efficiency
    if asked:
        twentieths = range(ceil(asked * 20) - 1, -1, -1)
        yield [LowerEfficiency(job=job.name, before=asked, to=number / 20) for number in twentieths]


def min_ladders(job: Job) -> Iterator[Ladder]:
    """Yield the smaller minimums, one by one."""
    low = job.trainer.min_replicas
    is_listed = bool(job.trainer.sizes)
    changes = [LowerMin(job=job.name, before=low, to=to, is_listed=is_listed) for to in range(low - 1, 0, -1)]
    yield [
        change
        for change in changes
        if is_possible(job.trainer, min_replicas=change.to, sizes=with_size(job.trainer, change.to))
    ]


def step_ladders(job: Job, size: int) -> Iterator[Ladder]:
    """Yield the finer steps, one by one; where sizes are listed, one more between `size` and the next of them."""
    if job.trainer.sizes:
        yield size_ladder(job, size)
        return
    step = job.trainer.step
    changes = [ShortenStep(job=job.name, before=step, to=to) for to in range(step - 1, 0, -1)]
    yield [change for change in changes if is_possible(job.trainer, step=change.to)]


def size_ladder(job: Job, size: int) -> Ladder:
    """Return the sizes between `size` and the next one on the list, the largest first."""
    following = replace(job.trainer, pinned_replicas=0).next_size(size)
    if following is None or size < job.trainer.min_replicas:
        return []
    return [
        AddSize(job=job.name, before=following, to=to)
        for to in range(following - 1, size, -1)
        if is_possible(job.trainer, sizes=with_size(job.trainer, to))
    ]


def with_size(spec: TrainerSpec, size: int) -> tuple[int, ...]:
    """Return the listed sizes with one more; empty where none are listed."""
    return tuple(sorted({*spec.sizes, size})) if spec.sizes else ()


def in_sizes(size: int, *, is_listed: bool) -> str:
    """Return what else is to be written where sizes are listed."""
    return f" and {size} in trainer.sizes" if is_listed else ""


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
