"""Table layout: which bucket each number of each table lies in, out of a fixed number of virtual buckets.

A dense table is flattened and cut into equal blocks, at most one for a bucket.  Block i of n lies in bucket
`first + i * bucket_count // n` (wrapping around), `first` being a hash of the table's name.  So a server that owns a
contiguous range of buckets owns one or two contiguous slices of every table, of its fair share, and small tables do not
all fall on the same server.  A sparse table's row lies in the bucket that a hash of its id names.

Every member computes the layout by itself from the tables and the number of buckets; `Layout.digest` proves that two
agree.  Pure, vectorised.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Final, assert_never

import numpy as np
import numpy.typing as npt

from master.api.identities import TableSpec
from master.api.positions import PositionSet
from trainer_sdk.errors import TableError

Array = npt.NDArray[Any]
Ids = npt.NDArray[np.int64]

_SMALLEST_BLOCK: Final = 64  # elements: 256 bytes of float32, a few cache lines
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing, Knuth 6.4
_HALF: Final = np.uint64(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseLayout:
    """Layout of one dense table over the buckets.  Elements count through the flattened table."""

    size: int
    block_count: int
    block_size: int  # of all blocks but the last
    first_bucket: int
    bucket_count: int

    @classmethod
    def of(cls, spec: TableSpec, bucket_count: int) -> DenseLayout:
        size = math.prod(spec.shape)
        block_size = math.ceil(size / min(bucket_count, math.ceil(size / _SMALLEST_BLOCK)))
        name = hashlib.sha256(spec.name.encode()).digest()
        return cls(
            size=size,
            block_count=math.ceil(size / block_size),
            block_size=block_size,
            first_bucket=int.from_bytes(name[:8], "little") % bucket_count,
            bucket_count=bucket_count,
        )

    def bucket_of(self, block: int) -> int:
        return (self.first_bucket + block * self.bucket_count // self.block_count) % self.bucket_count

    def blocks(self, buckets: PositionSet) -> PositionSet:
        """The blocks that lie in these buckets, as a set of block numbers."""
        return _blocks(self, buckets)

    def span(self, first: int, stop: int) -> tuple[int, int]:
        """The elements of blocks first, ..., stop - 1."""
        return first * self.block_size, min(stop * self.block_size, self.size)

    def count(self, buckets: PositionSet) -> int:
        """Number of elements in these buckets."""
        return _count(self, buckets)

    def runs(self, buckets: PositionSet) -> tuple[tuple[int, int], ...]:
        """The elements that lie in these buckets: maximal half-open ranges, in the order of messages and files."""
        return _runs(self, buckets)


@lru_cache(maxsize=4096)
def _blocks(layout: DenseLayout, buckets: PositionSet) -> PositionSet:
    n, count = layout.block_count, layout.bucket_count
    pieces: list[tuple[int, int]] = []
    for start, stop in buckets.ranges():
        low = (start - layout.first_bucket) % count
        high = low + stop - start
        pieces += [(low, min(high, count)), (0, max(0, high - count))]
    return PositionSet.from_ranges((-(-low * n // count), -(-high * n // count)) for low, high in pieces)


@lru_cache(maxsize=4096)
def _runs(layout: DenseLayout, buckets: PositionSet) -> tuple[tuple[int, int], ...]:
    return tuple(layout.span(first, stop) for first, stop in layout.blocks(buckets).ranges())


@lru_cache(maxsize=4096)
def _count(layout: DenseLayout, buckets: PositionSet) -> int:
    return sum(end - start for start, end in layout.runs(buckets))


def buckets_of_rows(ids: Ids, bucket_count: int) -> npt.NDArray[np.int64]:
    """The bucket of each row id, in [0, bucket_count)."""
    mixed = ids.astype(np.uint64) * _GOLDEN
    mixed ^= mixed >> _HALF  # the low half takes part for ids that differ in their high bits alone
    mixed *= _GOLDEN
    mixed >>= _HALF
    mixed *= np.uint64(bucket_count)
    mixed >>= _HALF
    return mixed.view(np.int64)


def bucket_mask(buckets: PositionSet, bucket_count: int) -> npt.NDArray[np.bool_]:
    """Mask by bucket: true for those in the set."""
    mask = np.zeros(bucket_count, dtype=bool)
    for start, stop in buckets.ranges():
        mask[start:stop] = True
    return mask


def row_shape(spec: TableSpec) -> tuple[int, ...]:
    """Shape of one row of a sparse table."""
    return spec.shape[1:]


def row_width(spec: TableSpec) -> int:
    return math.prod(row_shape(spec))


def row_bytes(spec: TableSpec) -> int:
    return row_width(spec) * np.dtype(spec.dtype).itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Layout of all tables of a job over its buckets.  `dense[i]` is None where table i is sparse."""

    tables: tuple[TableSpec, ...]
    bucket_count: int
    dense: tuple[DenseLayout | None, ...]
    dtypes: tuple[np.dtype[np.generic], ...]
    digest: bytes  # 8 bytes; equal if two members agree on tables and buckets

    @classmethod
    def of(cls, tables: Iterable[TableSpec], bucket_count: int) -> Layout:
        """Raises TableError when a table's declaration cannot work."""
        specs = tuple(tables)
        check_tables(specs)
        text = json.dumps([bucket_count, *(asdict(spec) for spec in specs)], sort_keys=True)
        return cls(
            tables=specs,
            bucket_count=bucket_count,
            dense=tuple(_try_dense_layout(spec, bucket_count) for spec in specs),
            dtypes=tuple(np.dtype(spec.dtype) for spec in specs),
            digest=hashlib.sha256(text.encode()).digest()[:8],
        )

    def index_of(self, name: str) -> int:
        """Raises TableError when there is no such table."""
        for index, spec in enumerate(self.tables):
            if spec.name == name:
                return index
        known = ", ".join(spec.name for spec in self.tables) or "none"
        raise TableError(f"tables.{name}", "no such table is declared", hint=f"Declared are: {known}")


def _try_dense_layout(spec: TableSpec, bucket_count: int) -> DenseLayout | None:
    match spec.kind:
        case "dense":
            return DenseLayout.of(spec, bucket_count)
        case "sparse":
            return None
        case _:
            assert_never(spec.kind)


def check_tables(tables: tuple[TableSpec, ...]) -> None:
    """Raises TableError, naming the field, when a declaration cannot work."""
    for spec in tables:
        path = f"tables.{spec.name}"
        if sum(other.name == spec.name for other in tables) > 1:
            raise TableError(path, "declared twice", hint="Give each table a name of its own")
        if any(extent < 1 for extent in spec.shape) or (spec.kind == "sparse" and not spec.shape):
            raise TableError(f"{path}.shape", f"{spec.shape} holds no numbers", hint="Every extent is at least 1")
        if spec.kind == "sparse" and spec.shape[0] >= 2**31:
            raise TableError(
                f"{path}.shape", f"{spec.shape[0]:,} rows", hint="A sparse table has fewer than 2**31 rows"
            )
        if spec.dtype == "int64":
            _check_counter(spec, path)


def _check_counter(spec: TableSpec, path: str) -> None:
    """int64 tables count exactly, so they only take steps by whole numbers."""
    if spec.optimiser.kind != "sgd" or not float(spec.optimiser.learning_rate).is_integer():
        raise TableError(
            f"{path}.optimiser",
            f"{spec.optimiser.kind} with learning rate {spec.optimiser.learning_rate} on int64",
            hint="A table of whole numbers takes sgd with a whole learning rate; -1.0 adds what is pushed",
        )
    if spec.initialiser.kind not in {"zeros", "constant"}:
        raise TableError(f"{path}.initialiser", f"{spec.initialiser.kind} on int64", hint="Use zeros or constant")
