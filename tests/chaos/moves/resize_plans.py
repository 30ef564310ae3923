"""Which resize comes next and which faults land during it: drawn at random, or listed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tests.chaos.moves.failpoints import COPY_STEPS, Step
from tests.chaos.moves.fault_matrix import FaultMatrix, StepFault
from tests.chaos.moves.processes import JobProcesses
from tests.chaos.moves.resizes import RandomResizes, ServerResize

FAULTS_EACH = (3, 3, 4, 4, 5)
TOGETHER = 0.4  # of the resizes have all their steps armed at once; the others one after another


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedResize:
    """One resize and its faults.  `together`: all their steps are armed at once."""

    resize: ServerResize
    faults: Sequence[StepFault]
    together: bool = False


class ResizePlan(Protocol):
    """The resizes of a campaign, one after another."""

    def is_over(self, faults: int, resizes: int) -> bool:
        """True if these counts are enough."""

    def next(self, processes: JobProcesses) -> PlannedResize:
        """The next one."""

    def put_back(self, faults: Iterable[StepFault]) -> None:
        """No process reached the steps of these faults."""


class RandomPlan:
    """Random resizes with every fault once, then all of them again, until there are enough."""

    def __init__(self, rng: random.Random, *, faults: int, resizes: int, steps: Sequence[Step]) -> None:
        self._rng = rng
        self._least_faults, self._least_resizes = faults, resizes
        self._matrix = FaultMatrix(rng, steps)
        self._resizes = RandomResizes(rng)

    def is_over(self, faults: int, resizes: int) -> bool:
        return faults >= self._least_faults and resizes >= self._least_resizes

    def next(self, processes: JobProcesses) -> PlannedResize:
        resize = self._resizes.next(processes)
        steps = [step for step in processes.shape.kind.steps if resize.count > 1 or step not in COPY_STEPS]
        faults = self._matrix.draw(self._rng.choice(FAULTS_EACH), steps)
        is_provoked = any(fault.step in {Step.PROMOTE, Step.ALONE, Step.CHANGED} for fault in faults)
        together = is_provoked or self._rng.random() < TOGETHER  # arm brief steps before their cause
        return PlannedResize(resize=resize, faults=faults, together=together)

    def put_back(self, faults: Iterable[StepFault]) -> None:
        self._matrix.put_back(faults)


class FixedPlan:
    """Listed resizes, in their order; all steps of one are armed before it begins, so that none is over before."""

    def __init__(self, lines: Sequence[tuple[Callable[[JobProcesses], ServerResize], Sequence[StepFault]]]) -> None:
        self._lines = list(lines)
        self.missed: list[StepFault] = []

    def is_over(self, faults: int, resizes: int) -> bool:
        return not self._lines

    def next(self, processes: JobProcesses) -> PlannedResize:
        resize, faults = self._lines.pop(0)
        return PlannedResize(resize=resize(processes), faults=faults, together=True)

    def put_back(self, faults: Iterable[StepFault]) -> None:
        self.missed += faults
