"""Shape of a dataclass, derived from its annotations, so that one codec serves all values of a form.

The problem: forty messages, the manifest and the status have a protobuf or a JSON form, strict in what they take.
Written by hand that is a thousand lines in which one forgotten field loses a sample.  Here a dataclass is turned into
a small tree of shapes once, at import; `wire.message_codec` (protobuf), `document` (JSON) and the cluster side's
snapshots (JSON for people) each walk that tree.

Pure.  A type that has no shape is a TypeError at import, never at run time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, NewType, TypeAlias, Union, get_args, get_origin, get_type_hints

from master.api.positions import PositionSet


@dataclass(frozen=True, slots=True)
class Scalar:
    """int, float, str or bool.  An identity (a NewType of str) is never empty."""

    type: type
    is_identity: bool = False


@dataclass(frozen=True, slots=True)
class Word:
    """One of a closed set of words."""

    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Positions:
    """A PositionSet."""


@dataclass(frozen=True, slots=True)
class Optional:
    """The value or None."""

    inner: Shape


@dataclass(frozen=True, slots=True)
class Many:
    """A tuple of any length, or a frozenset."""

    inner: Shape
    is_set: bool = False


@dataclass(frozen=True, slots=True)
class Fixed:
    """A tuple with one shape for each place."""

    inners: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class ByName:
    """A mapping from names."""

    inner: Shape


@dataclass(frozen=True, slots=True)
class Record:
    """A frozen dataclass: the fields that its constructor takes and that make values equal."""

    type: type
    fields: tuple[tuple[str, Shape], ...]


@dataclass(frozen=True, slots=True)
class OneOf:
    """A union of dataclasses."""

    records: tuple[Record, ...]


Shape: TypeAlias = Scalar | Word | Positions | Optional | Many | Fixed | ByName | Record | OneOf


def record_of(cls: type) -> Record:
    """The shape of a dataclass.  Raises TypeError, naming the field, where a type cannot be encoded."""
    return _record_of(cls)


@cache
def _record_of(cls: type[Any]) -> Record:
    hints = get_type_hints(cls)
    made_of = [field.name for field in fields(cls) if field.init and field.compare]
    return Record(cls, tuple((name, shape_of(hints[name], where=f"{cls.__name__}.{name}")) for name in made_of))


def shape_of(hint: Any, *, where: str) -> Shape:
    """The shape of a type annotation."""
    origin, arguments = get_origin(hint), get_args(hint)
    if isinstance(hint, NewType):
        inner = shape_of(hint.__supertype__, where=where)
        return Scalar(str, is_identity=True) if inner == Scalar(str) else inner
    if origin is Literal:
        return Word(arguments)
    if origin in (Union, UnionType):
        inner = _of_union([argument for argument in arguments if argument is not NoneType], where=where)
        return Optional(inner) if NoneType in arguments else inner
    if origin is frozenset or (origin is tuple and arguments[1:] == (...,)):
        return Many(shape_of(arguments[0], where=where), is_set=origin is frozenset)
    if origin is tuple:
        return Fixed(tuple(shape_of(argument, where=where) for argument in arguments))
    if origin is Mapping and getattr(arguments[0], "__supertype__", arguments[0]) is str:
        return ByName(shape_of(arguments[1], where=where))
    return _of_class(hint, where=where)


def _of_union(hints: Sequence[Any], *, where: str) -> Shape:
    """One shape, where all members have the same; else a union of dataclasses."""
    first, *others = shapes = [shape_of(hint, where=where) for hint in hints]
    if all(other == first for other in others):
        return first
    records = tuple(shape for shape in shapes if isinstance(shape, Record))
    if len(records) < len(shapes):
        raise TypeError(f"{where}: {' | '.join(map(str, hints))} cannot be encoded")
    return OneOf(records)


def _of_class(hint: Any, *, where: str) -> Shape:
    if hint in (int, float, str, bool):
        return Scalar(hint)
    if hint is PositionSet:
        return Positions()
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return Word(tuple(hint))
    if isinstance(hint, type) and is_dataclass(hint):
        return record_of(hint)
    raise TypeError(f"{where}: {hint} cannot be encoded")
