"""Names and types of the fields of a PodTemplateSpec; `pod_values` checks their values.

The definition of TrainingJob keeps a template as it is written, and the API server silently drops unknown fields from a
pod.  So a misspelt field would vanish, and a value of the wrong type would fail long after the job was accepted.  A
template is therefore checked against the API server's own table (`pod_fields.json`, made by
tests/cluster/pod_fields.py; ADR 0161).

A cluster may be newer than the table.  An unknown name or choice is certainly wrong only if it nearly spells a known
one; any other is left to the API server, which validates strictly before a pod is created.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from importlib.resources import files
from typing import Any, Final

from autoscaler.manifests.field_errors import did_you_mean

Path = tuple[str | int, ...]

TEMPLATE: Final = "PodTemplateSpec"
_SIMILAR: Final = 0.8  # of `difflib`'s ratio: one or two letters of a name, or its case
UNKNOWN_FIELD: Final = "unknown field"
_LONGEST_SHOWN: Final = 60

_TYPES: Final[Mapping[str, Mapping[str, str]]] = json.loads(
    files(__package__).joinpath("pod_fields.json").read_text(encoding="utf-8")
)
_PLAIN: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "string": ((str,), 'text; write it in quotes, "..."'),
    "integer": ((int,), "an integer, without quotes"),
    "boolean": ((bool,), "true or false, without quotes"),
    "quantity": ((str, int, float), "a number with an optional unit, such as 500m, 2, 512Mi"),
    "int-or-string": ((str, int), "an integer, or text"),
    "object": ((dict,), "a mapping"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFinding:
    """One error of a template.  `is_certain`: it is an error in every version of Kubernetes."""

    path: Path
    problem: str
    hint: str = ""
    is_certain: bool = True


def check_fields(value: Any, type_name: str = TEMPLATE) -> Iterator[PodFinding]:
    """Fields of a template, or of another type of the table, with a wrong name or type.  Never raises.

    Null counts as left out, as the API server takes it.
    """
    if not isinstance(value, Mapping):
        yield PodFinding(path=(), problem=f"is {format_value(value)}", hint="should be a mapping of fields")
        return
    known = _TYPES[type_name]
    for name, inner in value.items():
        if name in known:
            if inner is not None:
                yield from under((name,), _check(inner, known[name].removesuffix("!")))
        else:
            text = format_value(name, is_name=True)
            hint = did_you_mean(text, sorted(known))
            yield PodFinding(path=(text,), problem=UNKNOWN_FIELD, hint=hint, is_certain=is_misspelling(text, known))
    for name, wanted in known.items():
        if wanted.endswith("!") and value.get(name) is None:
            yield PodFinding(path=(name,), problem="is missing")


def is_misspelling(name: str, known: Mapping[str, object] | tuple[str, ...]) -> bool:
    """True if the name nearly spells a known one: other letter case, or a letter or two."""
    return any(SequenceMatcher(None, name.lower(), other.lower()).ratio() >= _SIMILAR for other in known)


def format_value(value: Any, *, is_name: bool = False) -> str:
    """The value as messages show it: at most 60 characters."""
    text = value if is_name and isinstance(value, str) else repr(value) if _is_short(value) else f"a {_kind(value)}"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _check(value: Any, wanted: str) -> Iterator[PodFinding]:
    if wanted in _TYPES:
        yield from check_fields(value, wanted)
    elif wanted.startswith("["):
        yield from _check_list(value, wanted[1:-1])
    elif wanted.startswith("{"):
        yield from _check_mapping(value, wanted[1:-1])
    elif wanted in _PLAIN:
        types, hint = _PLAIN[wanted]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            yield PodFinding(path=(), problem=f"is {format_value(value)}", hint=f"should be {hint}")
    else:
        yield from _check_choice(value, tuple(wanted.split("|")))


def _check_list(value: Any, wanted: str) -> Iterator[PodFinding]:
    if not isinstance(value, list):
        yield PodFinding(path=(), problem=f"is {format_value(value)}", hint="should be a list, [a, b]")
        return
    for index, item in enumerate(value):
        yield from under((index,), _check(item, wanted))


def _check_mapping(value: Any, wanted: str) -> Iterator[PodFinding]:
    if not isinstance(value, Mapping):
        yield PodFinding(path=(), problem=f"is {format_value(value)}", hint="should be a mapping of names to values")
        return
    for name, inner in value.items():
        if not isinstance(name, str):
            yield PodFinding(path=(), problem=f"{format_value(name)} is not a name", hint="a name is text")
        else:
            yield from under((name,), _check(inner, wanted))


def _check_choice(value: Any, choices: tuple[str, ...]) -> Iterator[PodFinding]:
    if value in choices or value == "":
        return
    is_certain = not isinstance(value, str) or is_misspelling(value, choices)
    hint = f"one of {', '.join(choices)}" if len(choices) <= len(_PLAIN) else ""
    yield PodFinding(path=(), problem=f"is {format_value(value)}", hint=hint, is_certain=is_certain)


def under(path: Path, findings: Iterable[PodFinding]) -> Iterator[PodFinding]:
    """The findings of a part of a template, with the path of that part before theirs."""
    for finding in findings:
        yield replace(finding, path=(*path, *finding.path))


def _is_short(value: Any) -> bool:
    return isinstance(value, (str, float, bool, type(None))) or (isinstance(value, int) and abs(value) < 2**64)


def _kind(value: Any) -> str:
    return {dict: "mapping", list: "list", int: "number of many digits"}.get(type(value), type(value).__name__)
