"""The JSON form of snapshots: dataclasses as objects that people can read and edit, exact and strict.

It differs from the strict form of `master.api.document` in these points:

* A field whose default is empty (None, 0, "", False) is omitted while it is empty; a setting with a non-empty
  default is always written, so that a later default changes no old file.
* `cpu_milli` and `memory_bytes` are quantities, `"cpu": "500m"` and `"memory": "8Gi"`: exact, whatever the amount.
* Sets are sorted lists; pairs with a text in front, labels say, are objects.
* Items of a list have names that are unique and can be printed.
* Numbers are finite and, but for priorities, never below zero; whole ones stay exact beyond 2^53.

Every refusal is an InvalidSpecError with the path of the field (`view.pods[3].phase`), also those of the classes
themselves, which check what their fields mean together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from json import dumps
from math import isfinite
from typing import Any, Final

from autoscaler.errors import AutoscalerError, InvalidSpecError
from autoscaler.quantities import QuantityError, format_cpu, format_memory, parse_cpu_m, parse_memory_bytes
from master.api.document import JsonCodec, shown
from master.api.errors import DocumentError
from master.api.shape import ByName, Fixed, Many, Optional, Record, Scalar, Shape, record_of, shape_of

SIGNED: Final = frozenset({"priority"})
"""Numbers that may be below zero: surplus has the priorities -1 to -8."""

REPEATED: Final = object()
"""Marker for a duplicate field; `snapshot_file` inserts it, since JSON readers keep the last one."""

_LARGEST: Final = 2**63 - 1
_KINDS: Final = {int: "a whole number", float: "a number", str: "a text in quotes", bool: "true or false"}


class SnapshotError(DocumentError):
    """Error of one field; `hint`: what to write instead."""

    hint = ""

    def within(self, outer: str) -> SnapshotError:
        found = super().within(outer)
        found.hint = self.hint
        return found


class SignedNumber(Scalar):
    """A number that may be below zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Unit in which the amounts of a field are written."""

    suffix: str
    write: Callable[[int], str]
    read: Callable[[str], int]


UNITS: Final = (
    Unit(suffix="_milli", write=format_cpu, read=parse_cpu_m),
    Unit(suffix="_bytes", write=format_memory, read=parse_memory_bytes),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileField:
    """One field of a dataclass: its name there, its key in the file, its shape, and its value when left out."""

    name: str
    key: str
    shape: Shape
    default: Any
    unit: Unit | None

    def is_left_out(self, value: Any) -> bool:
        """True if the value is nothing, and nothing is the default."""
        return not self.default and not value and bool(value == self.default)


@cache
def fields_of(declared: type) -> Mapping[str, FileField]:
    """The fields that make a value of this dataclass, by their keys in the file and in their order."""
    items = {item.name: item for item in fields(declared)}
    found = []
    for name, shape in record_of(declared).fields:
        item, unit = items[name], next((unit for unit in UNITS if name.endswith(unit.suffix)), None)
        found.append(
            FileField(
                name=name,
                key=name.removesuffix(unit.suffix) if unit else name,
                shape=SignedNumber(shape.type) if name in SIGNED and isinstance(shape, Scalar) else shape,
                default=item.default if item.default_factory is MISSING else item.default_factory(),
                unit=unit,
            )
        )
    return {field.key: field for field in found}


def encode(value: Any, declared: Any) -> Any:
    """The plain form of a value of this type.  Raises InvalidSpecError where it has none."""
    try:
        return _CODEC.write(shape_of(declared, where="snapshot"), value)
    except DocumentError as error:
        raise _as_spec_error(error) from error


def decode(plain: Any, declared: Any) -> Any:
    """The value of this type that the plain form stands for.  Raises InvalidSpecError with the field's path."""
    try:
        return _CODEC.read(shape_of(declared, where="snapshot"), plain)
    except DocumentError as error:
        raise _as_spec_error(error) from error


def refusal(field: str, problem: str, hint: str = "") -> SnapshotError:
    """The error about this field of the value at hand."""
    error = SnapshotError(field, problem)
    error.hint = hint
    return error


def _as_spec_error(error: DocumentError) -> InvalidSpecError:
    hint = error.hint if isinstance(error, SnapshotError) else ""
    return InvalidSpecError(error.field or "the file", error.problem, hint)


class SnapshotCodec(JsonCodec):
    """The form of snapshots, as the module says."""

    def write(self, shape: Shape, value: Any) -> Any:
        if isinstance(shape, Optional) and isinstance(value, float) and not isfinite(value):
            return None  # NaN of an optional number means unknown
        if (inner := _paired(shape)) is not None:
            pairs = value.items() if isinstance(value, Mapping) else value
            return self._write_pairs(inner, pairs if isinstance(value, tuple) else sorted(pairs))
        plain = super().write(shape, value)
        return sorted(plain, key=dumps) if isinstance(shape, Many) and shape.is_set else plain

    def read(self, shape: Shape, plain: Any) -> Any:
        if plain is REPEATED:
            raise refusal("", "is given twice", "remove one")
        if (inner := _paired(shape)) is not None and not isinstance(shape, ByName):
            pairs = [(key, self.read_at(key, inner, item)) for key, item in self.expect(dict, plain).items()]
            return frozenset(pairs) if isinstance(shape, Many) and shape.is_set else tuple(pairs)
        found = super().read(shape, plain)
        if isinstance(shape, Many):
            check_names(tuple(found))
        return found

    def refused(self, problem: str, wanted: str) -> DocumentError:
        return refusal("", problem, wanted)

    def write_scalar(self, shape: Scalar, value: Any) -> Any:
        check_scalar(shape, value)
        return value

    def read_scalar(self, shape: Scalar, plain: Any) -> Any:
        if shape.type is float and type(plain) is int:
            if abs(plain) > 2**53:
                raise refusal("", f"is {shown(plain)}", "a number of seconds that is exactly representable")
            plain = float(plain)
        check_scalar(shape, plain)
        return plain

    def write_record(self, shape: Record, value: Any) -> dict[str, Any]:
        if not isinstance(value, shape.type):
            raise refusal("", f"is {shown(value)}", f"a {shape.type.__name__}")
        plain = {}
        for key, field in fields_of(shape.type).items():
            held = getattr(value, field.name)
            if field.is_left_out(held):
                continue
            written = self.write_at(key, field.shape, held)
            plain[key] = field.unit.write(held) if field.unit else written
        return plain

    def read_record(self, shape: Record, plain: Any) -> Any:
        if not isinstance(plain, dict):
            raise refusal("", f"is {shown(plain)}", "an object of fields")
        known = fields_of(shape.type)
        for key in plain:
            if key not in known:
                near = get_close_matches(key, known, n=1)
                raise refusal(
                    key, "unknown field", f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"
                )
        values = {}
        for key, field in known.items():
            if key in plain:
                values[field.name] = self._read_field(field, plain[key])
            elif field.default is MISSING:
                raise refusal(key, "is missing")
        try:
            return shape.type(**values)
        except (AutoscalerError, ValueError) as error:
            raise refusal("", str(error)) from error

    def _read_field(self, field: FileField, plain: Any) -> Any:
        if field.unit is None or plain is REPEATED:
            return self.read_at(field.key, field.shape, plain)
        if not isinstance(plain, str):
            raise refusal(field.key, f"is {shown(plain)}", 'a quantity in quotes, such as "500m" or "8Gi"')
        try:
            return field.unit.read(plain)
        except QuantityError as error:
            raise refusal(field.key, str(error)) from error

    def _write_pairs(self, inner: Shape, pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for key, value in pairs:
            if key in plain:
                raise refusal(key, "is given twice")
            plain[key] = self.write_at(key, inner, value)
        return plain


_CODEC: Final = SnapshotCodec()


def _paired(shape: Shape) -> Shape | None:
    """The shape of the values where a collection is one of (text, value) pairs, else None."""
    match shape:
        case ByName():
            return shape.inner
        case Many(inner=Fixed(inners=(Scalar() as first, inner))) if first.type is str:
            return inner
        case _:
            return None


def check_scalar(shape: Scalar, value: Any) -> None:
    """Raise SnapshotError unless this is a usable value of the type."""
    declared = shape.type
    is_number = declared in {int, float} and isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (is_number if declared in {int, float} else isinstance(value, declared)) or (
        declared is int and isinstance(value, float)
    ):
        raise refusal("", f"is {shown(value)}", _KINDS[declared])
    if not is_number:
        return
    if isinstance(value, float) and not isfinite(value):
        raise refusal("", f"is {value}", "a finite number")
    if abs(value) > _LARGEST:
        raise refusal("", f"is {shown(value)}", "at most 2^63 - 1, which is as far as Kubernetes counts")
    if value < 0 and not isinstance(shape, SignedNumber):
        raise refusal("", f"is {value}", "0 or more")


def check_names(items: Sequence[Any]) -> None:
    """Raise SnapshotError if two items carry one name, or one carries none that can be printed."""
    seen = set()
    for number, item in enumerate(items):
        if not is_dataclass(item) or not hasattr(item, "name"):
            return
        if not item.name or not item.name.isprintable():
            hint = "a name of printable characters (terminal control sequences are refused)"
            raise refusal(f"[{number}].name", f"is {shown(item.name)}", hint)
        name = (getattr(item, "namespace", ""), item.name)
        if name in seen:
            raise refusal(f"[{number}].name", f"{item.name} is given twice", "give each one a name of its own")
        seen.add(name)
