"""Load of each bucket: its bytes, and the bytes that trainers push to it and pull from it.

The master places buckets by these figures.  Counting must not slow a push: dense tables are counted by message (a
message covers whole buckets), the rows of sparse tables in one message of seventeen.  In so small a sample a bucket may
have twice its neighbours' rows by chance.  So the same constant is added to every bucket: it hides chance and leaves
hot buckets visible.  A `LoadSample` is taken in a moment and summed later, without the lock that pushes wait for.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from master.api.identities import Lineage, TableSpec
from master.api.messages.from_members import ServerReport
from master.api.positions import EMPTY, PositionSet
from trainer_sdk.pserver.tables.layout import Ids, Layout, buckets_of_rows, row_bytes
from trainer_sdk.pserver.tables.model import Model
from trainer_sdk.pserver.tables.optimisers import UPDATE_RULES
from trainer_sdk.pserver.tables.sparse_store import SparseStore

REPORT_EVERY_S: Final = 10.0
_SAMPLE_EVERY: Final = 17
"""Messages of a table.  A prime: trainers may take turns by twos or fours, and each of them must be sampled."""

_FLOOR_ROWS: Final = 32
"""Sampled rows that are added to each bucket.  The master calls a bucket hot above twice the mean (`rebalancing.HOT`);
with n rows added that takes n rows more than twice the mean, at least twice the root of n = 11 standard deviations."""

_ID_BYTES: Final = 8

_ByBucket = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSample:
    """Counts of a stretch of time, immutable."""

    lineage: Lineage
    buckets: PositionSet  # those to be reported
    stretch_s: float
    sizes: _ByBucket  # bytes held
    dense_bytes: _ByBucket  # of one message, by table and bucket
    messages: dict[PositionSet, list[int]]  # number by table that covered just these buckets
    row_bytes: _ByBucket
    floor: float  # bytes a second that are added to each bucket

    def report(self) -> ServerReport:
        """The sums: a few milliseconds for hundreds of tables and dozens of routes."""
        traffic = self.row_bytes.astype(np.float64)
        for covered, counts in self.messages.items():
            sums = np.array(counts, dtype=np.int64) @ self.dense_bytes
            for start, stop in covered.ranges():
                traffic[start:stop] += sums[start:stop]
        loads = self.floor + traffic / max(self.stretch_s, 1e-3)
        named = list(self.buckets)
        return ServerReport(
            lineage=self.lineage,
            buckets=self.buckets,
            sizes_bytes=tuple(self.sizes[named].tolist()),
            loads=tuple(loads[named].tolist()),
        )


class BucketLoadMeter:
    """Load counters of one model.  Not thread-safe."""

    def __init__(self, model: Model, now_s: float) -> None:
        self._model = model
        count = model.layout.bucket_count
        self._dense_bytes = np.zeros((len(model.stores), count), dtype=np.int64)
        self._dense_sizes = np.zeros(count, dtype=np.int64)  # with the slots of optimisers
        for index, store in enumerate(model.stores):
            self._dense_bytes[index] = _dense_bytes(model.layout, index)
            self._dense_sizes += _arrays_per_parameter(store.spec) * self._dense_bytes[index]
        self._messages: dict[PositionSet, list[int]] = {}  # number by table that covered just these buckets
        self._row_bytes = np.zeros(count, dtype=np.int64)
        self._row_messages = [0] * len(model.stores)
        rows = (_sampled_bytes(store.spec) for store in model.stores if isinstance(store, SparseStore))
        self._floor = _FLOOR_ROWS * max(rows, default=0) / REPORT_EVERY_S
        self._since_s = now_s
        self._since = EMPTY  # the buckets that were here the whole time since then

    @property
    def due_s(self) -> float:
        return self._since_s + REPORT_EVERY_S

    def count_dense(self, table: int, buckets: PositionSet) -> None:
        """A message had this table's elements in these buckets."""
        counts = self._messages.get(buckets)
        if counts is None:
            counts = self._messages[buckets] = [0] * len(self._dense_bytes)
        counts[table] += 1

    def count_rows(self, table: int, ids: Ids) -> None:
        """A message had these rows."""
        self._row_messages[table] += 1
        if self._row_messages[table] % _SAMPLE_EVERY:
            return
        count = self._model.layout.bucket_count
        rows = np.bincount(buckets_of_rows(ids, count), minlength=count)
        self._row_bytes += rows * _sampled_bytes(self._model.layout.tables[table])

    def first_report(self, lineage: Lineage, buckets: PositionSet) -> ServerReport:
        """Sizes of buckets that have just been loaded, without traffic yet."""
        since_s = self._since_s
        self._since = buckets
        return self.take_sample(lineage, buckets, since_s).report()

    def take_sample(self, lineage: Lineage, buckets: PositionSet, now_s: float) -> LoadSample:
        """Counts of those of these buckets that were here since the sample before; counting restarts."""
        tally = LoadSample(
            lineage=lineage,
            buckets=self._since & buckets,
            stretch_s=now_s - self._since_s,
            sizes=self._sizes(),
            dense_bytes=self._dense_bytes,
            messages=self._messages,
            row_bytes=self._row_bytes,
            floor=self._floor,
        )
        self._messages, self._row_bytes = {}, np.zeros_like(self._row_bytes)
        self._since_s, self._since = now_s, buckets
        return tally

    def _sizes(self) -> _ByBucket:
        sizes = self._dense_sizes.copy()
        for store in self._model.stores:
            if isinstance(store, SparseStore):
                sizes += store.row_counts * (_arrays_per_parameter(store.spec) * row_bytes(store.spec) + _ID_BYTES)
        return sizes


def _dense_bytes(layout: Layout, table: int) -> _ByBucket:
    """Bytes by bucket; zeros for a sparse table."""
    sizes = np.zeros(layout.bucket_count, dtype=np.int64)
    dense = layout.dense[table]
    if dense is not None:
        for block in range(dense.block_count):
            start, end = dense.span(block, block + 1)
            sizes[dense.bucket_of(block)] += (end - start) * layout.dtypes[table].itemsize
    return sizes


def _arrays_per_parameter(spec: TableSpec) -> int:
    """Numbers kept for each parameter: itself and its slots."""
    return len(UPDATE_RULES[spec.optimiser.kind].arrays)


def _sampled_bytes(spec: TableSpec) -> int:
    """Bytes that one sampled row stands for."""
    return _SAMPLE_EVERY * (row_bytes(spec) + _ID_BYTES)
