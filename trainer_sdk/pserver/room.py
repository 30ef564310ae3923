"""Arrays that have room for more than is in them: address space for a whole table, memory for what is written.

A server owns some blocks of a table, others tomorrow, and a step over its blocks is fast only where neighbours lie side
by side.  So every block has the place in memory that it has in the table, whoever owns it; what was never written, or
was given back, takes no memory.  Nothing is ever moved or joined.  Limit: where a system promises no more address space
than it has memory (vm.overcommit_memory=2), every server of a job needs that promise for the whole table.  ADR 0314.
"""

from __future__ import annotations

import mmap
import sys
from contextlib import suppress
from typing import Final

import numpy as np

from trainer_sdk.pserver.layout import Array

_SMALL_BYTES: Final = 1 << 20  # below it a page more or less does not matter
_HUGE: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)
_NO_RESERVE: Final = 0x4000 if sys.platform == "linux" else 0  # MAP_NORESERVE, which Python 3.11 does not name


class Room:
    """An array of zeros."""

    __slots__ = ("_map", "array")

    def __init__(self, count: int, dtype: np.dtype[np.generic], *, fills_up: bool = False) -> None:
        """`fills_up`: written from the front on, so it may come in huge pages, which make scattered reads faster."""
        size = count * dtype.itemsize
        self._map: mmap.mmap | None = None
        self.array: Array
        if size < _SMALL_BYTES:
            self.array = np.zeros(count, dtype)
        else:
            self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
            if fills_up and _HUGE is not None:
                with suppress(OSError):  # a system without them
                    self._map.madvise(_HUGE)
            self.array = np.frombuffer(self._map, dtype)

    def give_back(self, start: int, stop: int) -> None:
        """The elements start, ..., stop - 1 are zeros again, and whole pages of them take no memory."""
        if self._map is None:
            self.array[start:stop] = 0
            return
        item, page = self.array.itemsize, mmap.PAGESIZE
        low, high = -(-start * item // page) * page, stop * item // page * page
        if low >= high:
            self.array[start:stop] = 0
            return
        self.array[start : low // item] = 0
        self.array[high // item : stop] = 0
        self._map.madvise(mmap.MADV_DONTNEED, low, high - low)
