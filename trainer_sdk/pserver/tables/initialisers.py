"""Initial values of tables: a pure function of (table, seed, element), the same on every server and in any order.

So a start without a checkpoint needs no data, a sparse row needs no memory before it is first trained, and the number
of servers and buckets does not matter.  Random values come from a counter-based generator (splitmix64, Steele, Lea and
Flood 2014) evaluated at the element's number.  Pure.
"""

from __future__ import annotations

import hashlib
import math
from typing import Final

import numpy as np
import numpy.typing as npt

from master.api.identities import TableSpec
from trainer_sdk.pserver.tables.layout import Array, Ids, row_width

_CHUNK: Final = 1 << 16  # elements at a time: the temporaries stay in the cache
_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2: Final = np.uint64(0x94D049BB133111EB)


def initial_elements(spec: TableSpec, start: int, stop: int) -> Array:
    """Elements start, ..., stop - 1 of the flattened table, one-dimensional."""
    out = _constant(spec, (stop - start,))
    if spec.initialiser.kind in {"normal", "uniform"}:
        for low in range(start, stop, _CHUNK):
            high = min(low + _CHUNK, stop)
            out[low - start : high - start] = _random(spec, np.arange(low, high, dtype=np.uint64))
    return out


def initial_rows(spec: TableSpec, ids: Ids) -> Array:
    """The rows of these ids, as (len(ids), width)."""
    width = row_width(spec)
    out = _constant(spec, (len(ids), width))
    if spec.initialiser.kind in {"normal", "uniform"}:
        rows = max(1, _CHUNK // width)
        within = np.arange(width, dtype=np.uint64)
        for low in range(0, len(ids), rows):
            first = ids[low : low + rows].astype(np.uint64) * np.uint64(width)
            out[low : low + rows] = _random(spec, first[:, None] + within)
    return out


def _constant(spec: TableSpec, shape: tuple[int, ...]) -> Array:
    if spec.initialiser.kind == "zeros" or spec.initialiser.scale == 0:
        return np.zeros(shape, dtype=spec.dtype)
    return np.full(shape, spec.initialiser.scale, dtype=spec.dtype)


def _random(spec: TableSpec, elements: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    scale = spec.initialiser.scale
    text = f"{spec.name}:{spec.initialiser.seed}".encode()
    stream = np.uint64(int.from_bytes(hashlib.sha256(text).digest()[:8], "little"))
    first = _unit(elements * np.uint64(2) + stream)
    if spec.initialiser.kind == "uniform":
        return (2 * first - 1) * scale
    second = _unit(elements * np.uint64(2) + np.uint64(1) + stream)
    radius: npt.NDArray[np.float64] = np.sqrt(-2 * np.log(first))  # Box and Muller 1958
    return radius * np.cos(2 * math.pi * second) * scale


def _unit(counter: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """One number in (0, 1) for each counter."""
    z = counter * _STEP
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    z ^= z >> np.uint64(31)
    return ((z >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
