"""Element types of an all-reduce, and sums in them.

Types of 16 bits are summed in float32 and rounded once, to the nearest, ties to even.  NumPy has no bfloat16: such an
array is one of uint16 with the type named beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trainer_sdk.errors import UsageError

ElementArray = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementType:
    """Form in which elements are stored and summed.  `code` is its number on the wire."""

    name: str
    code: int
    stored: np.dtype[Any]
    summed: np.dtype[Any]

    @property
    def is_widened(self) -> bool:
        """True if sums are made in a wider type."""
        return self.stored != self.summed


def _type(name: str, code: int, stored: str = "", summed: str = "") -> ElementType:
    return ElementType(name=name, code=code, stored=np.dtype(stored or name), summed=np.dtype(summed or name))


ELEMENT_TYPES: Final = {
    kind.name: kind
    for kind in (
        _type("float32", 1),
        _type("float64", 2),
        _type("int64", 3),
        _type("float16", 4, summed="float32"),
        _type("bfloat16", 5, "uint16", "float32"),
    )
}


def element_type(array: ElementArray, name: str | None) -> ElementType:
    """The type of an array that can be reduced in place.  Raises UsageError."""
    kind = ELEMENT_TYPES.get(name or array.dtype.name)
    if kind is None:
        raise UsageError(
            f"all_reduce: {name or array.dtype.name} cannot be summed. Use one of {', '.join(ELEMENT_TYPES)}; "
            f'a bfloat16 array is one of uint16 with dtype="bfloat16"'
        )
    if array.dtype != kind.stored:
        raise UsageError(f"all_reduce: dtype is {kind.name}, the array has {array.dtype}: it needs {kind.stored}")
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise UsageError("all_reduce: the array is not contiguous or not writable: reduce a copy of it")
    return kind


def bytes_of(array: ElementArray) -> memoryview:
    """The elements' bytes; the array is flat."""
    return array.view(np.uint8).data


def widen(kind: ElementType, stored: ElementArray, out: ElementArray) -> None:
    """Writes the elements in the type of their sum."""
    if kind.name == "bfloat16":
        np.left_shift(stored, np.uint32(16), out=out.view(np.uint32), dtype=np.uint32)
    else:
        np.copyto(out, stored)


def narrow(kind: ElementType, summed: ElementArray, out: ElementArray) -> None:
    """Writes sums in the type in which elements are stored; too large ones become infinite, NaN stays NaN."""
    if kind.name != "bfloat16":
        np.copyto(out, summed, casting="same_kind")
        return
    bits = summed.view(np.uint32)
    rounded = bits >> 16
    rounded &= 1
    rounded += 0x7FFF
    rounded += bits  # carries into the exponent as it should; a NaN may wrap, and is mended below
    rounded >>= 16
    is_nan = np.isnan(summed)
    if is_nan.any():
        rounded[is_nan] = bits[is_nan] >> 16 | 0x40
    np.copyto(out, rounded, casting="same_kind")


def sum_in_order(kind: ElementType, parts: Sequence[ElementArray], out: ElementArray) -> None:
    """Writes the sum of the parts, added in their order."""
    total = np.empty(out.size, dtype=kind.summed)
    widen(kind, parts[0], total)
    wide = np.empty_like(total) if kind.is_widened else None
    for part in parts[1:]:
        if wide is None:
            np.add(total, part, out=total)
        else:
            widen(kind, part, wide)
            np.add(total, wide, out=total)
    narrow(kind, total, out)
