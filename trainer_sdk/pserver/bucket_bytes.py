"""One bucket as bytes: what stands in one extent of a checkpoint file.

A JSON header that names tables and arrays, then the arrays' raw bytes, little-endian, in the order of the header.  An
extent needs nothing but itself to be read, so a server may take any bucket from any file.  No pickle.  Pure.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from trainer_sdk.errors import CheckpointError
from trainer_sdk.pserver.layout import Array

_VERSION: Final = 1
_LENGTH: Final = struct.Struct("<I")
_DTYPES: Final = frozenset({"float32", "float64", "int64"})


def encode_bucket(contents: Iterable[tuple[str, Mapping[str, Array]]], bucket_count: int) -> list[memoryview]:
    """The pieces of the extent, in order; arrays are not copied."""
    tables: list[dict[str, Any]] = []
    pieces: list[memoryview] = []
    for name, arrays in contents:
        tables.append({"name": name, "arrays": [[key, a.dtype.name, list(a.shape)] for key, a in arrays.items()]})
        pieces += [_little(a).data.cast("B") for a in arrays.values() if a.size]
    header = {"version": _VERSION, "bucket_count": bucket_count, "tables": tables}
    text = json.dumps(header, separators=(",", ":")).encode()
    return [memoryview(_LENGTH.pack(len(text)) + text), *pieces]


def decode_bucket(file: str, data: memoryview, bucket_count: int) -> dict[str, dict[str, Array]]:
    """Arrays by table and name, as views of `data`.  Raises CheckpointError for all but a bucket of this layout."""
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
