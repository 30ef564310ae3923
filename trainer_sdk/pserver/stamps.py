"""Which rows were written since a bucket began to go ahead of itself: what is sent after the freeze (rule 42).

Rows are stamped as they are written, while any bucket is watched; otherwise a push pays nothing.  A copy is made beside
the pushes, without the lock: a row that changes under it has a later stamp than the watch, so it is sent again.  Pure.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trainer_sdk.pserver.homes import Homes, Places


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
