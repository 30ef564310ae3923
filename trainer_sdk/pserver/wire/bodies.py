"""Bodies of pushes and pulls: raw arrays one after the other, each padded to 8 bytes, as views without copies.

A dense table is the elements of the message's buckets in order (`DenseLayout.runs`); a sparse table of a push is int64
ids, then rows.  A pull request has the ids of its sparse tables, its answer the rows.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

import numpy as np
import numpy.typing as npt

from trainer_sdk.errors import WireError
from trainer_sdk.pserver.tables.layout import Array, Ids, Layout, row_width
from trainer_sdk.pserver.tables.model import DenseGradient, Gradient, SparseGradient
from trainer_sdk.pserver.wire.heads import Section, SectionKind, padding

_ZEROS = memoryview(bytes(8))
_IDS = np.dtype(np.int64)


def gradients_in(body: memoryview, sections: Sequence[Section], layout: Layout) -> list[Gradient]:
    """Gradients of a push, as writable views of `body`.  Raises WireError unless sizes agree to the byte."""
    cursor = _Cursor(body)
    out: list[Gradient] = []
    for section in sections:
        table, kind, length = section
        dtype = dtype_of(section, layout)
        match kind:
            case SectionKind.DENSE:
                out.append(DenseGradient(table, cursor.take(dtype, length)))
            case SectionKind.SPARSE:
                width = row_width(layout.tables[table])
                ids = cursor.take(_IDS, length)
                out.append(SparseGradient(table, ids, cursor.take(dtype, length * width).reshape(length, width)))
            case _:
                assert_never(kind)
    cursor.end()
    return out


def ids_in(body: memoryview, sections: Sequence[Section], layout: Layout) -> dict[int, Ids]:
    """Row ids that a pull asks for, by section.  Raises WireError unless sizes agree to the byte."""
    cursor = _Cursor(body)
    out: dict[int, Ids] = {}
    for number, section in enumerate(sections):
        dtype_of(section, layout)
        if section.kind is SectionKind.SPARSE:
            out[number] = cursor.take(_IDS, section.length)
    cursor.end()
    return out


def padded(arrays: Sequence[Array]) -> Iterator[memoryview]:
    """Bytes of one section: its contiguous arrays back to back, then padding."""
    size = 0
    for array in arrays:
        if array.size:
            size += array.nbytes
            yield array.data.cast("B")
    if padding(size):
        yield _ZEROS[: padding(size)]


def dtype_of(section: Section, layout: Layout) -> np.dtype[np.generic]:
    """The table's dtype.  Raises WireError when there is no such table, or it is of the other kind."""
    if section.table >= len(layout.tables):
        raise WireError(f"table {section.table} of {len(layout.tables)}")
    spec = layout.tables[section.table]
    if section.kind is not SectionKind.of(spec.kind):
        raise WireError(f"tables.{spec.name} is a {spec.kind} table")
    return layout.dtypes[section.table]


class _Cursor:
    """Reads arrays from a body, front to back."""

    def __init__(self, body: memoryview) -> None:
        self._body, self._at = body, 0

    def take(self, dtype: np.dtype[np.generic], count: int) -> Array:
        size = count * dtype.itemsize
        if self._at + size > self._body.nbytes:
            raise WireError(f"a body of {self._body.nbytes} bytes ends before what its head announces")
        array: Array = np.frombuffer(self._body, dtype=dtype, count=count, offset=self._at) if count else _none(dtype)
        self._at += size + padding(size)
        return array

    def end(self) -> None:
        if self._at != self._body.nbytes:
            raise WireError(f"a body of {self._body.nbytes} bytes where its head announces {self._at}")


def _none(dtype: np.dtype[np.generic]) -> Array:
    return np.zeros(0, dtype=dtype)


class BufferPool:
    """Memory of one connection, reused for each message, because fresh pages cost as much as the copy into them.

    Asking for a slot again overwrites its array.
    """

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots: dict[int, npt.NDArray[np.uint8]] = {}

    def array(self, slot: int, dtype: np.dtype[np.generic], count: int) -> Array:
        """An uninitialised one-dimensional array, aligned for every dtype."""
        size = count * dtype.itemsize
        held = self._slots.get(slot)
        if held is None or held.nbytes < size:
            held = self._slots[slot] = np.empty(size, dtype=np.uint8)
        return held[:size].view(dtype)

    def view(self, slot: int, size_bytes: int) -> memoryview:
        """Uninitialised, writable bytes."""
        return self.array(slot, np.dtype(np.uint8), size_bytes).data
