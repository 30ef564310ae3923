"""The JSON codec of dataclasses, and the strict form in which manifests, statuses and durable records are written.

Position sets are lists of [start, stop) ranges.  Every field must be present and no other: an unknown field means
another version, and guessing could lose a sample.  So a document carries a version beside the value, and any change
of a field is a new version.

`JsonCodec` walks a value along its `shape`.  A form that differs from the strict one overrides what it writes otherwise
(`autoscaler.snapshots.codec`: units, defaults left out).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from math import isfinite
from typing import Any, Final, TypeVar, assert_never

from master.api.errors import DocumentError
from master.api.positions import MAX_POSITION, PositionSet
from master.api.shape import ByName, Fixed, Many, OneOf, Optional, Positions, Record, Scalar, Shape, Word, record_of

_T = TypeVar("_T")

LARGEST_NUMBER: Final = 2**64 - 1
"""Of whole numbers, to either side of 0; a float is finite, and a text is Unicode that can be written."""


def to_plain(value: Any) -> Any:
    """A contract dataclass as dicts, lists and scalars, ready for `json`."""
    return _STRICT.write(record_of(type(value)), value)


def from_plain(cls: type[_T], plain: Any) -> _T:
    """The inverse of `to_plain`.  Raises DocumentError, naming the field."""
    value: _T = _STRICT.read(record_of(cls), plain)
    return value


def encode_document(value: Any) -> bytes:
    """One line of JSON with sorted keys: equal values have equal bytes."""
    return encode_plain(to_plain(value))


def encode_plain(plain: Any) -> bytes:
    """Encode a plain form, as `encode_document`."""
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def decode_document(cls: type[_T], data: bytes) -> _T:
    """The inverse of `encode_document`.  Raises DocumentError, naming the field."""
    return from_plain(cls, parse_json(data))


def parse_json(data: bytes) -> Any:
    """Parse JSON bytes.  Raises DocumentError."""
    try:
        return json.loads(data, parse_constant=_refuse_constant)
    except ValueError as error:
        raise DocumentError("", f"is not JSON ({error}): truncated or altered?") from error
    except RecursionError:
        raise DocumentError("", "is nested too deeply") from None


def _refuse_constant(name: str) -> Any:
    raise DocumentError("", f"has {name}, which is not a JSON number")


_LONGEST_SHOWN: Final = 40
_NAMES: Final[dict[Any, str]] = {
    list: "a list",
    dict: "an object",
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
}


class JsonCodec:
    """Values as plain dicts, lists and scalars, and back, along their shapes.  Raises DocumentError, naming the field.

    The strict form: every field stands there and no other, pairs and position ranges are lists.
    """

    def write(self, shape: Shape, value: Any) -> Any:
        """The plain form of a value."""
        match shape:
            case Scalar():
                return self.write_scalar(shape, value)
            case Word():
                return str(value)
            case Positions():
                return [list(bounds) for bounds in value.ranges()]
            case Optional():
                return None if value is None else self.write(shape.inner, value)
            case Many():
                return [self.write_at(f"[{i}]", shape.inner, item) for i, item in enumerate(value)]
            case Fixed():
                return [self.write(inner, item) for inner, item in zip(shape.inners, value, strict=True)]
            case ByName():
                return {name: self.write_at(name, shape.inner, item) for name, item in value.items()}
            case Record():
                return self.write_record(shape, value)
            case OneOf():
                record = next(one for one in shape.records if one.type is type(value))
                return {"type": record.type.__name__} | self.write_record(record, value)
            case _:
                assert_never(shape)

    def read(self, shape: Shape, plain: Any) -> Any:
        """The value that a plain form stands for."""
        match shape:
            case Scalar():
                return self.read_scalar(shape, plain)
            case Word():
                return self.read_word(shape, plain)
            case Positions():
                return self.read_positions(plain)
            case Optional():
                return None if plain is None else self.read(shape.inner, plain)
            case Many():
                items = [self.read_at(f"[{i}]", shape.inner, item) for i, item in enumerate(self.expect(list, plain))]
                return frozenset(items) if shape.is_set else tuple(items)
            case Fixed():
                return self.read_fixed(shape, plain)
            case ByName():
                return {name: self.read_at(name, shape.inner, item) for name, item in self.expect(dict, plain).items()}
            case Record():
                return self.read_record(shape, plain)
            case OneOf():
                return self.read_tagged(shape, plain)
            case _:
                assert_never(shape)

    def write_at(self, name: str, shape: Shape, value: Any) -> Any:
        """`write`, whose refusals name this field or item."""
        try:
            return self.write(shape, value)
        except DocumentError as error:
            raise error.within(name) from error

    def read_at(self, name: str, shape: Shape, plain: Any) -> Any:
        """`read`, whose refusals name this field or item."""
        try:
            return self.read(shape, plain)
        except DocumentError as error:
            raise error.within(name) from error

    def refused(self, problem: str, wanted: str) -> DocumentError:
        """The error about a value that is not what was wanted."""
        return DocumentError("", f"{problem}, not {wanted}")

    def expect(self, kind: Callable[..., Any], plain: Any) -> Any:
        """`plain`, if it is of exactly this kind of JSON.  Raises DocumentError."""
        if type(plain) is not kind:
            raise self.refused(f"is {shown(plain)}", _NAMES[kind])
        return plain

    def write_scalar(self, shape: Scalar, value: Any) -> Any:  # noqa: ARG002 - for other forms
        """A number, text or truth value."""
        return value

    def read_scalar(self, shape: Scalar, plain: Any) -> Any:
        """A number of at most 64 bits, a text of whole characters, or a truth value; an identity is not empty."""
        value = plain if shape.type is float and type(plain) is int else self.expect(shape.type, plain)
        match value:
            case bool():
                pass
            case int() if abs(value) > LARGEST_NUMBER:
                raise DocumentError("", "is a number beyond 64 bits")
            case float() if not isfinite(value):
                raise DocumentError("", "is not a finite number")
            case str() if not _is_unicode(value):
                raise DocumentError("", "contains a lone surrogate")
        if shape.is_identity and not value:
            raise DocumentError("", "is empty")
        return float(value) if shape.type is float else value

    def read_word(self, shape: Word, plain: Any) -> str:
        """A member of a closed set."""
        for word in shape.values:
            if word == plain:
                return word
        raise self.refused(f"is {shown(plain)}", f"one of: {', '.join(shape.values)}")

    def read_positions(self, plain: Any) -> PositionSet:
        """A set of positions, of sorted and disjoint ranges [start, stop)."""
        bounds: list[int] = []
        for pair in self.expect(list, plain):
            if len(self.expect(list, pair)) != 2:
                raise DocumentError("", f"has the range {shown(pair)}; a range is [start, stop)")
            bounds += (self.expect(int, pair[0]), self.expect(int, pair[1]))
        if bounds and (bounds[0] < 0 or bounds[-1] > MAX_POSITION or any(a >= b for a, b in pairwise(bounds))):
            raise DocumentError("", "is not sorted, disjoint ranges in [0, 2**62)")
        return PositionSet(tuple(bounds))

    def read_fixed(self, shape: Fixed, plain: Any) -> tuple[Any, ...]:
        """A tuple with one shape for each place."""
        items = self.expect(list, plain)
        if len(items) != len(shape.inners):
            raise self.refused(f"has {len(items)} places", str(len(shape.inners)))
        places = enumerate(zip(shape.inners, items, strict=True))
        return tuple(self.read_at(f"[{i}]", inner, item) for i, (inner, item) in places)

    def write_record(self, shape: Record, value: Any) -> dict[str, Any]:
        """A dataclass as an object of its fields."""
        return {name: self.write_at(name, inner, getattr(value, name)) for name, inner in shape.fields}

    def read_record(self, shape: Record, plain: Any) -> Any:
        """A dataclass, of an object with all of its fields."""
        self.expect(dict, plain)
        names = {name for name, _ in shape.fields}
        for name in names.symmetric_difference(plain):
            raise DocumentError(name, "is missing" if name in names else "is unknown: written by a newer EDL?")
        return shape.type(**{name: self.read_at(name, inner, plain[name]) for name, inner in shape.fields})

    def read_tagged(self, shape: OneOf, plain: Any) -> Any:
        """The dataclass of a union that the object's `type` names."""
        records = {record.type.__name__: record for record in shape.records}
        tag = plain.get("type") if isinstance(plain, dict) else None
        if not isinstance(tag, str) or tag not in records:
            raise self.refused(f"is {shown(tag)}", f"one of {', '.join(records)}").within("type")
        return self.read_record(records[tag], {key: value for key, value in plain.items() if key != "type"})


def shown(plain: Any) -> str:
    """The bad value, cut to the length of a message."""
    text = json.dumps(plain, default=lambda _: "...")
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


_STRICT: Final = JsonCodec()
