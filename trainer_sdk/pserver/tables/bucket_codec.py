"""One bucket's content: as arrays, checked against the job's tables, and as the bytes of files and hand-overs.

The bytes are a JSON header that names tables and arrays, then the arrays' raw bytes, little-endian, in the order of the
header.  They need nothing else to be read, so a server may take any bucket from any checkpoint file.  No pickle.

A copy from another server is kept until the routing table names this server, and must go in without fail then: so it is
checked when it arrives, table by table and array by array.  Pure.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from master.api.identities import TableSpec
from master.api.positions import PositionSet
from trainer_sdk.errors import CheckpointError, TableError
from trainer_sdk.pserver.tables.layout import Array, DenseLayout, Layout, buckets_of_rows, row_width
from trainer_sdk.pserver.tables.model import check_ids
from trainer_sdk.pserver.tables.optimisers import UPDATE_RULES

BucketContents = dict[str, dict[str, Array]]
"""Arrays by table name and array name, as `Model.content` gives and `Model.install` takes them."""


def check_contents(layout: Layout, bucket: int, contents: BucketContents, *, has_dense: bool = True) -> None:
    """Raises TableError unless `Model.install` takes it: all dense tables whole, sparse rows of this bucket alone.

    Without `has_dense` (a copy that is sent ahead) dense tables may be missing.
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
        raise TableError(f"{path}.ids", "is not a flat int64 array", hint="Send rows with their ids")
    check_ids(path, ids, spec.shape[0])
    if not (ids[1:] > ids[:-1]).all() or not (buckets_of_rows(ids, bucket_count) == bucket).all():
        raise TableError(f"{path}.ids", "rows of other buckets, or twice", hint="Each of its rows once, by their ids")
    _check_arrays(spec, bucket, arrays, (len(ids), row_width(spec)), (len(ids),))


def _check_arrays(
    spec: TableSpec, bucket: int, arrays: Mapping[str, Array], shape: tuple[int, ...], steps: tuple[int, ...]
) -> None:
    rule = UPDATE_RULES[spec.optimiser.kind]
    wanted = {name: (np.dtype(spec.dtype), shape) for name in rule.arrays}
    if rule.is_counted:
        wanted["steps"] = (np.dtype(np.int64), steps)
    for name, (dtype, extent) in wanted.items():
        array = arrays.get(name)
        if array is None or array.dtype != dtype or array.shape != extent:
            seen = "missing" if array is None else f"{array.dtype} of shape {array.shape}"
            raise TableError(
                f"bucket {bucket}.{spec.name}.{name}", seen, hint=f"It is {dtype} of shape {extent} in this job"
            )


_VERSION: Final = 1
_LENGTH: Final = struct.Struct("<I")
_DTYPES: Final = frozenset({"float32", "float64", "int64"})


def encode_bucket(contents: Iterable[tuple[str, Mapping[str, Array]]], bucket_count: int) -> list[memoryview]:
    """The bucket's bytes as pieces in order; arrays are not copied."""
    tables: list[dict[str, Any]] = []
    pieces: list[memoryview] = []
    for name, arrays in contents:
        tables.append({"name": name, "arrays": [[key, a.dtype.name, list(a.shape)] for key, a in arrays.items()]})
        pieces += [_little(a).data.cast("B") for a in arrays.values() if a.size]
    header = {"version": _VERSION, "bucket_count": bucket_count, "tables": tables}
    text = json.dumps(header, separators=(",", ":")).encode()
    return [memoryview(_LENGTH.pack(len(text)) + text), *pieces]


def decode_bucket(file: str, data: memoryview, bucket_count: int) -> dict[str, dict[str, Array]]:
    """Arrays by table and name, as views of `data`.  Raises CheckpointError unless it is a bucket of this layout."""
    try:
        (length,) = _LENGTH.unpack_from(data)
        at = _LENGTH.size + length
        header = json.loads(bytes(data[_LENGTH.size : at]))
        if header["version"] != _VERSION:
            raise CheckpointError(file, f"written in version {header['version']} of the format, this is {_VERSION}")
        if header["bucket_count"] != bucket_count:
            raise CheckpointError(file, f"has {header['bucket_count']} buckets, the job has {bucket_count}")
        contents: dict[str, dict[str, Array]] = {}
        for table in header["tables"]:
            arrays = contents.setdefault(table["name"], {})
            for name, dtype, shape in table["arrays"]:
                arrays[name], at = _array(data, at, dtype, tuple(shape))
    except (struct.error, ValueError, KeyError, TypeError, IndexError) as error:
        raise CheckpointError(file, f"a bucket cannot be read ({error})") from error
    return contents


def bucket_digest(pieces: Iterable[memoryview]) -> str:
    """SHA-256 in hexadecimal."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _array(data: memoryview, at: int, dtype: str, shape: tuple[int, ...]) -> tuple[Array, int]:
    if dtype not in _DTYPES:
        raise ValueError(f"dtype {dtype!r}")
    kind = np.dtype(dtype).newbyteorder("<")
    count = int(np.prod(shape, dtype=np.int64))
    array = np.frombuffer(data, dtype=kind, count=count, offset=at) if count else np.zeros(0, dtype=kind)
    return array.reshape(shape), at + count * kind.itemsize


def _little(array: Array) -> Array:
    return np.ascontiguousarray(array if sys.byteorder == "little" else array.astype(array.dtype.newbyteorder("<")))
