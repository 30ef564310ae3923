"""One step of a group at one trainer, from its first micro-batch to the moment at which it is complete, or dropped."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import torch

from trainer_sdk.errors import StepAborted, UsageError
from trainer_sdk.group.group_steps import GroupSteps
from trainer_sdk.group.port import StepShare
from trainer_sdk.torch.micro_batches import MicroBatch
from trainer_sdk.torch.seeds import UPDATE, seed_torch
from trainer_sdk.torch.training_replica import TrainingReplica

_NO_OPTIMIZER: Final = (
    "edl: step {step} is complete and no optimizer.step() was called, so its gradients are lost; call it in each round "
    "of the loop after loader.backward(), without a condition (loader(micro_batch=...) accumulates) and not in a hook\n"
)


class StepInHand:
    """The step that the loop works on.

    It ends with the backward pass of its last micro-batch.  Complete: gradients are those of the whole step, buffers
    are the group's, the gate is open.  Dropped: no gradients, buffers as before, and the same step comes again.
    """

    def __init__(self, steps: GroupSteps, replica: TrainingReplica) -> None:
        self._steps, self._replica = steps, replica
        self._share: StepShare | None = None
        self._last_weight = 0.0  # of the last micro-batch
        self._sample = ""
        self._has_told = False
        self.has_ended = True

    @property
    def is_complete(self) -> bool:
        """True from the end of a complete step until `apply`: what the loop changes belongs to that step."""
        return self._replica.gate.is_open

    @property
    def steps_done(self) -> int:
        """Steps of the job up to the complete one in hand; 0: none is."""
        return self._share.step + 1 if self._share is not None and self.is_complete else 0

    def apply(self) -> None:
        """The loop asks for more: what it has changed since the step was complete is all of it.

        Tells once of a step without a call of an optimizer: its records count, and its gradients are lost.
        """
        gate, share = self._replica.gate, self._share
        if gate.is_open and share is not None and share.records and not gate.optimizer_calls and not self._has_told:
            self._has_told = True
            sys.stderr.write(_NO_OPTIMIZER.format(step=share.step + 1))
        gate.is_open = False

    def begin(self, share: StepShare, parts: Sequence[MicroBatch], sample: str = "") -> None:
        """The parts are this trainer's micro-batches; `sample` is what `data_digest` says of the share's sample."""
        self._share, self._sample, self.has_ended = share, sample, False
        self._last_weight = parts[-1].weight if parts else 0.0
        is_alone = share.size == 1 and len(parts) == 1 and parts[0].weight == 1
        self._replica.check_parameters()
        self._replica.buckets.begin(None if is_alone else self._steps.all_reduce, is_shared=share.size > 1)
        self._replica.buffers.begin()

    def contribute(self, loss: Any, part: MicroBatch) -> None:
        """Adds the gradients of this part's mean loss.  A spare part adds none, whatever its loss is.

        Once the group has broken the remaining parts are not computed.  Raises UsageError for what is no loss.
        """
        _check_loss(loss)
        if self._steps.is_step_dropped:
            self._drop()
            return
        try:
            if part.weight:
                if part.is_last:
                    self._replica.buckets.reduce_as_ready()
                self._replica.buckets.backward(loss * part.weight if part.weight != 1 else loss)
                if not part.is_last:
                    self._replica.buffers.end_part(part.weight)
            if part.is_last:
                self.end()
        except StepAborted:
            self._drop()

    def end(self) -> None:
        """All gradients of this trainer are in.  Raises StepAborted."""
        share = self._share
        assert share is not None
        self._steps.computed(is_known=not self._replica.buckets.is_on_accelerator)  # its kernels may only be queued
        self._replica.buckets.finish()
        weight = len(share.positions) / share.records if share.records else 0.0
        self._replica.buffers.reduce(
            self._steps.all_reduce,
            weight=weight,
            rank=share.rank,
            size=share.size,
            last_weight=self._last_weight,
        )
        self._replica.buckets.check_device()
        if not self._steps.end_step(sample=self._sample):
            self._drop()
            return
        self._replica.buffers.apply()
        self._replica.buckets.deliver()
        self.has_ended = True
        seed_torch(self._steps.spec.seed, share.step, UPDATE)  # else each rank goes on from its own last micro-batch
        self._replica.gate.open()

    def end_without_parts(self) -> None:
        """Ends a step that has no record to train."""
        try:
            self.end()
        except StepAborted:
            self._drop()

    def _drop(self) -> None:
        self.has_ended = True
        self._replica.buckets.drop()
        self._replica.buffers.drop()


def _check_loss(loss: Any) -> None:
    """Raises UsageError; torch's own error would be taken for one of the records."""
    if not isinstance(loss, torch.Tensor):
        raise UsageError(
            f"backward(): the loss is a {type(loss).__name__}; give the tensor that the loss function returned, not "
            "its item()"
        )
    if loss.numel() != 1:
        raise UsageError(
            f"backward(): the loss is a tensor of shape {tuple(loss.shape)}; give its mean over the micro-batch, "
            "loss.mean()"
        )
    if not loss.requires_grad:
        raise UsageError(
            "backward(): the loss has no gradient: it was detached, computed under torch.no_grad(), or of nothing that "
            "is trained"
        )
