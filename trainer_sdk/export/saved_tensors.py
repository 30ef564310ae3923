"""Tensors of a checkpoint, not yet read, and the parts that they belong to.  Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from trainer_sdk.errors import UsageError
from trainer_sdk.group.port import HostArray

MODEL: Final = "model"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SavedTensor:
    """One tensor.  `dtype` is NumPy's name, or that of a dtype that NumPy lacks, whose bits integers carry."""

    dtype: str
    carrier: np.dtype[Any]  # of the array that `load` gives
    shape: tuple[int, ...]
    source: str  # tensors of one source are one tensor: tied weights
    load: Callable[[], HostArray] = field(repr=False)

    @property
    def size_bytes(self) -> int:
        return self.carrier.itemsize * math.prod(self.shape)

    @property
    def is_carried(self) -> bool:
        """True if the array holds the bits of a dtype that NumPy lacks."""
        return self.dtype != self.carrier.name


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SavedPart:
    """One replicated object: its tensors by the names of its state_dict(), and the paths of what is no tensor."""

    name: str
    tensors: Mapping[str, SavedTensor]
    left_out: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        return sum(tensor.size_bytes for tensor in self.tensors.values())


def choose_part(parts: Mapping[str, SavedPart], name: str | None) -> SavedPart:
    """The part of this name; without one "model", or the only part.  Raises UsageError that lists the parts."""
    chosen = name or (MODEL if MODEL in parts else next(iter(parts)) if len(parts) == 1 else None)
    if chosen is None or chosen not in parts:
        problem = f"has no part {chosen!r}" if chosen else f"has no part {MODEL!r}, and several others"
        raise UsageError(f"this checkpoint {problem}; choose one of {', '.join(sorted(parts))} with --part")
    if not parts[chosen].tensors:
        raise UsageError(f"part {chosen!r} has no tensors: there is nothing that such a file could hold")
    return parts[chosen]
