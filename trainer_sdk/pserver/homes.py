"""Which bucket each row of a sparse table lies in, by the row's place, and which places are free again.

A bucket that moves takes its rows along: they are found by one pass over small numbers, not by hashing every id anew.
Places of rows that went are used again, but not while a fork is open: it tells by a row's place whether the row was
there at the cut.  Pure.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from trainer_sdk.pserver.layout import Array

Places = npt.NDArray[np.intp]
_NONE: Places = np.zeros(0, dtype=np.intp)
_CHUNK: Final = 1 << 17  # places looked at together: what is made of them stays in the cache


class Homes:
    """Of the places 0, 1, ..."""

    __slots__ = ("_free", "_homes", "_left", "_nowhere", "counts")

    def __init__(self, bucket_count: int) -> None:
        self._nowhere = bucket_count
        self._homes: Array = np.zeros(0, dtype=np.min_scalar_type(bucket_count))
        self._free = _NONE
        self._left: list[Places] = []  # rows went from here since `settle`
        self.counts = np.zeros(bucket_count, dtype=np.int64)  # rows by bucket

    def put(self, places: Places | slice, homes: Array, capacity: int) -> None:
        if capacity > len(self._homes):
            grown = np.full(capacity, self._nowhere, dtype=self._homes.dtype)
            grown[: len(self._homes)] = self._homes
            self._homes = grown
        self._homes[places] = homes
        self.counts += np.bincount(homes, minlength=self._nowhere)

    def of(self, bucket: int) -> Places:
        """Where its rows stand, in order."""
        homes = self._homes
        found = [np.flatnonzero(homes[low : low + _CHUNK] == bucket) + low for low in range(0, len(homes), _CHUNK)]
        return np.concatenate(found) if found else _NONE

    @property
    def capacity(self) -> int:
        return len(self._homes)

    @property
    def free_count(self) -> int:
        return len(self._free)

    def at(self, places: Places) -> Array:
        """The buckets of the rows at these places."""
        return self._homes[places]

    def are_of(self, bucket: int, places: Places) -> bool:
        """Whether these, each named once, are the places of all its rows."""
        return len(places) == self.counts[bucket] and bool((self._homes[places] == bucket).all())

    def leave(self, places: Places) -> None:
        """Their rows have gone.  The places are free from the next `settle` on."""
        self.counts -= np.bincount(self._homes[places], minlength=self._nowhere)
        self._homes[places] = self._nowhere
        self._left.append(places)

    def settle(self) -> Places:
        """No fork needs to know any more what stood where; the places that have become free by that."""
        freed = np.concatenate(self._left) if self._left else _NONE
        self._left.clear()
        self._free = np.concatenate((self._free, freed))
        return freed

    def take(self, count: int) -> Places:
        """Up to so many free places."""
        taken, self._free = self._free[:count], self._free[count:]
        return taken
