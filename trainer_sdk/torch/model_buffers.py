"""Buffers of a PyTorch model in a group's step: running statistics of batch normalisation, counters, masks.

A forward pass changes them on each rank by the records of that rank.  At the end of a step every replica must hold the
same bits again (M10), so the changes are averaged by the ranks' shares of the step; whole numbers are those of the
lowest rank with a share.  A dropped step puts back what was there when it began.  Those of an accelerator are agreed
on in host memory.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch

from trainer_sdk.errors import UsageError
from trainer_sdk.torch.gradient_buckets import AllReduce

WHOLE: Final = frozenset({torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})


class ModelBuffers:
    """The buffers of one replica that are part of its state, in the order of their names."""

    def __init__(self, module: Any) -> None:
        """Raises UsageError, with its name, for a buffer that can be neither averaged nor copied."""
        saved = module.state_dict().keys()
        named = [(name, buffer) for name, buffer in module.named_buffers() if name in saved]
        for name, buffer in named:
            if buffer.device.type == "meta" or not (buffer.is_floating_point() or buffer.dtype in WHOLE):
                raise UsageError(
                    f"{name}: {buffer.dtype} on {buffer.device}; buffers of a group are real and have memory"
                )
        self._floating = [buffer for _, buffer in named if buffer.is_floating_point()]
        self._whole = [buffer for _, buffer in named if not buffer.is_floating_point()]
        self._before = [buffer.clone() for buffer in self._floating + self._whole]
        self._agreed: list[Any] = []  # of the step under way, once reduced

    def begin(self) -> None:
        """Remembers the buffers as they are at the step's beginning, the same bits on all ranks."""
        self._agreed = []
        for copy, buffer in zip(self._before, self._floating + self._whole, strict=True):
            copy.copy_(buffer)

    def drop(self) -> None:
        """The buffers are as they were at the step's beginning."""
        for copy, buffer in zip(self._before, self._floating + self._whole, strict=True):
            buffer.copy_(copy)

    def reduce(self, all_reduce: AllReduce, *, weight: float, rank: int, size: int) -> None:
        """Agrees with the other ranks; `weight` is this rank's part of the step's records, 0 without a share.

        At most three all-reduces, the same on all ranks.  Raises what they raise (StepAborted).
        """
        if size == 1:
            self._agreed = self._floating + self._whole
            return
        changes = self._changes(weight)
        if self._floating:
            all_reduce(changes)
        whole = _flat(self._whole, torch.int64)
        if self._whole:
            has_share = np.zeros(size, dtype=np.int64)
            has_share[rank] = weight > 0
            all_reduce(has_share)
            if rank != int(np.argmax(has_share)):  # the first with a share
                whole[...] = 0
            all_reduce(whole)
        before = self._before[: len(self._floating)]
        averages = _flat(before, torch.float64) + changes
        self._agreed = [*_split(averages, self._floating), *_split(whole, self._whole)]

    def apply(self) -> None:
        """The buffers are those agreed on.  After `reduce`, once the step is complete."""
        for value, buffer in zip(self._agreed, self._floating + self._whole, strict=True):
            if value is not buffer:
                buffer.copy_(value)

    def _changes(self, weight: float) -> Any:
        """This rank's weighted changes; no values are summed, so a constant stays as it is, to the last bit."""
        before = _flat(self._before[: len(self._floating)], torch.float64)
        if weight == 0:
            return np.zeros_like(before)
        now = _flat(self._floating, torch.float64)
        is_changed = now != before
        changes = np.zeros_like(before)
        np.subtract(now, before, out=changes, where=is_changed)  # an infinite mask minus itself is no number
        return changes * weight


def _flat(tensors: list[Any], dtype: Any) -> Any:
    parts = [tensor.detach().reshape(-1).to(dtype) for tensor in tensors]
    return torch.cat(parts).cpu().numpy() if parts else np.zeros(0)


def _split(flat: Any, buffers: list[Any]) -> list[Any]:
    """The parts of an array in host memory, on the device of the buffers."""
    if not buffers:
        return []
    parts = torch.from_numpy(flat).to(buffers[0].device).split([buffer.numel() for buffer in buffers])
    return [part.view(buffer.shape) for part, buffer in zip(parts, buffers, strict=True)]
