"""Shards of a replica: which rows of which arrays each one holds (rule 84).  Pure.

The arrays lie one after another, in the order in which the replica names them, and each shard is an equal part of their
bytes.  A large array is cut between two rows of its first dimension, a small one goes whole to one shard.  Every rank
cuts alike, since replicas of one id have arrays of the same names and shapes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Final

import numpy as np

from trainer_sdk.group.port import ArrayShape, CapturedShard, CapturedState, Rows

WHOLE_BELOW_BYTES: Final = 1 << 20


def cut_rows(arrays: Mapping[str, ArrayShape], shard: int, shards: int) -> dict[str, Rows]:
    """The rows that belong to this shard; arrays of which it has none are left out.

    Over all shards each row is in exactly one, and an array without rows is in the first shard.
    """
    total = sum(one.nbytes for one in arrays.values())
    low, high = total * shard // shards, total * (shard + 1) // shards
    found: dict[str, Rows] = {}
    at = 0
    for name, one in arrays.items():
        size, rows = one.nbytes, one.rows
        if size == 0:
            if shard == 0:
                found[name] = Rows(0, rows)
        elif size < WHOLE_BELOW_BYTES or rows == 1:
            if low <= at + size // 2 < high:
                found[name] = Rows(0, rows)
        else:
            begin, end = (min(max((bound - at) * rows // size, 0), rows) for bound in (low, high))
            if begin < end:
                found[name] = Rows(begin, end)
        at += size
    return found


def contents_digest(arrays: Mapping[str, ArrayShape], dtypes: Mapping[str, str]) -> str:
    """Equal for shards that were cut from arrays of the same names, dtypes and shapes (rule 88)."""
    text = json.dumps([[[name, one.dtype, one.shape] for name, one in arrays.items()], sorted(dtypes.items())])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def shard_of(captured: CapturedState, shard: int = 0, shards: int = 1) -> CapturedShard:
    """This part of a captured replica; its pieces are views of the arrays."""
    arrays = {name: np.asarray(array, order="C") for name, array in captured.arrays.items()}
    shapes = {name: ArrayShape(dtype=array.dtype.str, shape=array.shape) for name, array in arrays.items()}
    rows = cut_rows(shapes, shard, shards)
    return CapturedShard(
        shard=shard,
        shards=shards,
        arrays=shapes,
        rows=rows,
        pieces={
            name: arrays[name][part.begin : part.end] if arrays[name].shape else arrays[name]
            for name, part in rows.items()
        },
        meta=captured.meta if shard == 0 else "",
        dtypes=captured.dtypes,
    )
