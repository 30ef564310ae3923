"""The order of an epoch's records: a keyed permutation of [0, size), computed for any index on its own.

The master deals in positions and never needs the order, so no shuffled list is stored or sent: position p of epoch
e is record `permutation(seed, e)[p]`.  A four-round Feistel network permutes the smallest power of four that holds
`size`; what falls outside is permuted again until it falls inside ("cycle walking": Black and Rogaway, *Ciphers with
Arbitrary Finite Domains*, CT-RSA 2002), fewer than four times on average.  It shuffles; it is no cipher.

The order is part of every checkpoint's meaning: the constants below never change within a major version, and a test
holds the values they give.  One NumPy call costs the same for one index as for hundreds, so `RecordOrder` keeps a
window of the order, and batches are slices of it.  Pure.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from master.api.identities import DatasetSpec
from master.api.positions import PositionSet
from trainer_sdk.errors import UsageError

RecordNumbers = npt.NDArray[np.int64]

ROUNDS: Final = 4  # fewer Feistel rounds are distinguishable from random (Luby and Rackoff, 1988)
MAX_SIZE: Final = 2**62

_MASK: Final = 2**64 - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15  # SplitMix64's increment, 2**64 / golden ratio (Steele, Lea, Flood, OOPSLA 2014)
_MIX_1: Final = 0xBF58476D1CE4E5B9  # SplitMix64's two multipliers
_MIX_2: Final = 0x94D049BB133111EB


class Permutation:
    """A permutation of [0, size), the same on every machine for the same (size, seed, epoch).

    Raises ValueError when `size` is outside [1, 2**62] or `epoch` is negative.
    """

    __slots__ = ("_half_bits", "_keys", "_low", "size")

    def __init__(self, size: int, *, seed: int, epoch: int) -> None:
        if not 1 <= size <= MAX_SIZE:
            raise ValueError(f"size {size} is outside [1, 2**62]")
        if epoch < 0:
            raise ValueError(f"epoch {epoch} is negative")
        self.size = size
        self._half_bits = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
        self._low = np.uint64((1 << int(self._half_bits)) - 1)
        self._keys = _round_keys(seed, epoch)

    def records(self, start: int, stop: int) -> RecordNumbers:
        """The records at indices start, ..., stop - 1 of the epoch: int64, shape (stop - start,).

        Raises ValueError outside [0, size].
        """
        if not 0 <= start <= stop <= self.size:
            raise ValueError(f"indices [{start}, {stop}) are outside [0, {self.size})")
        return self._walk(np.arange(start, stop, dtype=np.uint64)).astype(np.int64)

    def _walk(self, index: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """Permute until inside; each index walks its own cycle, which returns to [0, size) at the latest at itself."""
        value = self._permute(index)
        outside = np.flatnonzero(value >= self.size)
        while outside.size:
            value[outside] = self._permute(value[outside])
            outside = outside[value[outside] >= self.size]
        return value

    def _permute(self, value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        left, right = value >> self._half_bits, value & self._low
        for key in self._keys:
            left, right = right, left ^ (_mixed(right + key) & self._low)
        return (left << self._half_bits) | right


def _mixed(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's output function, modulo 2**64; its best bits are the upper ones."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(_MIX_1)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(_MIX_2)
    return value >> np.uint64(32)


def _round_keys(seed: int, epoch: int) -> tuple[np.uint64, ...]:
    """One key a round, drawn by SplitMix64 from the seed, then the epoch."""
    state = _mixed_int(seed & _MASK)
    state = _mixed_int((state + (epoch + 1) * _GOLDEN) & _MASK)
    keys = []
    for _ in range(ROUNDS):
        state = (state + _GOLDEN) & _MASK
        keys.append(np.uint64(_mixed_int(state)))
    return tuple(keys)


def _mixed_int(value: int) -> int:
    value = ((value ^ (value >> 30)) * _MIX_1) & _MASK
    value = ((value ^ (value >> 27)) * _MIX_2) & _MASK
    return value ^ (value >> 31)


WINDOW: Final = 16_384  # records computed at a time: about 2 ms, 128 KiB
MOST_AT_ONCE: Final = 2**32  # records: 32 GiB of numbers alone


class RecordOrder:
    """The record numbers of a data set, in the order in which its positions stand."""

    def __init__(self, dataset: DatasetSpec) -> None:
        self._dataset = dataset
        self._permutation: tuple[int, Permutation] | None = None  # of the epoch asked for last
        self._start = self._stop = 0  # positions that the window covers
        self._window: RecordNumbers = np.empty(0, dtype=np.int64)

    def records(self, positions: PositionSet) -> RecordNumbers:
        """The records at these positions, in their order: int64, shape (len(positions),).  They lie in one epoch.

        The array is the caller's own, so a script may write to it; torch warns of arrays that are read-only.  Raises
        UsageError for more than MOST_AT_ONCE.
        """
        bounds = positions.bounds
        if not bounds:
            return np.empty(0, dtype=np.int64)
        if len(bounds) == 2:
            return self._range(bounds[0], bounds[1]).copy()
        return np.concatenate([self._range(start, stop) for start, stop in positions.ranges()])

    def _range(self, start: int, stop: int) -> RecordNumbers:
        if not self._start <= start <= stop <= self._stop:
            self._fill(start, stop)
        return self._window[start - self._start : stop - self._start]

    def _fill(self, start: int, stop: int) -> None:
        if stop - start > MOST_AT_ONCE:
            raise UsageError(
                f"batch_size: {stop - start:,} records at once are too many, {MOST_AT_ONCE:,} is the most; declare a "
                "smaller batch_size, in loader() a smaller global_batch or a micro_batch"
            )
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
