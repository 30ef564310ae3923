"""Which records stand at which positions, a window at a time.

One NumPy call costs the same for one index as for hundreds, so a window of the epoch's order is kept and batches are
slices of it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from master.api.identities import DatasetSpec
from master.api.positions import PositionSet
from trainer_sdk.permutation import Permutation, Records

WINDOW: Final = 16_384  # records computed at a time: about 2 ms, 128 KiB


class RecordOrder:
    """The record numbers of a data set, in the order in which its positions stand."""

    def __init__(self, dataset: DatasetSpec) -> None:
        self._dataset = dataset
        self._permutation: tuple[int, Permutation] | None = None  # of the epoch asked for last
        self._start = self._stop = 0  # positions that the window covers
        self._window: Records = np.empty(0, dtype=np.int64)

    def records(self, positions: PositionSet) -> Records:
        """The records at these positions, in their order: int64, shape (len(positions),).  They lie in one epoch."""
        bounds = positions.bounds
        if len(bounds) == 2:
            return self._range(bounds[0], bounds[1])
        return np.concatenate([self._range(start, stop) for start, stop in positions.ranges()])

    def _range(self, start: int, stop: int) -> Records:
        if not self._start <= start <= stop <= self._stop:
            self._fill(start, stop)
        return self._window[start - self._start : stop - self._start]

    def _fill(self, start: int, stop: int) -> None:
        size = self._dataset.size
        epoch = start // size
        first = epoch * size
        self._start, self._stop = start, min(max(stop, start + WINDOW), first + size)
        self._window = self._of_epoch(epoch).records(self._start - first, self._stop - first)
        self._window.flags.writeable = False

    def _of_epoch(self, epoch: int) -> Permutation:
        if self._permutation is None or self._permutation[0] != epoch:
            self._permutation = epoch, Permutation(self._dataset.size, seed=self._dataset.seed, epoch=epoch)
        return self._permutation[1]
