"""Memory of one connection that is used again for each message: fresh pages cost as much as the copy into them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trainer_sdk.pserver.layout import Array


class Scratch:
    """Arrays by slot; what a slot held is lost when it is asked for again."""

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots: dict[int, npt.NDArray[np.uint8]] = {}

    def array(self, slot: int, dtype: np.dtype[np.generic], count: int) -> Array:
        """An uninitialised one-dimensional array, aligned for every dtype."""
        size = count * dtype.itemsize
        held = self._slots.get(slot)
        if held is None or held.nbytes < size:
            held = self._slots[slot] = np.empty(size, dtype=np.uint8)
        return held[:size].view(dtype)

    def view(self, slot: int, size_bytes: int) -> memoryview:
        """Uninitialised, writable bytes."""
        return self.array(slot, np.dtype(np.uint8), size_bytes).data
