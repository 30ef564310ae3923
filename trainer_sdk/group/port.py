"""Port of a group to framework layers: the replica that they give, and the steps that they get.  Pure: types alone.

The calls that give steps, and collectives that can be aborted, are those of `group_steps.GroupSteps`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
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


class Rows(NamedTuple):
    """Rows of an array's first dimension; of a scalar the one that it is."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayShape:
    """An array of a replica; `dtype` as NumPy writes it, of the integers for a dtype that NumPy lacks."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return np.dtype(self.dtype).itemsize * prod(self.shape)

    @property
    def rows(self) -> int:
        return self.shape[0] if self.shape else 1

    def cut(self, rows: Rows) -> ArrayShape:
        """The shape of these rows of it."""
        shape = (rows.end - rows.begin, *self.shape[1:]) if self.shape else ()
        return ArrayShape(dtype=self.dtype, shape=shape)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CapturedShard:
    """One of `shards` parts of a whole replica in host memory, as `array_cuts.cut_rows` cuts it (rule 84)."""

    shard: int
    shards: int
    arrays: Mapping[str, ArrayShape]  # all of the replica's, also those that this shard has nothing of
    rows: Mapping[str, Rows]  # of the arrays that it has a part of
    pieces: Mapping[str, HostArray]  # these rows
    meta: str  # of the replica, in the first shard; empty in others
    dtypes: Mapping[str, str]  # of all arrays whose dtype NumPy lacks


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


@runtime_checkable
class ShardedReplica(Protocol):
    """A replica that can be captured in parts, so that each rank copies one of them for a checkpoint (rule 84)."""

    def replica_bytes(self) -> int:
        """Bytes of a capture, as far as they are known now: less than all of it costs shards, nothing else."""
        ...

    def capture_shard(self, shard: int, shards: int) -> CapturedShard:
        """A copy of this part of the replica as it is now."""
        ...


@runtime_checkable
class ComparableReplica(Protocol):
    """A replica that has digests, by which members see that they hold the same bits (rule 65)."""

    def digests(self) -> Mapping[str, int]:
        """64 bits of each part of the replica as it is now, by name, in one order: equal where all bits are equal."""
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
    sample: PositionSet = EMPTY  # of the step before: read by all ranks, whose digests are compared in `end_step`
    spare: PositionSet = EMPTY  # without a share: trained records that a script may run with, and that do not count


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFinish:
    """No more steps: the job has ended, or this trainer has left it.  `final_saver`: run the final hook."""

    reason: FinishReason
    final_saver: bool = False
