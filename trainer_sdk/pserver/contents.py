"""What one bucket of these tables must look like, whoever says that it is one.

A copy from another server is kept until the table names us, and then it must go in without fail: so it is checked when
it comes, table by table and array by array.  Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from master.api.identities import TableSpec
from master.api.positions import PositionSet
from trainer_sdk.errors import TableError
from trainer_sdk.pserver.layout import Array, DenseLayout, Layout, buckets_of_rows, row_width
from trainer_sdk.pserver.optimisers import RULES
from trainer_sdk.pserver.tables import check_ids

Contents = dict[str, dict[str, Array]]
"""By table name and array name: what `Model.content` gives and `Model.install` takes."""


def check_contents(layout: Layout, bucket: int, contents: Contents, *, has_dense: bool = True) -> None:
    """Raises TableError unless `Model.install` takes it: all dense tables whole, sparse rows of this bucket alone.

    Without dense tables (a copy that goes ahead): rows alone.
    """
    known = {spec.name for spec in layout.tables}
    for name in contents.keys() - known:
        raise TableError(f"bucket {bucket}.{name}", "no such table", hint="Both servers have the tables of one job")
    for spec, dense in zip(layout.tables, layout.dense, strict=True):
        arrays = contents.get(spec.name, {})
        if dense is not None and (has_dense or arrays):
            _check_dense(spec, dense, bucket, arrays)
        elif dense is None and arrays:
            _check_sparse(spec, layout.bucket_count, bucket, arrays)


def _check_dense(spec: TableSpec, dense: DenseLayout, bucket: int, arrays: Mapping[str, Array]) -> None:
    size = dense.count(PositionSet.of(bucket))
    if size:
        _check_arrays(spec, bucket, arrays, (size,), (1,))
    elif arrays:
        raise TableError(f"bucket {bucket}.{spec.name}", "has elements", hint="No part of it lies in this bucket")


def _check_sparse(spec: TableSpec, bucket_count: int, bucket: int, arrays: Mapping[str, Array]) -> None:
    path = f"bucket {bucket}.{spec.name}"
    ids = arrays.get("ids")
    if ids is None or ids.ndim != 1 or ids.dtype != np.int64:
        raise TableError(f"{path}.ids", "no flat array of int64", hint="Rows travel with their ids")
    check_ids(path, ids, spec.shape[0])
    if not (ids[1:] > ids[:-1]).all() or not (buckets_of_rows(ids, bucket_count) == bucket).all():
        raise TableError(f"{path}.ids", "rows of other buckets, or twice", hint="Each of its rows once, by their ids")
    _check_arrays(spec, bucket, arrays, (len(ids), row_width(spec)), (len(ids),))


def _check_arrays(
    spec: TableSpec, bucket: int, arrays: Mapping[str, Array], shape: tuple[int, ...], steps: tuple[int, ...]
) -> None:
    rule = RULES[spec.optimiser.kind]
    wanted = {name: (np.dtype(spec.dtype), shape) for name in ("values", *rule.slots)}
    if rule.is_counted:
        wanted["steps"] = (np.dtype(np.int64), steps)
    for name, (dtype, extent) in wanted.items():
        array = arrays.get(name)
        if array is None or array.dtype != dtype or array.shape != extent:
            seen = "missing" if array is None else f"{array.dtype} of shape {array.shape}"
            raise TableError(
                f"bucket {bucket}.{spec.name}.{name}", seen, hint=f"It is {dtype} of shape {extent} in this job"
            )
