"""One server's blocks of a dense table: parameters and slots, with copy on write for forks.

An ordinary push is one vectorised step over each maximal run of blocks that this server owns.  Blocks that come and go
change the runs, never the place of a block (`lazy_array`).  A fork copies nothing when it is opened; before a block is
first written, or leaves, its old content is copied to the fork's arrays.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from master.api.identities import TableSpec
from master.api.positions import PositionSet
from trainer_sdk.pserver.tables.initialisers import initial_elements
from trainer_sdk.pserver.tables.layout import Array, DenseLayout
from trainer_sdk.pserver.tables.lazy_array import LazyArray
from trainer_sdk.pserver.tables.optimisers import UPDATE_RULES, update

_MAX_PLANS: Final = 256  # nearly always one is in use: all buckets of this server
_FILL: Final = 1 << 20  # elements given their first values at a time


class DenseArrays:
    """Values, slots and step counts of a table, live or of a fork.  Zeros until written."""

    __slots__ = ("_lazy_arrays", "arrays", "counts")

    def __init__(self, spec: TableSpec, layout: DenseLayout) -> None:
        dtype = np.dtype(spec.dtype)
        self._lazy_arrays = tuple(
            LazyArray(layout.size, dtype) for _ in range(len(UPDATE_RULES[spec.optimiser.kind].arrays))
        )
        self.arrays = tuple(lazy.array for lazy in self._lazy_arrays)  # values, then slots
        self.counts = np.zeros(layout.block_count, dtype=np.int64)  # stays zero unless the rule is counted

    def populate(self, start: int, end: int) -> None:
        for lazy in self._lazy_arrays:
            lazy.populate(start, end)

    def release(self, start: int, end: int) -> None:
        for lazy in self._lazy_arrays:
            lazy.release(start, end)


class _Piece(NamedTuple):
    """Run of blocks that one slice of a gradient steps."""

    first: int
    stop: int
    part: slice  # of the gradient
    live: tuple[Array, ...]  # the run's live values and slots


class DenseStore:
    """Blocks of one dense table; its callers know which buckets are on this server."""

    def __init__(self, spec: TableSpec, layout: DenseLayout, buckets: PositionSet) -> None:
        self.spec, self.layout = spec, layout
        self.dtype = np.dtype(spec.dtype)
        self._rule = UPDATE_RULES[spec.optimiser.kind]
        self._live = DenseArrays(spec, layout)
        self._fork: DenseArrays | None = None
        self._saved = np.ones(layout.block_count, dtype=bool)  # by block: the fork does not read the live content
        self._views: dict[PositionSet, tuple[Array, ...]] = {}
        self._plans: dict[tuple[PositionSet, PositionSet], tuple[_Piece, ...]] = {}
        if spec.initialiser.kind != "zeros":
            for start, end in layout.runs(buckets):
                for low in range(start, end, _FILL):
                    high = min(low + _FILL, end)
                    self._live.arrays[0][low:high] = initial_elements(spec, low, high)

    # ---- trainers ---------------------------------------------------------------------------------------------------

    def apply(self, buckets: PositionSet, gradient: Array, pushed: PositionSet, *, to_fork: bool) -> None:
        """One optimiser step of `buckets`, and with `to_fork` of the fork.

        `gradient` is flat, covers `layout.runs(pushed)`, and is overwritten.  `pushed` contains `buckets`, all of them
        on this server.
        """
        for piece in self._planned(buckets, pushed):
            given = gradient[piece.part]
            if self._fork is not None:
                self._save(piece.first, piece.stop, self._fork)
                if to_fork:
                    arrays = self._between(self._fork, piece.first, piece.stop)
                    self._step(piece, arrays, self._fork.counts, given.copy())
            self._step(piece, piece.live, self._live.counts, given)

    def read(self, buckets: PositionSet) -> tuple[Array, ...]:
        """The live values of `layout.runs(buckets)`, as views."""
        views = self._views.get(buckets)
        if views is None:
            if len(self._views) >= _MAX_PLANS:
                self._views.clear()
            values = self._live.arrays[0]
            views = self._views[buckets] = tuple(values[start:end] for start, end in self.layout.runs(buckets))
        return views

    def _planned(self, buckets: PositionSet, pushed: PositionSet) -> tuple[_Piece, ...]:
        key = (buckets, pushed)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            plan = self._plans[key] = tuple(self._pieces(buckets, pushed))
        return plan

    def _pieces(self, buckets: PositionSet, pushed: PositionSet) -> Iterator[_Piece]:
        """The runs of blocks, each with its slice of the gradient."""
        base = 0
        todo = self.layout.blocks(buckets)
        for first, stop in self.layout.blocks(pushed).ranges():
            start, end = self.layout.span(first, stop)
            for low, high in (todo & PositionSet.span(first, stop)).ranges():
                begin, finish = self.layout.span(low, high)
                part = slice(base + begin - start, base + finish - start)
                yield _Piece(low, high, part, self._between(self._live, low, high))
            base += end - start

    def _step(self, piece: _Piece, arrays: tuple[Array, ...], counts: Array, gradient: Array) -> None:
        optimiser = self.spec.optimiser
        if not self._rule.is_counted:
            update(optimiser, arrays[0], arrays[1:], gradient)
            return
        base = self.layout.span(piece.first, piece.stop)[0]
        for low, high, steps in _equally_stepped(counts, piece.first, piece.stop):
            start, end = self.layout.span(low, high)
            part = slice(start - base, end - base)
            update(optimiser, arrays[0][part], [slot[part] for slot in arrays[1:]], gradient[part], steps)

    # ---- cuts -------------------------------------------------------------------------------------------------------

    def open_fork(self, buckets: PositionSet) -> None:
        """From now on `forked` reads the blocks of these buckets as they are now."""
        self._fork = DenseArrays(self.spec, self.layout)
        self._fork.counts[:] = self._live.counts
        self._saved = np.ones(self.layout.block_count, dtype=bool)
        for first, stop in self.layout.blocks(buckets).ranges():
            self._saved[first:stop] = False

    def drop_fork(self) -> None:
        self._fork = None

    def forked(self, block: int) -> dict[str, Array]:
        """Copies of one block as of the fork, by their names in a file."""
        is_here = self._fork is None or not self._saved[block]
        return self._content(self._live if is_here or self._fork is None else self._fork, block)

    def _save(self, first: int, stop: int, fork: DenseArrays) -> None:
        """Copies blocks that are about to change and that the fork does not have yet."""
        saved = self._saved[first:stop]
        if saved.all():
            return
        edges = np.flatnonzero(np.diff(np.concatenate(([True], saved, [True])).astype(np.int8)))
        for low, high in edges.reshape(-1, 2):
            start, end = self.layout.span(first + int(low), first + int(high))
            for old, new in zip(self._live.arrays, fork.arrays, strict=True):
                new[start:end] = old[start:end]
        saved[:] = True

    # ---- blocks that come and go ------------------------------------------------------------------------------------

    def content(self, block: int) -> dict[str, Array]:
        """Copies of one live block, as `forked` has them."""
        return self._content(self._live, block)

    def install(self, block: int, arrays: Mapping[str, Array]) -> None:
        """Makes this block live with this content; slots that `arrays` lacks begin at zero."""
        start, end = self.layout.span(block, block + 1)
        for name, array in zip(self._rule.arrays, self._live.arrays, strict=True):
            array[start:end] = arrays["values"] if name == "values" else arrays.get(name, 0)
        self._live.counts[block] = arrays["steps"][0] if "steps" in arrays else 0

    def populate(self, bucket: int) -> None:
        """Makes memory ready for the bucket's block.  May be called without the lock."""
        for start, stop in self.layout.runs(PositionSet.of(bucket)):
            self._live.populate(start, stop)

    def size_bytes(self, bucket: int) -> int:
        """Bytes of the bucket's block; 0 if no block lies in it."""
        return len(self._live.arrays) * self.layout.count(PositionSet.of(bucket)) * self.dtype.itemsize

    def remove(self, buckets: PositionSet) -> None:
        """Releases the blocks of these buckets; what an open fork has of them stays."""
        for first, stop in self.layout.blocks(buckets).ranges():
            if self._fork is not None:
                self._save(first, stop, self._fork)
            self._live.release(*self.layout.span(first, stop))

    def _content(self, copy: DenseArrays, block: int) -> dict[str, Array]:
        start, end = self.layout.span(block, block + 1)
        names = self._rule.arrays
        out = {name: array[start:end].copy() for name, array in zip(names, copy.arrays, strict=True)}
        if self._rule.is_counted:
            out["steps"] = copy.counts[block : block + 1].copy()
        return out

    def _between(self, copy: DenseArrays, first: int, stop: int) -> tuple[Array, ...]:
        start, end = self.layout.span(first, stop)
        return tuple(array[start:end] for array in copy.arrays)


def _equally_stepped(counts: Array, first: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Runs of blocks with equal step counts, this step included; nearly always one run."""
    stepped = counts[first:stop]
    stepped += 1
    edges = [0, *(np.flatnonzero(np.diff(stepped)) + 1).tolist(), len(stepped)]
    for low, high in pairwise(edges):
        yield first + low, first + high, int(stepped[low])
