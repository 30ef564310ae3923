"""Rows by id, added as they are first trained: an index from id to place, and values, slots and counts by place.

The index has one int32 for each possible id, zero meaning "never trained": the system counts its memory only where ids
occur.  Values and slots likewise have address space for all rows (`lazy_array`).  The live rows of a sparse table and a
fork's copies are stored this way.  Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from master.api.identities import TableSpec
from trainer_sdk.pserver.tables.layout import Array, Ids, row_width
from trainer_sdk.pserver.tables.lazy_array import LazyArray
from trainer_sdk.pserver.tables.optimisers import UPDATE_RULES, update
from trainer_sdk.pserver.tables.row_index import Places

NO_ROW: Final = -1  # in `ids`, where a row stood
_NO_PLACES: Final[Places] = np.zeros(0, dtype=np.intp)


class RowStore:
    """Values, slots and step counts of rows, by place."""

    __slots__ = (
        "_counts",
        "_index",
        "_lazy_arrays",
        "_populated",
        "_rule",
        "_spec",
        "_width",
        "arrays",
        "count",
        "ids",
    )

    def __init__(self, spec: TableSpec) -> None:
        self._spec = spec
        self._rule = UPDATE_RULES[spec.optimiser.kind]
        self._width = row_width(spec)
        self._index = np.zeros(spec.shape[0], dtype=np.int32)  # place + 1
        self.ids: Ids = np.zeros(0, dtype=np.int64)  # NO_ROW at the place of a removed row
        self.arrays: list[Array] = [self._empty(0) for _ in range(len(self._rule.arrays))]  # values, then slots
        self._counts = np.zeros(0, dtype=np.int32)
        self.count = 0
        self._lazy_arrays: list[LazyArray] = []
        self._populated = 0  # memory is ready up to this place

    def places(self, ids: Ids) -> Places:
        """The place of each row; -1 for a row that is not here."""
        return self._index[ids].astype(np.intp) - 1

    def read(self, places: Places) -> dict[str, Array]:
        """Copies of rows, by their names in a file."""
        arrays = zip(self._rule.arrays, self.arrays, strict=True)
        out = {name: array.take(places, axis=0) for name, array in arrays}
        if self._rule.is_counted:
            out["steps"] = self._counts[places].astype(np.int64)
        return out

    def add(self, ids: Ids, arrays: Mapping[str, Array], free: Places = _NO_PLACES) -> Places:
        """Adds rows that are not here yet, each id once, to free places first; returns their places.

        Slots that `arrays` lacks begin at zero.
        """
        stop = self.count + len(ids) - len(free)
        if stop > len(self.ids):
            self._grow(stop)
        places = np.concatenate((free, np.arange(self.count, stop)))
        new = places if len(free) else slice(self.count, stop)
        self.ids[new] = ids
        for name, array in zip(self._rule.arrays, self.arrays, strict=True):
            array[new] = arrays.get(name, 0)
        self._counts[new] = arrays.get("steps", 0)
        self._index[ids] = places + 1
        self.count = stop
        return places

    def write(self, places: Places, arrays: Mapping[str, Array]) -> None:
        """Overwrites these rows, each place once."""
        for name, array in zip(self._rule.arrays, self.arrays, strict=True):
            array[places] = arrays.get(name, 0)
        self._counts[places] = arrays.get("steps", 0)

    def populator(self, count: int) -> Callable[[], None]:
        """A function that makes memory ready for so many more rows; it may run beside a thread that writes here."""
        start, stop = max(self._populated, self.count), min(self.count + count, self._spec.shape[0])
        if stop > len(self.ids):
            self._grow(stop)
        self._populated = max(self._populated, stop)
        lazy_arrays, width = tuple(self._lazy_arrays), self._width

        def make_ready() -> None:
            for lazy in lazy_arrays:
                lazy.populate(start * width, stop * width)

        return make_ready

    def remove(self, places: Places) -> None:
        """Removes these rows.  Their ids stay in `ids` until `wipe`, for a fork to read."""
        self._index[self.ids[places]] = 0

    def wipe(self, places: Places) -> None:
        """Clears the ids of removed rows."""
        self.ids[places] = NO_ROW

    def step(self, places: Places, gradient: Array) -> None:
        """One optimiser step of these rows, each place once; overwrites `gradient`."""
        parts = [array.take(places, axis=0) for array in self.arrays]
        steps: Array | int = 0
        if self._rule.is_counted:
            self._counts[places] += 1
            steps = self._counts[places]
        update(self._spec.optimiser, parts[0], parts[1:], gradient, steps)
        for array, part in zip(self.arrays, parts, strict=True):
            array[places] = part

    def _empty(self, capacity: int) -> Array:
        return np.empty((capacity, self._width), dtype=self._spec.dtype)

    def _grow(self, wanted: int) -> None:
        """Grows by half, so that the cost for each row is constant; values and slots get address space at once."""
        capacity, rows = len(self.ids) * 3 // 2, self._spec.shape[0]
        if wanted <= rows:  # more places than rows are needed only beside a fork
            capacity = min(capacity, rows)
        capacity = max(capacity, wanted, 1024)
        self.ids = _grown(self.ids, self.count, lambda: np.empty(capacity, dtype=np.int64))
        self._counts = _grown(self._counts, self.count, lambda: np.empty(capacity, dtype=np.int32))
        if capacity > len(self.arrays[0]):
            self._lazy_arrays, self._populated = [], 0
            self.arrays = [_grown(array, self.count, lambda: self._new_lazy(capacity)) for array in self.arrays]

    def _new_lazy(self, capacity: int) -> Array:
        """Room for every row of the table, so that none is copied while pushes wait, if the system has it."""
        count = max(capacity, self._spec.shape[0])
        try:
            lazy = LazyArray(count * self._width, np.dtype(self._spec.dtype), fills_up=True)
        except (OSError, OverflowError):  # a system that promises no more memory than it has
            return self._empty(capacity)
        self._lazy_arrays.append(lazy)
        return lazy.array.reshape(count, self._width)


def _grown(old: Array, count: int, make: Callable[[], Array]) -> Array:
    new = make()
    new[:count] = old[:count]
    return new
