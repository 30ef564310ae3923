"""One server's part of a dense table: parameters and slots in the fewest arrays, copied on the first write after a cut.

A `Segment` is a maximal run of blocks that this server owns, so an ordinary push is one vectorised step over one array.
A fork copies nothing when it is opened; before a block is first written its old content goes to the fork's arrays.
Those are allocated whole and touched block by block, so memory grows by what training touches, once.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

import numpy as np

from master.api.identities import TableSpec
from master.api.positions import PositionSet
from trainer_sdk.pserver.initialisers import initial_elements
from trainer_sdk.pserver.layout import Array, DenseLayout
from trainer_sdk.pserver.optimisers import RULES, update

_MAX_PLANS: Final = 256  # nearly always one is in use: all buckets of this server


class Copy:
    """Values, slots and step counts of a run of blocks: the live ones, or those of a fork."""

    __slots__ = ("counts", "slots", "values")

    def __init__(self, *, values: Array, slots: tuple[Array, ...], counts: Array) -> None:
        self.values = values
        self.slots = slots
        self.counts = counts  # one for each block; zero throughout unless the rule is counted

    @property
    def arrays(self) -> tuple[Array, ...]:
        return (self.values, *self.slots)


class Segment:
    """Blocks first, ..., stop - 1 of a table."""

    def __init__(self, spec: TableSpec, layout: DenseLayout, first: int, stop: int) -> None:
        self.first, self.stop = first, stop
        self.start, self.end = layout.span(first, stop)
        self._spec, self._layout = spec, layout
        self._rule = RULES[spec.optimiser.kind]
        values = initial_elements(spec, self.start, self.end)
        slots = tuple(np.zeros_like(values) for _ in self._rule.slots)
        self.live = Copy(values=values, slots=slots, counts=np.zeros(stop - first, dtype=np.int64))
        self._fork: Copy | None = None
        self._saved = np.zeros(0, dtype=bool)  # for each block: its content as of the cut is in the fork's arrays

    def open_fork(self) -> None:
        self._fork = Copy(
            values=np.empty_like(self.live.values),
            slots=tuple(np.empty_like(slot) for slot in self.live.slots),
            counts=self.live.counts.copy(),
        )
        self._saved = np.zeros(self.stop - self.first, dtype=bool)

    def drop_fork(self) -> None:
        self._fork = None

    def apply(self, first: int, stop: int, gradient: Array, *, to_fork: bool) -> None:
        """One optimiser step of blocks first, ..., stop - 1, here and if so asked in the fork; spoils `gradient`."""
        if self._fork is not None:
            self._save(first, stop)
            if to_fork:
                self._step(self._fork, first, stop, gradient.copy())
        self._step(self.live, first, stop, gradient)

    def forked(self, block: int) -> tuple[Copy, slice]:
        """Where the content of this block as of the fork stands now; valid until the next `apply`."""
        is_here = self._fork is None or not self._saved[block - self.first]
        start, end = self._layout.span(block, block + 1)
        return self.live if is_here or self._fork is None else self._fork, slice(start - self.start, end - self.start)

    def _save(self, first: int, stop: int) -> None:
        assert self._fork is not None
        saved = self._saved[first - self.first : stop - self.first]
        if saved.all():
            return
        edges = np.flatnonzero(np.diff(np.concatenate(([True], saved, [True])).astype(np.int8)))
        for low, high in edges.reshape(-1, 2):
            start, end = self._layout.span(first + int(low), first + int(high))
            part = slice(start - self.start, end - self.start)
            for old, new in zip(self.live.arrays, self._fork.arrays, strict=True):
                new[part] = old[part]
        saved[:] = True

    def _step(self, copy: Copy, first: int, stop: int, gradient: Array) -> None:
        if not self._rule.is_counted and first == self.first and stop == self.stop:  # nearly always
            update(self._spec.optimiser, copy.values, copy.slots, gradient)
            return
        base = self._layout.span(first, stop)[0]
        for low, high, steps in self._equally_stepped(copy, first, stop):
            start, end = self._layout.span(low, high)
            part = slice(start - self.start, end - self.start)
            slots = [slot[part] for slot in copy.slots]
            update(self._spec.optimiser, copy.values[part], slots, gradient[start - base : end - base], steps)

    def _equally_stepped(self, copy: Copy, first: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Runs of blocks that have been stepped equally often, this step counted in; one run nearly always."""
        if not self._rule.is_counted:
            yield first, stop, 0
            return
        counts = copy.counts[first - self.first : stop - self.first]
        counts += 1
        edges = [0, *(np.flatnonzero(np.diff(counts)) + 1).tolist(), len(counts)]
        for low, high in pairwise(edges):
            yield first + low, first + high, int(counts[low])


class DensePart:
    """The blocks of one dense table that lie in this server's buckets."""

    def __init__(self, spec: TableSpec, layout: DenseLayout, buckets: PositionSet) -> None:
        self.spec, self.layout = spec, layout
        self._segments = tuple(Segment(spec, layout, first, stop) for first, stop in layout.blocks(buckets).ranges())
        self.dtype = np.dtype(spec.dtype)
        self._views: dict[PositionSet, tuple[Array, ...]] = {}
        self._plans: dict[tuple[PositionSet, PositionSet], tuple[tuple[Segment, int, int, slice], ...]] = {}
        self._segment_of = {
            block: segment for segment in self._segments for block in range(segment.first, segment.stop)
        }

    def open_fork(self) -> None:
        for segment in self._segments:
            segment.open_fork()

    def drop_fork(self) -> None:
        for segment in self._segments:
            segment.drop_fork()

    def apply(self, buckets: PositionSet, gradient: Array, pushed: PositionSet, *, to_fork: bool) -> None:
        """Steps `buckets`; `gradient` is flat and covers `layout.runs(pushed)`, and pushed contains buckets."""
        key = (buckets, pushed)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            plan = self._plans[key] = tuple(self._planned(buckets, pushed))
        for segment, first, stop, part in plan:
            segment.apply(first, stop, gradient[part], to_fork=to_fork)

    def _planned(self, buckets: PositionSet, pushed: PositionSet) -> Iterator[tuple[Segment, int, int, slice]]:
        """Which blocks of which segment get which part of a gradient."""
        base = 0
        todo = self.layout.blocks(buckets)
        for first, stop in self.layout.blocks(pushed).ranges():
            start, end = self.layout.span(first, stop)
            for low, high in (todo & PositionSet.span(first, stop)).ranges():
                begin, finish = self.layout.span(low, high)
                yield self._segment_of[low], low, high, slice(base + begin - start, base + finish - start)
            base += end - start

    def read(self, buckets: PositionSet) -> tuple[Array, ...]:
        """The live values of `layout.runs(buckets)`, as views."""
        views = self._views.get(buckets)
        if views is None:
            if len(self._views) >= _MAX_PLANS:
                self._views.clear()
            views = self._views[buckets] = tuple(self._viewed(buckets))
        return views

    def _viewed(self, buckets: PositionSet) -> Iterator[Array]:
        for first, stop in self.layout.blocks(buckets).ranges():
            segment = self._segment_of[first]
            start, end = self.layout.span(first, stop)
            yield segment.live.values[start - segment.start : end - segment.start]

    def forked(self, block: int) -> dict[str, Array]:
        """Copies of values, slots and step count of one block as of the fork; keys are the names in the file."""
        copy, part = self._segment_of[block].forked(block)
        out = {"values": copy.values[part].copy()}
        rule = RULES[self.spec.optimiser.kind]
        out |= {name: slot[part].copy() for name, slot in zip(rule.slots, copy.slots, strict=True)}
        if rule.is_counted:
            at = block - self._segment_of[block].first
            out["steps"] = copy.counts[at : at + 1].copy()
        return out

    def install(self, block: int, arrays: Mapping[str, Array]) -> None:
        """Overwrites one live block; slots that `arrays` lacks stay as they begin."""
        segment = self._segment_of[block]
        start, end = self.layout.span(block, block + 1)
        part = slice(start - segment.start, end - segment.start)
        segment.live.values[part] = arrays["values"]
        for name, slot in zip(RULES[self.spec.optimiser.kind].slots, segment.live.slots, strict=True):
            if name in arrays:
                slot[part] = arrays[name]
        if "steps" in arrays:
            segment.live.counts[block - segment.first] = arrays["steps"][0]
