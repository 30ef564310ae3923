"""Where the rows of a sparse table stand, by bucket, and which of them were written since a move began.

A bucket that moves takes its rows along: they are found by one pass over small numbers, not by hashing every id anew.
Places of rows that left are used again, but not while a fork is open: the fork tells by a row's place whether the row
was there at the cut.

A moving bucket's rows are sent while pushes go on, and rows written meanwhile are sent again after the freeze (rule
42).  `DirtyRows` stamps rows as they are written while any bucket is watched; otherwise a push pays nothing.  The copy
is made without the lock: a row that changes under it has a later stamp than the watch, so it is sent again.  Pure.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from trainer_sdk.pserver.tables.layout import Array

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


class Stamps:
    """Of one table, by place.  All but `written` under the lock that guards the rows."""

    __slots__ = ("_counts", "_now", "_since", "_stamps")

    def __init__(self) -> None:
        self._now = 0
        self._since: dict[int, int] = {}  # by watched bucket
        self._counts: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)  # writes by bucket
        self._stamps: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def watch(self, bucket: int, homes: Homes) -> None:
        """From now on; a watch of before is over."""
        if not self._since:
            self._counts = np.zeros(len(homes.counts), dtype=np.int64)
        self._counts[bucket] = 0
        self._since[bucket] = self._now

    def end(self, bucket: int) -> None:
        """It is not watched any more."""
        if self._since.pop(bucket, None) is not None and not self._since:
            self._stamps = np.zeros(0, dtype=np.int64)

    def end_all(self) -> None:
        """Nothing is watched any more."""
        self._since.clear()
        self._stamps = np.zeros(0, dtype=np.int64)

    def note(self, places: Places, homes: Homes) -> None:
        """Rows at these places, of which the homes are known, have just been written."""
        if not self._since:
            return
        if len(self._stamps) < homes.capacity:
            grown = np.zeros(homes.capacity, dtype=np.int64)
            grown[: len(self._stamps)] = self._stamps
            self._stamps = grown
        self._now += 1
        self._stamps[places] = self._now
        self._counts += np.bincount(homes.at(places), minlength=len(self._counts))

    def count(self, bucket: int) -> int:
        """At most so many rows of a watched bucket were written; a row twice counts twice."""
        return int(self._counts[bucket])

    def is_watched(self, bucket: int) -> bool:
        return bucket in self._since

    def written(self, bucket: int, places: Places) -> Places:
        """Those of the places that were written since the bucket is watched; all if it is not.

        Without the lock, once the bucket is frozen.
        """
        stamps, since = self._stamps, self._since.get(bucket)
        if since is None:
            return places
        known = places[places < len(stamps)]
        return known[stamps[known] > since]
