"""Shares of servers in a trainer's arrays: which slices and rows go to which server, computed once for each route.

Slices of dense tables are views of the trainer's own arrays, never copies; sparse rows are sorted by the server that
owns their bucket.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from master.api.identities import Route, TableSpec, Version
from master.api.positions import PositionSet
from trainer_sdk.errors import TableError, UsageError
from trainer_sdk.pserver.core.messages import PushTarget
from trainer_sdk.pserver.tables.layout import Array, Ids, Layout, bucket_mask, buckets_of_rows, row_shape
from trainer_sdk.pserver.tables.model import check_ids
from trainer_sdk.pserver.wire.heads import Section, SectionKind, padding

SparseRows: TypeAlias = tuple[npt.ArrayLike, npt.ArrayLike]
"""Ids and, one for each, rows of a sparse table."""


class TableSlice(NamedTuple):
    """Slice of a dense table in some buckets: its section in a head, and its bytes in the flat table."""

    section: Section
    runs: tuple[slice, ...]
    gap: tuple[memoryview, ...]  # padding, if any

    def pieces(self, flat: Array) -> list[memoryview]:
        """The slice's bytes, as views."""
        data = flat.data.cast("B")
        return [data[run] for run in self.runs]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Share of one server: its buckets, by version for pushes, and its slice of each table (None: sparse)."""

    buckets: PositionSet
    targets: tuple[PushTarget, ...]
    slices: tuple[TableSlice | None, ...]

    def only(self, buckets: PositionSet, layout: Layout) -> Share:
        """The share within `buckets`."""
        targets = tuple(PushTarget(buckets=t.buckets & buckets, version=t.version) for t in self.targets)
        inside = self.buckets & buckets
        return Share(buckets=inside, targets=tuple(t for t in targets if t.buckets), slices=_cuts(layout, inside))


def shares(route: Route, layout: Layout) -> tuple[Share, ...]:
    """One share for each server of the route, in its order."""
    out = []
    for index in range(len(route.servers)):
        by_version: dict[Version, list[int]] = {}
        for bucket, owner in enumerate(route.owner):
            if owner == index:
                by_version.setdefault(route.version[bucket], []).append(bucket)
        targets = tuple(PushTarget(buckets=PositionSet.of(*b), version=v) for v, b in sorted(by_version.items()))
        buckets = PositionSet.of(*(b for held in by_version.values() for b in held))
        out.append(Share(buckets=buckets, targets=targets, slices=_cuts(layout, buckets)))
    return tuple(out)


def _cuts(layout: Layout, buckets: PositionSet) -> tuple[TableSlice | None, ...]:
    return tuple(
        None if dense is None else _cut(index, dense.runs(buckets), dtype.itemsize)
        for index, (dense, dtype) in enumerate(zip(layout.dense, layout.dtypes, strict=True))
    )


def _cut(table: int, runs: tuple[tuple[int, int], ...], item_bytes: int) -> TableSlice:
    count = sum(stop - start for start, stop in runs)
    gap = padding(count * item_bytes)
    return TableSlice(
        section=Section(table, SectionKind.DENSE, count),
        runs=tuple(slice(start * item_bytes, stop * item_bytes) for start, stop in runs),
        gap=(memoryview(bytearray(gap)),) if gap else (),
    )


def dense_gradient(spec: TableSpec, dtype: np.dtype[np.generic], given: npt.ArrayLike | SparseRows) -> Array:
    """The gradient flat, contiguous and of the table's dtype; the caller's own memory if it is so already.

    Raises TableError for another shape or another kind of number.
    """
    if isinstance(given, tuple):
        raise TableError(f"push.{spec.name}", "is a dense table", hint="Push one array")
    array = np.asarray(given)
    if array.shape != spec.shape:
        raise TableError(
            f"push.{spec.name}", f"shape {array.shape}, declared as {spec.shape}", hint="Push one gradient an element"
        )
    return _converted(spec, dtype, array).reshape(-1)


def sparse_gradient(
    spec: TableSpec, dtype: np.dtype[np.generic], given: npt.ArrayLike | SparseRows
) -> tuple[Ids, Array]:
    """Ids and rows, contiguous.  Raises TableError when they do not fit the table or each other."""
    if not isinstance(given, tuple) or len(given) != 2:
        raise TableError(f"push.{spec.name}", "is a sparse table", hint="Push (ids, rows)")
    ids = row_ids(spec, given[0])
    rows = np.asarray(given[1])
    if rows.shape != (len(ids), *row_shape(spec)):
        raise TableError(
            f"push.{spec.name}",
            f"rows of shape {rows.shape} for {len(ids)} ids",
            hint=f"Push one row of {row_shape(spec)} for each id",
        )
    return ids, _converted(spec, dtype, rows).reshape(len(ids), -1)


def row_ids(spec: TableSpec, given: npt.ArrayLike) -> Ids:
    """The ids as int64.  Raises TableError unless they are whole numbers that name rows."""
    ids = np.asarray(given)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise TableError(f"{spec.name}.ids", f"{ids.dtype} of shape {ids.shape}", hint="Give a flat array of integers")
    whole = np.ascontiguousarray(ids, dtype=np.int64)
    check_ids(spec.name, whole, spec.shape[0])
    return whole


def rows_by_server(layout: Layout, route: Route, ids: Ids) -> list[npt.NDArray[np.intp]]:
    """For each server, the places of its rows in `ids`."""
    if len(route.servers) == 1:
        return [np.arange(len(ids))]
    owner = np.asarray(route.owner, dtype=np.int32)[buckets_of_rows(ids, layout.bucket_count)]
    return [np.flatnonzero(owner == index) for index in range(len(route.servers))]


def rows_in(layout: Layout, ids: Ids, buckets: PositionSet) -> npt.NDArray[np.bool_]:
    """Mask of the ids whose rows lie in these buckets."""
    return bucket_mask(buckets, layout.bucket_count)[buckets_of_rows(ids, layout.bucket_count)]


def check_route(route: Route, bucket_count: int) -> None:
    """Raises UsageError unless the route names an owner for every bucket."""
    if len(route.owner) != bucket_count or len(route.version) != bucket_count or not route.servers:
        raise UsageError(f"route {route.revision} names {len(route.owner)} of {bucket_count} buckets")


def new_arrays(tables: tuple[TableSpec, ...]) -> dict[str, Array]:
    """A trainer's copies of the dense tables, not filled."""
    return {spec.name: np.empty(spec.shape, dtype=spec.dtype) for spec in tables if spec.kind == "dense"}


def _converted(spec: TableSpec, dtype: np.dtype[np.generic], array: Array) -> Array:
    if array.dtype == dtype and array.flags.c_contiguous:
        return array
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise TableError(f"push.{spec.name}", f"{array.dtype} for a table of {spec.dtype}", hint="Convert it first")
    return np.ascontiguousarray(array, dtype=dtype)
