"""Dataclasses as plain JSON values and back, by their annotations: one strict form for each value.

* A dataclass is an object of its fields.  A field that holds nothing (None, 0, "", False, empty) by default and in fact
  is left out; a setting whose default says something is always written, so that a later default changes no old file.
* `cpu_milli` and `memory_bytes` are quantities, `"cpu": "500m"` and `"memory": "8Gi"`: exact, whatever the amount.
* Tuples are lists; sets are sorted lists; pairs with a text in front, labels say, are objects.
* A union of dataclasses is an object with the class's name as `type`.
* Names of things can be printed.
* Numbers are finite and, but for priorities, never below zero; whole ones stay exact beyond 2^53.

Unknown fields, other types and names that stand twice are refused with the path of the field (`view.pods[3].phase`).
What the fields mean together is checked by the classes themselves; their refusals get the path too.  Next: `forms`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, is_dataclass
from difflib import get_close_matches
from enum import StrEnum
from math import isfinite
from types import UnionType
from typing import Any, Final, NoReturn, get_args, get_origin

from autoscaler.errors import AutoscalerError, InvalidSpecError
from autoscaler.quantities import QuantityError
from autoscaler.snapshots.forms import Field, fields_of, item_types, paired, unwrap

SIGNED: Final = frozenset({"priority"})
"""Numbers that may be below zero: surplus has the priorities -1 to -8."""

REPEATED: Final = object()
"""Stands for a field that was written twice; `document` puts it there, since JSON readers keep the last one."""

_LARGEST: Final = 2**63 - 1
_LONGEST_SHOWN: Final = 40


def encode(value: Any, declared: Any, path: str = "") -> Any:
    """Return the plain form of a value of this type.  Raises InvalidSpecError where it has none."""
    declared, optional = unwrap(declared)
    if value is None and optional:
        return None
    if optional and isinstance(value, float) and not isfinite(value):
        return None  # of an optional number, not known and NaN mean the same
    if isinstance(declared, type) and is_dataclass(declared):
        if not isinstance(value, declared):
            refuse(path, f"is {shown(value)}", f"a {declared.__name__}")
        return encode_fields(value, path)
    if get_origin(declared) is UnionType:
        return {"type": type(value).__name__} | encode_fields(value, path)
    if get_origin(declared) is None:
        check_scalar(value, declared, path)
        return str(value) if isinstance(value, StrEnum) else value
    if (inner := paired(declared)) is not None:
        pairs = value.items() if isinstance(value, Mapping) else value
        return encode_pairs(pairs if isinstance(value, tuple) else sorted(pairs), inner, path)
    kinds = item_types(declared, len(value))
    items = [encode(item, kind, f"{path}[{i}]") for i, (item, kind) in enumerate(zip(value, kinds, strict=True))]
    return sorted(items, key=json.dumps) if isinstance(value, frozenset) else items


def decode(plain: Any, declared: Any, path: str = "") -> Any:
    """Return the value of this type that the plain form stands for.  Raises InvalidSpecError with the field's path."""
    declared, optional = unwrap(declared)
    if plain is REPEATED:
        refuse(path, "stands twice", "keep one of them")
    if plain is None and optional:
        return None
    if isinstance(declared, type) and is_dataclass(declared):
        return decode_fields(plain, declared, path)
    if get_origin(declared) is UnionType:
        return decode_tagged(plain, declared, path)
    if get_origin(declared) is None:
        return decode_scalar(plain, declared, path)
    if (inner := paired(declared)) is not None:
        pairs = decode_pairs(plain, inner, path)
        return dict(pairs) if get_origin(declared) is Mapping else get_origin(declared)(pairs)
    if not isinstance(plain, list):
        refuse(path, f"is {shown(plain)}", "a list")
    kinds = item_types(declared, len(plain))
    if len(kinds) != len(plain):
        refuse(path, f"has {len(plain)} items", f"{len(kinds)} items")
    items = [decode(item, kind, f"{path}[{i}]") for i, (item, kind) in enumerate(zip(plain, kinds, strict=True))]
    check_once(items, path)
    return get_origin(declared)(items)


# ---- dataclasses ----------------------------------------------------------------------------------------------------


def encode_fields(value: Any, path: str) -> dict[str, Any]:
    """Return the object that stands for a dataclass."""
    plain = {}
    declared: Any = type(value)
    for field in fields_of(declared):
        held, inner = getattr(value, field.name), below(path, field.key)
        if field.is_left_out(held):
            continue
        if field.unit is not None:
            check_scalar(held, int, inner)
            plain[field.key] = field.unit.write(held)
        else:
            plain[field.key] = encode(held, field.declared, inner)
    return plain


def decode_fields(plain: Any, declared: type, path: str) -> Any:
    """Return the dataclass that an object stands for."""
    if not isinstance(plain, dict):
        refuse(path, f"is {shown(plain)}", "an object of fields")
    known = {field.key: field for field in fields_of(declared)}
    for key in plain:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"
            refuse(below(path, key), "unknown field", hint)
    values = {}
    for key, field in known.items():
        if key in plain:
            values[field.name] = decode_field(plain[key], field, below(path, key))
        elif field.default is MISSING:
            refuse(below(path, key), "is missing")
    try:
        return declared(**values)
    except (AutoscalerError, ValueError) as error:
        return refuse(path, str(error))


def decode_field(plain: Any, field: Field, path: str) -> Any:
    """Return one field's value, amounts by their unit."""
    if field.unit is None or plain is REPEATED:
        return decode(plain, field.declared, path)
    if not isinstance(plain, str):
        refuse(path, f"is {shown(plain)}", 'a quantity in quotes, such as "500m" or "8Gi"')
    try:
        return field.unit.read(plain)
    except QuantityError as error:
        return refuse(path, str(error))


def decode_tagged(plain: Any, declared: Any, path: str) -> Any:
    """Return the dataclass of a union that the object's `type` names."""
    kinds = {kind.__name__: kind for kind in get_args(declared)}
    tag = plain.get("type") if isinstance(plain, dict) else None
    if not isinstance(tag, str) or tag not in kinds:
        refuse(below(path, "type"), f"is {shown(tag)}", f"one of {', '.join(kinds)}")
    return decode_fields({key: value for key, value in plain.items() if key != "type"}, kinds[tag], path)


# ---- single values and collections ----------------------------------------------------------------------------------


def decode_scalar(plain: Any, declared: Any, path: str) -> Any:
    """Return a text, number, truth value or member of an enumeration."""
    if isinstance(declared, type) and issubclass(declared, StrEnum):
        if plain not in tuple(declared):
            refuse(path, f"is {shown(plain)}", f"one of {', '.join(declared)}")
        return declared(plain)
    if declared is float and isinstance(plain, int) and not isinstance(plain, bool):
        if abs(plain) > 2**53:
            refuse(path, f"is {shown(plain)}", "a number of seconds that can be told exactly")
        plain = float(plain)
    check_scalar(plain, declared, path)
    return plain


def check_scalar(value: Any, declared: Any, path: str) -> None:
    """Raise InvalidSpecError unless this is a usable value of the type."""
    wanted = {int: "a whole number", float: "a number", str: "a text in quotes", bool: "true or false"}
    if isinstance(declared, type) and issubclass(declared, StrEnum) and isinstance(value, declared):
        return
    if declared not in wanted:
        raise TypeError(f"{path}: no form is known for {declared}")
    is_number = declared in {int, float} and isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (isinstance(value, declared) or (is_number and declared is float)) or (declared is int and not is_number):
        refuse(path, f"is {shown(value)}", wanted[declared])
    if not is_number:
        return
    if isinstance(value, float) and not isfinite(value):
        refuse(path, f"is {value}", "a finite number")
    if abs(value) > _LARGEST:
        refuse(path, f"is {shown(value)}", "at most 2^63 - 1, which is as far as Kubernetes counts")
    if value < 0 and path.rpartition(".")[2] not in SIGNED:
        refuse(path, f"is {value}", "0 or more")


def encode_pairs(pairs: Iterable[tuple[str, Any]], inner: Any, path: str) -> dict[str, Any]:
    """Return the object that stands for pairs, or refuse a key that stands twice."""
    plain: dict[str, Any] = {}
    for key, value in pairs:
        if key in plain:
            refuse(below(path, key), "stands twice")
        plain[key] = encode(value, inner, below(path, key))
    return plain


def decode_pairs(plain: Any, inner: Any, path: str) -> list[tuple[str, Any]]:
    """Return the pairs that an object stands for."""
    if not isinstance(plain, dict):
        refuse(path, f"is {shown(plain)}", "an object")
    return [(key, decode(value, inner, below(path, key))) for key, value in plain.items()]


def check_once(items: Sequence[Any], path: str) -> None:
    """Raise InvalidSpecError if two items carry one name, or one carries none that can be printed."""
    seen = set()
    for number, item in enumerate(items):
        if not is_dataclass(item) or not hasattr(item, "name"):
            return
        if not item.name or not item.name.isprintable():
            hint = "a name that can be printed: terminals obey what stands in a file"
            refuse(f"{path}[{number}].name", f"is {shown(item.name)}", hint)
        name = (getattr(item, "namespace", ""), item.name)
        if name in seen:
            refuse(f"{path}[{number}].name", f"{item.name} stands twice", "give each one a name of its own")
        seen.add(name)


def below(path: str, key: str) -> str:
    """Return the path of a field of `path`."""
    return f"{path}.{key}" if path else key


def shown(plain: Any) -> str:
    """Return what was written there, if it is short."""
    text = json.dumps(plain, default=lambda _: "...")
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def refuse(path: str, problem: str, hint: str = "") -> NoReturn:
    """Raise InvalidSpecError about the field at `path`."""
    raise InvalidSpecError(path or "the file", problem, hint)
