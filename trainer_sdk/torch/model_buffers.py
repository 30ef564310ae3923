"""Buffers of a PyTorch model in a group's step: running statistics of batch normalisation, counters, masks.

A forward pass changes them on each rank by the records of that rank.  At the end of a step every replica must hold the
same bits again (M10), so the changes are averaged by the ranks' shares of the step; whole numbers are those of the
lowest rank with a share.  Running statistics of normalisation layers are updated once a step, whatever the number of
micro-batches: each begins with those of the step before, and the changes are averaged by the micro-batches' records.
A dropped step puts back what was there when it began.  Those of an accelerator are agreed on in host memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from torch.nn.modules.batchnorm import _NormBase

from trainer_sdk.errors import UsageError
from trainer_sdk.torch.gradient_buckets import AllReduce

WHOLE: Final = frozenset({torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
# Larger ones, as attention masks, are not summed where their bits are those of the step's beginning at every rank.
# torch's own count of changes does not tell: it leaves out those by way of `.data`, as of a codebook.
LARGE_BYTES: Final = 1 << 20
_BITS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by the bytes of an element


@dataclass(slots=True, eq=False)
class _Buffer:
    """One buffer.  A module may put another tensor in its place, so it is looked up by its name there."""

    name: str
    owner: Any
    key: str  # of `owner`
    before: Any = field(init=False)  # a copy of it as it was when the step began
    tensor: Any = field(init=False)  # the one that was there
    is_statistic: bool = field(init=False)  # of a normalisation layer
    is_large: bool = field(init=False)

    def __post_init__(self) -> None:
        self.tensor = self.now
        self.before = self.tensor.detach().clone()
        self.is_statistic = issubclass(class_of(self.owner), _NormBase)
        self.is_large = self.before.numel() * self.before.element_size() > LARGE_BYTES and not self.is_statistic

    @property
    def now(self) -> Any:
        return self.owner._buffers[self.key]  # noqa: SLF001  what get_buffer() looks up, by a path

    @property
    def has_changed(self) -> bool:
        """False: its bits are those with which the step began."""
        bits = _BITS[self.before.element_size()]  # a number that is none is unequal to itself, and -0.0 equal to 0.0
        return not torch.equal(self.now.detach().view(bits), self.before.view(bits))

    def follow(self) -> Any:
        """The tensor that is there now, from which a step begins."""
        now = self.owner._buffers[self.key]  # noqa: SLF001
        if now is not self.tensor:
            self.check()
            self.tensor = now
        return now

    def restore(self) -> None:
        self.tensor.copy_(self.before)
        self.owner._buffers[self.key] = self.tensor  # noqa: SLF001

    def check(self) -> None:
        """Raises UsageError if the module has put something else in its place."""
        now, before = self.now, self.before
        if now is self.tensor:
            return
        if now is None or (now.shape, now.dtype, now.device) != (before.shape, before.dtype, before.device):
            what = "nothing" if now is None else f"{now.dtype} {tuple(now.shape)} on {now.device}"
            raise UsageError(
                f"{self.name}: was {before.dtype} {tuple(before.shape)} on {before.device}, is {what} after a step; a "
                "buffer of a group keeps its shape, or is no state: register_buffer(..., persistent=False)"
            )


class ModelBuffers:
    """The buffers of one replica that are part of its state, in the order of its modules and of their names.

    Each is there once, also where one module has another within, as an average the averaged model.
    """

    def __init__(self, *modules: Any) -> None:
        """Raises UsageError, with its name, for a buffer that can be neither averaged nor copied."""
        found = _buffers_of(modules)
        floating = [one for one in found if one.before.is_floating_point()]
        self._statistics = [one for one in floating if one.is_statistic]
        self._floating = [*self._statistics, *(one for one in floating if not one.is_statistic)]
        self._whole = [one for one in found if not one.before.is_floating_point()]
        self._counters = [one for one in self._whole if one.is_statistic]
        self._large = [one for one in found if one.is_large]
        self._all = found
        self._earlier: Any = None  # weighted changes of the statistics by micro-batches before the last
        self._agreed: list[tuple[_Buffer, Any]] = []  # of the step under way, once reduced

    def begin(self) -> None:
        """Remembers the buffers as they are at the step's beginning, the same bits on all ranks."""
        self._agreed, self._earlier = [], None
        with torch.no_grad():
            if self._all:
                now = [one.follow() for one in self._all]
                torch._foreach_copy_([one.before for one in self._all], now)

    def drop(self) -> None:
        """The buffers are as they were at the step's beginning."""
        with torch.no_grad():
            for one in self._all:
                one.restore()

    def end_part(self, weight: float) -> None:
        """A micro-batch that others follow has been trained; `weight` is its part of the step's records."""
        if not self._statistics:
            return
        with torch.no_grad():
            before, now = (_joined(tensors) for tensors in _both(self._statistics))
            change = torch.where(now != before, now - before, 0) * weight
            self._earlier = change if self._earlier is None else self._earlier + change
            for one in (*self._statistics, *self._counters):
                one.restore()

    def reduce(
        self, all_reduce: AllReduce, *, weight: float, rank: int, size: int, last_weight: float | None = None
    ) -> None:
        """Agrees with the other ranks; `weight` is this rank's part of the step's records, 0 without a share.

        `last_weight`: that of its last micro-batch, if it had several.  At most three all-reduces, the same on all
        ranks.  Raises what they raise (StepAborted), and UsageError for a buffer that has another shape now.
        """
        for one in self._all:
            one.check()
        last = weight if last_weight is None else last_weight
        if size == 1:
            if self._earlier is not None:
                changes = self._changes(self._statistics, weight, last)
                self._agreed = _averages(self._statistics, changes)
            return
        told = np.zeros(size + len(self._large), dtype=np.int64)  # who has a share, and which large ones have changed
        told[rank] = weight > 0
        told[size:] = [one.has_changed for one in self._large]
        if self._whole or self._large:
            all_reduce(told)
        still = {one for one, ranks in zip(self._large, told[size:], strict=True) if not ranks}
        floating = [one for one in self._floating if one not in still]
        whole = [one for one in self._whole if one not in still]
        if floating:
            changes = self._changes(floating, weight, last)
            all_reduce(changes)
            self._agreed += _averages(floating, changes)
        if whole:
            values = _flat([one.now for one in whole], torch.int64)
            if rank != int(np.argmax(told[:size])):  # the first with a share
                values[...] = 0
            all_reduce(values)
            self._agreed += _split(values, whole)

    def apply(self) -> None:
        """The buffers are those agreed on.  After `reduce`, once the step is complete."""
        with torch.no_grad():
            for one, value in self._agreed:
                one.now.copy_(value)

    def _changes(self, floating: Sequence[_Buffer], weight: float, last_weight: float) -> Any:
        """This rank's weighted changes; no values are summed, so a constant stays as it is, to the last bit."""
        before, now = (_flat(tensors, torch.float64) for tensors in _both(floating))
        changes = np.zeros_like(before)
        if weight == 0:
            return changes
        np.subtract(now, before, out=changes, where=now != before)  # an infinite mask minus itself is no number
        if self._earlier is None:
            changes *= weight
        else:
            statistics = len(self._earlier)  # which come first
            changes[:statistics] *= last_weight
            changes[:statistics] += self._earlier.cpu().numpy()
            changes[statistics:] *= weight
        return changes


def class_of(layer: Any) -> Any:
    """The class of a layer as it was written: a scripted one of torch is of a class that says nothing of it."""
    if isinstance(layer, torch.jit.ScriptModule):
        return getattr(torch.nn, layer.original_name, torch.nn.Module)
    return type(layer)


def _buffers_of(modules: Iterable[Any]) -> list[_Buffer]:
    found: dict[int, _Buffer] = {}  # by their tensors, which they keep alive
    for module in modules:
        saved = module.state_dict().keys()
        for path, owner in module.named_modules():
            for key, buffer in owner._buffers.items():  # noqa: SLF001
                name = f"{path}.{key}" if path else key
                if buffer is None or name not in saved or id(buffer) in found:
                    continue
                is_real = buffer.is_floating_point() or buffer.dtype in WHOLE
                if buffer.device.type == "meta" or not is_real:
                    raise UsageError(
                        f"{name}: {buffer.dtype} on {buffer.device}; buffers of a group are real and have memory"
                    )
                found[id(buffer)] = _Buffer(name, owner, key)
    return list(found.values())


def _both(buffers: Sequence[_Buffer]) -> tuple[list[Any], list[Any]]:
    return [one.before for one in buffers], [one.now for one in buffers]


def _joined(tensors: list[Any]) -> Any:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors]).to(torch.float64)


def _flat(tensors: list[Any], dtype: Any) -> Any:
    parts = [tensor.detach().reshape(-1).to(dtype) for tensor in tensors]
    return torch.cat(parts).cpu().numpy() if parts else np.zeros(0)


def _averages(buffers: Sequence[_Buffer], changes: Any) -> list[tuple[_Buffer, Any]]:
    return _split(_flat([one.before for one in buffers], torch.float64) + changes, buffers)


def _split(flat: Any, buffers: Sequence[_Buffer]) -> list[tuple[_Buffer, Any]]:
    """The parts of an array in host memory, on the device of the buffers, each with its buffer."""
    befores = [one.before for one in buffers]
    parts = torch.from_numpy(flat).to(befores[0].device).split([before.numel() for before in befores])
    return [(one, part.view(one.before.shape)) for one, part in zip(buffers, parts, strict=True)]
