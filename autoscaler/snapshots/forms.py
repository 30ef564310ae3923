"""What the annotations of a dataclass say about its plain form: fields with their keys and units, kinds of collections.

`codec` goes by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from types import UnionType
from typing import Any, Final, NewType, Union, get_args, get_origin, get_type_hints

from autoscaler.quantities import format_cpu, format_memory, parse_cpu_m, parse_memory_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """How the amounts of a field are written."""

    suffix: str
    write: Callable[[int], str]
    read: Callable[[str], int]


UNITS: Final = (
    Unit(suffix="_milli", write=format_cpu, read=parse_cpu_m),
    Unit(suffix="_bytes", write=format_memory, read=parse_memory_bytes),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a dataclass: its name there, its key in the file, its type, and what it is when left out."""

    name: str
    key: str
    declared: Any
    default: Any
    unit: Unit | None

    def is_left_out(self, value: Any) -> bool:
        """Whether the value is nothing, and nothing is the default."""
        return not self.default and not value and bool(value == self.default)


@cache
def fields_of(declared: Any) -> tuple[Field, ...]:
    """Return the fields that make a value of this dataclass, in their order."""
    hints = get_type_hints(declared)
    return tuple(
        Field(
            name=item.name,
            key=item.name.removesuffix(unit.suffix) if (unit := unit_of(item.name)) else item.name,
            declared=hints[item.name],
            default=item.default if item.default_factory is MISSING else item.default_factory(),
            unit=unit,
        )
        for item in fields(declared)
        if item.init
    )


@cache
def unwrap(declared: Any) -> tuple[Any, bool]:
    """Return the type behind a NewType, and whether None may stand in its place."""
    if isinstance(declared, NewType):
        return unwrap(declared.__supertype__)
    if get_origin(declared) not in {Union, UnionType}:
        return declared, False
    kinds = [kind for kind in get_args(declared) if kind is not type(None)]
    optional = len(kinds) < len(get_args(declared))
    if len(kinds) == 1:
        return unwrap(kinds[0])[0], optional
    together = kinds[0]
    for kind in kinds[1:]:
        together = together | kind
    return together, optional


@cache
def paired(declared: Any) -> Any:
    """Return the type of the values where the collection is one of (text, value) pairs, else None."""
    arguments = get_args(declared)
    if get_origin(declared) is Mapping:
        return arguments[1]
    is_many = get_origin(declared) is frozenset or (len(arguments) == 2 and arguments[1] is Ellipsis)
    pair = get_args(arguments[0]) if is_many and get_origin(arguments[0]) is tuple else ()
    return pair[1] if len(pair) == 2 and unwrap(pair[0])[0] is str and pair[1] is not Ellipsis else None


def item_types(declared: Any, count: int) -> tuple[Any, ...]:
    """Return the type of each of `count` items; of a tuple of fixed length those that it declares."""
    arguments = get_args(declared)
    if get_origin(declared) is frozenset or arguments[1:] == (Ellipsis,):
        return (arguments[0],) * count
    return arguments


def unit_of(name: str) -> Unit | None:
    """Return the unit in which a field's amounts are written, by the end of its name."""
    return next((unit for unit in UNITS if name.endswith(unit.suffix)), None)
