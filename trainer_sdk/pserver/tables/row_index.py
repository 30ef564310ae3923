"""Row index of a sparse table, by bucket, and the rows written since a move began.

A bucket that moves takes its rows along: they are found by one pass over small numbers, not by hashing every id again.
Places of rows that left are used again, but not while a fork is open: the fork decides by a row's place whether the row
was there at the cut.

A moving bucket's rows are sent while pushes continue, and rows written meanwhile are sent again after the freeze (rule
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


class RowIndex:
    """The bucket of the row at each place, and the free places."""

    __slots__ = ("_buckets", "_free", "_left", "_nowhere", "counts")

    def __init__(self, bucket_count: int) -> None:
        self._nowhere = bucket_count
        self._buckets: Array = np.zeros(0, dtype=np.min_scalar_type(bucket_count))
        self._free = _NONE
        self._left: list[Places] = []  # rows were removed from here since `reclaim`
        self.counts = np.zeros(bucket_count, dtype=np.int64)  # rows by bucket

    def put(self, places: Places | slice, buckets: Array, capacity: int) -> None:
        if capacity > len(self._buckets):
            grown = np.full(capacity, self._nowhere, dtype=self._buckets.dtype)
            grown[: len(self._buckets)] = self._buckets
            self._buckets = grown
        self._buckets[places] = buckets
        self.counts += np.bincount(buckets, minlength=self._nowhere)

    def places_of(self, bucket: int) -> Places:
        """Places of this bucket's rows, in order."""
        buckets = self._buckets
        found = [np.flatnonzero(buckets[low : low + _CHUNK] == bucket) + low for low in range(0, len(buckets), _CHUNK)]
        return np.concatenate(found) if found else _NONE

    @property
    def capacity(self) -> int:
        return len(self._buckets)

    @property
    def free_count(self) -> int:
        return len(self._free)

    def buckets_at(self, places: Places) -> Array:
        """The buckets of the rows at these places."""
        return self._buckets[places]

    def is_exactly(self, bucket: int, places: Places) -> bool:
        """True if these, each named once, are the places of all rows of this bucket."""
        return len(places) == self.counts[bucket] and bool((self._buckets[places] == bucket).all())

    def remove(self, places: Places) -> None:
        """Removes the rows at these places, which are free from the next `reclaim` on."""
        self.counts -= np.bincount(self._buckets[places], minlength=self._nowhere)
        self._buckets[places] = self._nowhere
        self._left.append(places)

    def reclaim(self) -> Places:
        """Frees the places of removed rows, once no fork needs them; returns those places."""
        freed = np.concatenate(self._left) if self._left else _NONE
        self._left.clear()
        self._free = np.concatenate((self._free, freed))
        return freed

    def pop_free(self, count: int) -> Places:
        """Takes up to so many free places."""
        taken, self._free = self._free[:count], self._free[count:]
        return taken


class DirtyRows:
    """Rows of one table written since their bucket is watched.  All but `written` under the lock of the rows."""

    __slots__ = ("_counts", "_now", "_since", "_stamps")

    def __init__(self) -> None:
        self._now = 0
        self._since: dict[int, int] = {}  # by watched bucket
        self._counts: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)  # writes by bucket
        self._stamps: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def watch(self, bucket: int, index: RowIndex) -> None:
        """Restarts the watch of this bucket."""
        if not self._since:
            self._counts = np.zeros(len(index.counts), dtype=np.int64)
        self._counts[bucket] = 0
        self._since[bucket] = self._now

    def end(self, bucket: int) -> None:
        if self._since.pop(bucket, None) is not None and not self._since:
            self._stamps = np.zeros(0, dtype=np.int64)

    def end_all(self) -> None:
        self._since.clear()
        self._stamps = np.zeros(0, dtype=np.int64)

    def mark_written(self, places: Places, index: RowIndex) -> None:
        """Rows at these places, whose buckets `index` knows, have just been written."""
        if not self._since:
            return
        if len(self._stamps) < index.capacity:
            grown = np.zeros(index.capacity, dtype=np.int64)
            grown[: len(self._stamps)] = self._stamps
            self._stamps = grown
        self._now += 1
        self._stamps[places] = self._now
        self._counts += np.bincount(index.buckets_at(places), minlength=len(self._counts))

    def count(self, bucket: int) -> int:
        """Upper bound of the rows written in a watched bucket: a row written twice counts twice."""
        return int(self._counts[bucket])

    def is_watched(self, bucket: int) -> bool:
        return bucket in self._since

    def written(self, bucket: int, places: Places) -> Places:
        """Those of the places that were written since the bucket is watched; all if it is not.

        Called without the lock, once the bucket is frozen.
        """
        stamps, since = self._stamps, self._since.get(bucket)
        if since is None:
            return places
        known = places[places < len(stamps)]
        return known[stamps[known] > since]
