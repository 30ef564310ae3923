"""The fault matrix: every combination of step, target and kind of fault, drawn in random order.

`step_fault_injector` carries a fault out.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.chaos.moves.failpoints import COPY_STEPS, CUT_STEPS, Step
from tests.harness.faults import FaultKind


class FaultTarget(StrEnum):
    SOURCE = "source"
    TARGET = "target"
    OWNER = "owner"  # of a bucket that has two copies
    BACKUP = "backup"
    BOTH = "both"  # owner and backup, shortly after one another
    MASTER = "master"
    TRAINER = "trainer"
    ETCD = "etcd"


_EVERY_MOVE: Final = (FaultTarget.MASTER, FaultTarget.TRAINER, FaultTarget.ETCD)
_OF_A_MOVE: Final = (FaultTarget.SOURCE, FaultTarget.TARGET, *_EVERY_MOVE)
_OF_COPIES: Final = (FaultTarget.OWNER, FaultTarget.BACKUP, FaultTarget.BOTH, *_EVERY_MOVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFault:
    step: Step
    target: FaultTarget
    kind: FaultKind

    def __str__(self) -> str:
        return f"{self.kind} {self.target} at {self.step}"


def _kills(target: FaultTarget, *steps: Step) -> tuple[StepFault, ...]:
    return tuple(StepFault(step=step, target=target, kind=FaultKind.KILL) for step in steps)


_LOSING: Final = (
    *_kills(FaultTarget.OWNER, Step.PASS, Step.PASSED),
    *_kills(FaultTarget.BACKUP, Step.PASS, Step.PASSED),
)

PREREQUISITES: Final[Mapping[Step, tuple[StepFault, ...]]] = {
    # the next master undoes the move that it finds
    Step.UNDO: _kills(FaultTarget.MASTER, Step.INTENT, Step.FREEZE, Step.HANDOVER, Step.INSTALLED),
    Step.PROMOTE: _LOSING,
    Step.ALONE: _LOSING,
}
"""Steps that no process reaches unless something has failed, and the faults that make it fail."""


def targets_at(step: Step) -> tuple[FaultTarget, ...]:
    return _OF_COPIES if step in COPY_STEPS else _OF_A_MOVE


class FaultMatrix:
    """Draws every fault once, in random order, then all of them again."""

    def __init__(self, rng: random.Random, steps: Iterable[Step]) -> None:
        self._rng = rng
        self._steps = tuple(steps)
        self._remaining: list[StepFault] = []

    def draw(self, count: int, steps: Collection[Step]) -> list[StepFault]:
        """About `count` faults at these steps, one a step: those of a cut first, the others in the order of a move.

        The prerequisite of a step is drawn with it.
        """
        drawn = self._draw(count, [step for step in self._steps if step in steps])
        drawn += [
            self._rng.choice(PREREQUISITES[step])
            for step in sorted({fault.step for fault in drawn} & PREREQUISITES.keys())
        ]
        by_step = {fault.step: fault for fault in drawn}
        self.put_back(fault for fault in drawn if fault not in by_step.values())
        order = [*CUT_STEPS, *(step for step in Step if step not in CUT_STEPS)]
        return sorted(by_step.values(), key=lambda fault: order.index(fault.step))

    def _draw(self, count: int, steps: Collection[Step]) -> list[StepFault]:
        """The next faults at these steps; faults that this job cannot have wait for another job."""
        while steps and sum(fault.step in steps for fault in self._remaining) < count:
            all_of_them = (
                (step, target, kind) for step in self._steps for target in targets_at(step) for kind in FaultKind
            )
            fresh = [StepFault(step=step, target=target, kind=kind) for step, target, kind in all_of_them]
            self._rng.shuffle(fresh)
            self._remaining = fresh + self._remaining
        drawn = [fault for fault in self._remaining[::-1] if fault.step in steps][:count]
        for fault in drawn:
            self._remaining.remove(fault)
        return drawn

    def put_back(self, faults: Iterable[StepFault]) -> None:
        """Returns faults that did not land: they are drawn again, but not at once."""
        for fault in faults:
            self._remaining.insert(self._rng.randint(0, len(self._remaining) // 2), fault)
