"""Model that a NumPy script keeps itself: `own_model` is a replica of a group, and its batches are the group's steps.

    session.own_model(save=save, restore=restore)
    for batch in session.dataset("digits", size=1437, epochs=30, batch_size=32):
        gradient = sum_of_gradients(batch.indices)
        if batch.all_reduce(gradient):             # a script for one trainer needs no sum
            weights -= rate * gradient / batch.step_size
            batch.done()

A step of one trainer has no contributions to wait for, so it is complete before the script gets the batch: what the
script does then is the update (rules 67, 68), and nothing that happens to the group undoes it.  Not here: steps and
checkpoints (`group`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from trainer_sdk.dataset import Batch, GivenBatch, SumArray
from trainer_sdk.errors import StepAborted, UsageError
from trainer_sdk.group.array_files import bytes_of
from trainer_sdk.group.group_steps import GroupSteps
from trainer_sdk.group.port import CapturedState, StepShare

Arrays = Mapping[str, npt.NDArray[Any]]
SaveHook = Callable[[], Arrays]
RestoreHook = Callable[[Arrays | None], None]


class OwnModel:
    """The script's model as a `ReplicaState`.  Its names and shapes are not compared: only `save` knows them."""

    layout: Final = "own_model"

    def __init__(self, save: SaveHook, restore: RestoreHook) -> None:
        self._save, self._restore = save, restore
        self._has_begun = False

    def begin(self) -> None:
        """The script's model exists afterwards: `restore(None)` makes it, unless a checkpoint was restored before."""
        if not self._has_begun:
            self._restore(None)
            self._has_begun = True

    def capture(self) -> CapturedState:
        """Copies of what `save` gives.  Raises UsageError unless they are names and arrays of numbers."""
        self.begin()
        arrays: object = self._save()
        if not isinstance(arrays, Mapping) or not all(isinstance(key, str) for key in arrays):
            raise UsageError(f"own_model(save=...): save() gave {arrays!r:.80}; return a dict of names and arrays")
        copies = {key: np.array(array, order="C") for key, array in arrays.items()}
        for key, array in copies.items():
            if array.dtype.kind not in "biufc":
                raise UsageError(f"own_model(save=...): {key!r} is of {array.dtype}; save numbers, as an array each")
        return CapturedState(arrays=copies)

    def digests(self) -> Mapping[str, int]:
        """Of each array that `save` gives."""
        arrays = self.capture().arrays
        return {key: int.from_bytes(blake2b(bytes_of(one), digest_size=8).digest()) for key, one in arrays.items()}

    def restore(self, captured: CapturedState) -> None:
        self._has_begun = True
        self._restore(captured.arrays)


class StepBatches:
    """A `dataset.BatchSource`: each batch is this trainer's share of the group's next step."""

    def __init__(self, steps: GroupSteps, model: OwnModel) -> None:
        self._steps, self._model = steps, model
        self._share: StepShare | None = None
        self._is_complete = self._is_dropped = False

    def next_batch(self, last: Batch | None) -> GivenBatch | None:
        if last is not None and not last.is_done:
            self._close(last)
        while (share := self._steps.next_step()) is not None:
            self._model.begin()
            self._share, self._is_dropped = share, False
            is_alone = share.size == 1
            self._is_complete = (is_alone or not share.records) and self._steps.complete_step()
            if share.records and self._is_complete == is_alone:
                return GivenBatch(
                    flight=share.step,
                    epoch=share.epoch,
                    positions=share.positions,
                    step_size=share.records,
                    shown=share.positions or share.spare,
                )
        return None

    def all_reduce(self, arrays: tuple[SumArray, ...]) -> bool:
        if self._given.size == 1:
            return True
        if self._is_complete or self._is_dropped:
            raise UsageError("all_reduce() a second time: give all arrays of a batch at once")
        try:
            for array in arrays:
                if not self._given.positions:
                    array[...] = 0
                self._steps.all_reduce(array)
            self._is_complete = self._steps.end_step()
        except StepAborted:
            self._is_complete = False
        self._is_dropped = not self._is_complete
        return self._is_complete

    def finish(self, batch: Batch, metrics: Mapping[str, float]) -> None:
        """After a sum that failed it counts nothing: the same step comes again."""
        if not (self._is_complete or self._is_dropped):
            raise UsageError(
                f"{batch} is not summed: {self._given.size} trainers each hold this model. Call "
                "batch.all_reduce(*gradients) before the update, or set spec.trainer.maxReplicas to 1"
            )
        if self._is_complete:
            self._steps.report(metrics)

    def _close(self, batch: Batch) -> None:
        """Ends a batch that was summed, as `done` would.  Raises UsageError: nobody knows if another one is trained."""
        if self._given.size == 1 or not (self._is_complete or self._is_dropped):
            raise UsageError(f"{batch} was given and never finished: call done() on each batch")
        batch.close()

    @property
    def _given(self) -> StepShare:
        assert self._share is not None
        return self._share
