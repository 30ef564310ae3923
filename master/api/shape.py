"""What a contract value is made of, read from its dataclass, so that each outside form is written once for all values.

The problem: forty messages, the manifest and the status have a protobuf or a JSON form, strict in what they take.
Written by hand that is a thousand lines in which one forgotten field loses a sample.  Here a dataclass is turned into
a small tree of shapes once, at import; `codec` (protobuf) and `document` (JSON) each walk that tree.

Pure.  A type that has no shape is a TypeError at import, never at run time.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    """A tuple of any length."""

    inner: Shape


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
    """A frozen dataclass."""

    type: type
    fields: tuple[tuple[str, Shape], ...]


Shape: TypeAlias = Scalar | Word | Positions | Optional | Many | Fixed | ByName | Record


def record_of(cls: type) -> Record:
    """The shape of a dataclass.  Raises TypeError, naming the field, where a type has no outside form."""
    return _record_of(cls)


@cache
def _record_of(cls: type[Any]) -> Record:
    hints = get_type_hints(cls)
    return Record(cls, tuple((f.name, shape_of(hints[f.name], where=f"{cls.__name__}.{f.name}")) for f in fields(cls)))


def shape_of(hint: Any, *, where: str) -> Shape:
    """The shape of a type annotation."""
    origin, arguments = get_origin(hint), get_args(hint)
    if isinstance(hint, NewType):
        inner = shape_of(hint.__supertype__, where=where)
        return Scalar(str, is_identity=True) if inner == Scalar(str) else inner
    if origin is Literal:
        return Word(arguments)
    if origin in (Union, UnionType) and len(arguments) == 2 and NoneType in arguments:
        return Optional(shape_of(next(a for a in arguments if a is not NoneType), where=where))
    if origin is tuple and arguments[1:] == (...,):
        return Many(shape_of(arguments[0], where=where))
    if origin is tuple:
        return Fixed(tuple(shape_of(argument, where=where) for argument in arguments))
    if origin is Mapping and arguments[0] is str:
        return ByName(shape_of(arguments[1], where=where))
    return _of_class(hint, where=where)


def _of_class(hint: Any, *, where: str) -> Shape:
    if hint in (int, float, str, bool):
        return Scalar(hint)
    if hint is PositionSet:
        return Positions()
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return Word(tuple(hint))
    if isinstance(hint, type) and is_dataclass(hint):
        return record_of(hint)
    raise TypeError(f"{where}: {hint} has no outside form")
