"""Contract values to and from JSON, strictly: manifests, statuses and durable records are read by people and by jq.

Position sets are lists of [start, stop) ranges.  Every field must stand there and no other: a reader that meets what
it does not know has met another version, and guessing would risk a sample.  So a document carries a version beside the
value, and any change of a field is a new version.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from math import isfinite
from typing import Any, Final, TypeVar, assert_never

from master.api.errors import DocumentError
from master.api.positions import MAX_POSITION, PositionSet
from master.api.shape import ByName, Fixed, Many, Optional, Positions, Record, Scalar, Shape, Word, record_of

_T = TypeVar("_T")

LARGEST_NUMBER: Final = 2**64 - 1
"""Of whole numbers, to either side of 0; a float is finite, and a text is Unicode that can be written."""


def to_plain(value: Any) -> Any:
    """A contract dataclass as dicts, lists and scalars, ready for `json`."""
    return _write(record_of(type(value)), value)


def from_plain(cls: type[_T], plain: Any) -> _T:
    """The inverse of `to_plain`.  Raises DocumentError, naming the field."""
    value: _T = _read(record_of(cls), plain)
    return value


def encode_document(value: Any) -> bytes:
    """One line of JSON with sorted keys: equal values have equal bytes."""
    return encode_plain(to_plain(value))


def encode_plain(plain: Any) -> bytes:
    """As `encode_document`, of what `to_plain` gave."""
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def decode_document(cls: type[_T], data: bytes) -> _T:
    """The inverse of `encode_document`.  Raises DocumentError, naming the field."""
    return from_plain(cls, parse_json(data))


def parse_json(data: bytes) -> Any:
    """What the bytes say.  Raises DocumentError."""
    try:
        return json.loads(data, parse_constant=_refuse_constant)
    except ValueError as error:
        raise DocumentError("", f"is no JSON ({error}): cut short or altered?") from error
    except RecursionError:
        raise DocumentError("", "is nested without end") from None


def _refuse_constant(name: str) -> Any:
    raise DocumentError("", f"has {name}, which is no number of JSON")


# ---- writing --------------------------------------------------------------------------------------------------------


def _write(shape: Shape, value: Any) -> Any:
    match shape:
        case Scalar():
            return value
        case Word():
            return str(value)
        case Positions():
            return [list(bounds) for bounds in value.ranges()]
        case Optional():
            return None if value is None else _write(shape.inner, value)
        case Many():
            return [_write(shape.inner, item) for item in value]
        case Fixed():
            return [_write(inner, item) for inner, item in zip(shape.inners, value, strict=True)]
        case ByName():
            return {name: _write(shape.inner, item) for name, item in value.items()}
        case Record():
            return {name: _write(inner, getattr(value, name)) for name, inner in shape.fields}
        case _:
            assert_never(shape)


# ---- reading --------------------------------------------------------------------------------------------------------


def _read(shape: Shape, plain: Any) -> Any:
    match shape:
        case Scalar():
            return _read_scalar(shape, plain)
        case Word():
            return _read_word(shape, plain)
        case Positions():
            return _read_positions(plain)
        case Optional():
            return None if plain is None else _read(shape.inner, plain)
        case Many():
            return tuple(_at(f"[{i}]", shape.inner, item) for i, item in enumerate(_expect(list, plain)))
        case Fixed():
            return _read_fixed(shape, plain)
        case ByName():
            return {name: _at(name, shape.inner, item) for name, item in _expect(dict, plain).items()}
        case Record():
            return _read_record(shape, plain)
        case _:
            assert_never(shape)


def _at(name: str, shape: Shape, plain: Any) -> Any:
    try:
        return _read(shape, plain)
    except DocumentError as error:
        raise error.within(name) from error


def _expect(kind: Callable[..., Any], plain: Any) -> Any:
    if type(plain) is not kind:
        raise DocumentError("", f"is {json.dumps(plain)[:40]}, not {_NAMES[kind]}")
    return plain


_NAMES: Final[dict[Any, str]] = {
    list: "a list",
    dict: "an object",
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
}


def _read_scalar(shape: Scalar, plain: Any) -> Any:
    value = plain if shape.type is float and type(plain) is int else _expect(shape.type, plain)
    match value:
        case bool():
            pass
        case int() if abs(value) > LARGEST_NUMBER:
            raise DocumentError("", "is a number beyond 64 bits")
        case float() if not isfinite(value):
            raise DocumentError("", "is no finite number")
        case str() if not _is_unicode(value):
            raise DocumentError("", "is a text with half a character (a lone surrogate)")
    if shape.is_identity and not value:
        raise DocumentError("", "is empty")
    return float(value) if shape.type is float else value


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_word(shape: Word, plain: Any) -> str:
    for word in shape.values:
        if word == plain:
            return word
    raise DocumentError("", f"is {json.dumps(plain)[:40]}, not one of: {', '.join(shape.values)}")


def _read_positions(plain: Any) -> PositionSet:
    bounds: list[int] = []
    for pair in _expect(list, plain):
        if len(_expect(list, pair)) != 2:
            raise DocumentError("", f"has the range {json.dumps(pair)[:40]}; a range is [start, stop)")
        bounds += (_expect(int, pair[0]), _expect(int, pair[1]))
    if bounds and (bounds[0] < 0 or bounds[-1] > MAX_POSITION or any(a >= b for a, b in pairwise(bounds))):
        raise DocumentError("", "is not sorted, disjoint ranges in [0, 2**62)")
    return PositionSet(tuple(bounds))


def _read_fixed(shape: Fixed, plain: Any) -> tuple[Any, ...]:
    items = _expect(list, plain)
    if len(items) != len(shape.inners):
        raise DocumentError("", f"has {len(items)} places, not {len(shape.inners)}")
    return tuple(_at(f"[{i}]", inner, item) for i, (inner, item) in enumerate(zip(shape.inners, items, strict=True)))


def _read_record(shape: Record, plain: Any) -> Any:
    _expect(dict, plain)
    names = {name for name, _ in shape.fields}
    for name in names.symmetric_difference(plain):
        raise DocumentError(name, "is missing" if name in names else "is unknown: written by a newer EDL?")
    return shape.type(**{name: _at(name, inner, plain[name]) for name, inner in shape.fields})
