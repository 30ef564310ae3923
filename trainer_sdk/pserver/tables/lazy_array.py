"""Lazily populated arrays: address space for a whole table, memory only for what is written (ADR 0314).

A server owns some blocks of a table now and others later, and a step over its blocks is fast only if neighbours lie
side by side.  So every block has the same place in memory as in the table, whoever owns it.  Elements that were never
written, or were released, take no memory, and nothing is ever moved or joined.  Limit: a system that promises no more
address space than it has memory (vm.overcommit_memory=2) must promise the whole table to every server of a job.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from contextlib import suppress
from typing import Final

import numpy as np

from trainer_sdk.pserver.tables.layout import Array

_SMALL_BYTES: Final = 1 << 20  # below it a page more or less does not matter
_HUGE: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)
_SMALL: Final[int | None] = getattr(mmap, "MADV_NOHUGEPAGE", None)
_POPULATE: Final = 23  # MADV_POPULATE_WRITE of Linux 5.14, which Python does not name
_LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None  # a call through it leaves the interpreter alone
_NO_RESERVE: Final = 0x4000 if sys.platform == "linux" else 0  # MAP_NORESERVE, which Python 3.11 does not name


class LazyArray:
    """An array of zeros that takes memory as it is written."""

    __slots__ = ("_fills_up", "_map", "array")

    def __init__(self, count: int, dtype: np.dtype[np.generic], *, fills_up: bool = False) -> None:
        """`fills_up`: it is written from the front on, so huge pages are used, which make scattered reads faster."""
        size = count * dtype.itemsize
        self._fills_up = fills_up
        self._map: mmap.mmap | None = None
        self.array: Array
        if size < _SMALL_BYTES:
            self.array = np.zeros(count, dtype)
        else:
            self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
            if fills_up:
                self._advise(_HUGE, 0, size)
            self.array = np.frombuffer(self._map, dtype)

    def populate(self, start: int, stop: int) -> None:
        """Populates the memory of these elements where the system can; their content stays.

        The first touch of much memory takes milliseconds, too long under a lock.  May be called beside writers.  Small
        pages are used, which the system merges later: a huge page takes long to find in fragmented memory (4 MB in 10
        ms instead of 2).
        """
        if self._map is None or _LIBC is None:
            return
        item, page = self.array.itemsize, mmap.PAGESIZE
        low, high = start * item // page * page, min(-(-stop * item // page) * page, len(self._map))
        if low >= high:
            return
        if self._fills_up:
            self._advise(_SMALL, low, high)
        address = self.array.ctypes.data + low
        _LIBC.madvise(ctypes.c_void_p(address), ctypes.c_size_t(high - low), ctypes.c_int(_POPULATE))
        if self._fills_up:
            self._advise(_HUGE, low, high)

    def _advise(self, advice: int | None, low: int, high: int) -> None:
        """Advises the system about pages, from byte to byte; an unknown advice is ignored."""
        if self._map is not None and advice is not None:
            with suppress(OSError):
                self._map.madvise(advice, low, high - low)

    def release(self, start: int, stop: int) -> None:
        """Makes the elements start, ..., stop - 1 zeros again; whole pages of them take no memory."""
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
