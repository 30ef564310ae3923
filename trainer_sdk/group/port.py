"""What a framework layer gives to a group (its replica), and what it gets (steps, and collectives that can be aborted).

    while isinstance(step := runtime.begin_step(), StepShare):
        try:
            for gradient in gradients_of(step.positions, step.records):
                runtime.all_reduce(gradient)
        except StepAborted:
            continue  # the same step comes again, maybe with another share
        if runtime.end_step():
            apply(gradients)

All calls come from the script's thread, except `all_reduce`, which one other thread may make in its place between
`begin_step` and `end_step`.  Pure: types alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy.typing as npt

from master.api.positions import EMPTY, PositionSet
from trainer_sdk.protocol.trainer_events import FinishReason

HostArray = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CapturedState:
    """A whole replica in host memory: everything of one step that the next one depends on (rule 66).

    The arrays are copies: training on does not change them.
    """

    arrays: Mapping[str, HostArray]  # by name, C-contiguous, of numbers
    meta: str = "{}"  # JSON: all that is no array
    dtypes: Mapping[str, str] = field(default_factory=dict)  # of arrays whose dtype NumPy lacks: bfloat16, as uint16


class ReplicaState(Protocol):
    """The script's replica; called in the script's thread, at step boundaries alone."""

    @property
    def layout(self) -> str:
        """Digest of names, shapes and dtypes, and of all else that must be equal on every rank."""
        ...

    def capture(self) -> CapturedState:
        """A copy of the replica as it is now."""
        ...

    def restore(self, captured: CapturedState) -> None:
        """The replica is this state afterwards.  When it raises, the replica is nothing (rule 66)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShare:
    """A step, and this rank's part of it."""

    step: int  # the first of the job is 0
    epoch: int
    positions: PositionSet  # of this rank; may be empty: it then contributes zeros
    records: int  # of the whole step, without the quarantined: what the sum of gradients is divided by
    rank: int
    size: int
    generation: int
    is_redo: bool = False  # the step was given before, and dropped
    spare: PositionSet = EMPTY  # without a share: records of the step that a script may run with, and that do not count


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFinish:
    """No more steps: the job has ended, or this trainer has left it.  `final_saver`: run the final hook."""

    reason: FinishReason
    final_saver: bool = False


class GroupRuntime(Protocol):
    """This process's place in the group."""

    def begin_step(self) -> StepShare | GroupFinish:
        """The next step, or the same one again after an abort; calling it says that the step before was applied.

        Waits for a generation, and brings the replica to its state (rules 70, 71).  From the end of the grace period on
        it is a finish, and collectives are aborted, so a step in hand ends soon.  Raises MasterUnavailableError when no
        master answered for the budget, UsageError if the master refuses this trainer.
        """
        ...

    def all_reduce(self, array: HostArray, *, dtype: str = "") -> None:
        """The array becomes the sum over all ranks, in place; in the same order at all ranks.

        `dtype` names one that NumPy lacks: "bfloat16", given as uint16.  Raises StepAborted as soon as the group
        breaks: the step is dropped, and `begin_step` comes next.
        """
        ...

    def end_step(self) -> bool:
        """True: the step is complete at this member, which applies it now.  False: it is dropped (rules 67, 68)."""
        ...

    def gather(self, data: bytes) -> list[bytes]:
        """What all members gave, by rank; between a complete, applied step and the next `begin_step`.

        Raises StepAborted when the group breaks: what was gathered for is done again after the next `begin_step`.
        """
        ...

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def step(self) -> int:
        """Steps that the replica has done."""
        ...

    @property
    def epoch(self) -> int: ...

    @property
    def is_leader(self) -> bool:
        """True for rank 0."""
        ...

    @property
    def is_draining(self) -> bool: ...
