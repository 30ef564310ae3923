"""What each bucket weighs: its bytes, and the bytes that trainers push to it and pull from it.

The master places buckets by it.  It must cost a push nothing that could be measured: dense tables are counted by
message (a message covers whole buckets), the rows of sparse ones are looked at in one message of sixteen.  Pure.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from master.api.identities import Lineage, TableSpec
from master.api.messages import ServerReport
from master.api.positions import EMPTY, PositionSet
from trainer_sdk.pserver.layout import Ids, Layout, buckets_of_rows, row_width
from trainer_sdk.pserver.optimisers import RULES
from trainer_sdk.pserver.sparse import SparsePart
from trainer_sdk.pserver.tables import Model

REPORT_EVERY_S: Final = 10.0
_LOOK_EVERY: Final = 16
_ID_BYTES: Final = 8

_ByBucket = npt.NDArray[np.int64]


class Weighing:
    """Of one model.  Not thread-safe."""

    def __init__(self, model: Model, now_s: float) -> None:
        self._model = model
        self._dense_bytes = [_dense_bytes(model.layout, index) for index in range(len(model.layout.tables))]
        self._messages: dict[tuple[int, PositionSet], int] = {}
        self._row_bytes = np.zeros(model.layout.bucket_count, dtype=np.int64)
        self._sparse_messages = 0
        self._since_s = now_s
        self._since = EMPTY  # the buckets that have been here since then

    @property
    def due_s(self) -> float:
        return self._since_s + REPORT_EVERY_S

    def pass_dense(self, table: int, buckets: PositionSet) -> None:
        """A message had this table's elements in these buckets."""
        key = (table, buckets)
        self._messages[key] = self._messages.get(key, 0) + 1

    def pass_rows(self, table: int, ids: Ids) -> None:
        """A message had these rows."""
        self._sparse_messages += 1
        if self._sparse_messages % _LOOK_EVERY:
            return
        count = self._model.layout.bucket_count
        size = _LOOK_EVERY * (_item_bytes(self._model.layout.tables[table]) + _ID_BYTES)
        self._row_bytes += np.bincount(buckets_of_rows(ids, count), minlength=count) * size

    def begin(self, lineage: Lineage, buckets: PositionSet) -> ServerReport:
        """Sizes of these buckets, which have just come; nobody has asked them anything yet."""
        self._since = buckets
        return self._report(lineage, buckets, np.zeros(self._model.layout.bucket_count))

    def report(self, lineage: Lineage, buckets: PositionSet, now_s: float) -> ServerReport:
        """Of those of these buckets that were here the whole time since the report before."""
        traffic = self._row_bytes.astype(np.float64)
        for (table, named), count in self._messages.items():
            for start, stop in named.ranges():
                traffic[start:stop] += count * self._dense_bytes[table][start:stop]
        loads = traffic / max(now_s - self._since_s, 1e-3)
        stayed = self._since & buckets
        self._messages.clear()
        self._row_bytes[:] = 0
        self._since_s, self._since = now_s, buckets
        return self._report(lineage, stayed, loads)

    def _report(self, lineage: Lineage, buckets: PositionSet, loads: npt.NDArray[np.float64]) -> ServerReport:
        sizes = np.zeros(self._model.layout.bucket_count, dtype=np.int64)
        for part, dense in zip(self._model.parts, self._dense_bytes, strict=True):
            copies = 1 + len(RULES[part.spec.optimiser.kind].slots)
            if isinstance(part, SparsePart):
                sizes += part.row_counts * (copies * _item_bytes(part.spec) + _ID_BYTES)
            else:
                sizes += copies * dense
        named = list(buckets)
        return ServerReport(
            lineage=lineage,
            buckets=buckets,
            sizes_bytes=tuple(sizes[named].tolist()),
            loads=tuple(loads[named].tolist()),
        )


def _dense_bytes(layout: Layout, table: int) -> _ByBucket:
    """By bucket; zeros for a sparse table."""
    sizes = np.zeros(layout.bucket_count, dtype=np.int64)
    dense = layout.dense[table]
    if dense is not None:
        for block in range(dense.block_count):
            start, end = dense.span(block, block + 1)
            sizes[dense.bucket_of(block)] += (end - start) * layout.dtypes[table].itemsize
    return sizes


def _item_bytes(spec: TableSpec) -> int:
    """Of one row."""
    return row_width(spec) * np.dtype(spec.dtype).itemsize
