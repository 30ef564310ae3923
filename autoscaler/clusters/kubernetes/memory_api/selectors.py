"""Label and field selectors as the API writes them.  Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from autoscaler.clusters.kubernetes.api.api_port import Raw, Scope
from autoscaler.clusters.kubernetes.api.errors import BadRequestError

Matches: TypeAlias = Callable[[Raw], bool]
_Labels: TypeAlias = Mapping[str, str]

_COMMA: Final = re.compile(r",(?![^(]*\))")
_SET: Final = re.compile(r"^(\S+)\s+(in|notin)\s+\(([^)]*)\)$")
_EQUAL: Final = re.compile(r"^([^\s=!]+)\s*(!=|==?)\s*(.*)$")
_KEY: Final = re.compile(r"^(!?)([^\s=!]+)$")


def parse_scope(scope: Scope) -> Matches:
    """Return a predicate for objects of the scope.  Raises BadRequestError for an invalid selector."""
    labels = [_parse_label(part.strip()) for part in _COMMA.split(scope.labels) if part.strip()]
    fields = [_parse_field(part.strip()) for part in _COMMA.split(scope.fields) if part.strip()]

    def matches(obj: Raw) -> bool:
        if scope.namespace is not None and obj["metadata"].get("namespace") != scope.namespace:
            return False
        held: _Labels = obj["metadata"].get("labels") or {}
        return all(wanted(held) for wanted in labels) and all(wanted(obj) for wanted in fields)

    return matches


def _parse_label(text: str) -> Callable[[_Labels], bool]:
    if found := _SET.match(text):
        key, verb = found[1], found[2]
        values = {value.strip() for value in found[3].split(",")}
        return lambda labels: (labels.get(key) in values) == (verb == "in")
    if found := _EQUAL.match(text):
        key, verb, value = found[1], found[2], found[3]
        return lambda labels: (labels.get(key) == value) == (verb != "!=")
    if found := _KEY.match(text):
        is_wanted, key = not found[1], found[2]
        return lambda labels: (key in labels) == is_wanted
    raise BadRequestError(f"no label selector: {text}")


def _parse_field(text: str) -> Matches:
    found = _EQUAL.match(text)
    if not found:
        raise BadRequestError(f"no field selector: {text}")
    path, verb, value = found[1].split("."), found[2], found[3]
    return lambda obj: (_at(obj, path) == value) == (verb != "!=")


def _at(obj: Any, path: list[str]) -> str:
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    return "" if obj is None else str(obj)
