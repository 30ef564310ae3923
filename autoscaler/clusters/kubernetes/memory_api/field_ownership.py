"""Field ownership: merge patches (RFC 7386) and server-side apply, as far as EDL uses them.  Pure.

A field is a path to a leaf.  Lists with a key (containers by name, conditions by type) are maps here, other lists are
leaves.  `_KEYS` has the keys from the schema of a real server, for the lists that EDL writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.api.errors import ConflictError


@dataclass(frozen=True, slots=True)
class FieldOwner:
    """One owner: apply and update count as two, also of one manager; so do an object and its status."""

    manager: str
    is_apply: bool
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class ListItem:
    """An element of a keyed list, by the value of its key."""

    key: str
    value: str


Path: TypeAlias = tuple[str | ListItem, ...]
FieldOwners: TypeAlias = Mapping[Path, frozenset[FieldOwner]]

_KEYS: Final[Mapping[str, str]] = {
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "schedulingGates": "name",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
_UNOWNED: Final = frozenset(
    {"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "name", "namespace"}
    | {"resourceVersion", "uid"}
)


def merge_patch(target: Any, change: Any) -> Any:
    """Return the merge (RFC 7386): objects are merged, None removes, everything else replaces."""
    if not isinstance(change, dict):
        return change
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in change.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def owners_after_update(before: Raw, after: Raw, owners: FieldOwners, owner: FieldOwner) -> FieldOwners:
    """Return ownership after a patch or a creation: the writer alone owns what changed."""
    old, new = _fields(before), _fields(after)
    return {
        path: owners.get(path, frozenset()) if path in old and old[path] == value else frozenset({owner})
        for path, value in new.items()
    }


def apply_fields(
    current: Raw, body: Raw, owners: FieldOwners, owner: FieldOwner, *, is_forced: bool
) -> tuple[Raw, FieldOwners]:
    """Return the object and its ownership after an apply.  Raises ConflictError naming fields of other managers."""
    wanted, current_fields = _fields(body), _fields(current)
    held = {
        path
        for path, value in wanted.items()
        if owners.get(path, frozenset()) - {owner} and current_fields.get(path) != value
    }
    if held and not is_forced:
        names = ", ".join(sorted(".".join(map(str, path)) for path in held))
        raise ConflictError(f"apply: fields of other managers: {names}")
    left = [path for path, whose in owners.items() if whose == frozenset({owner}) and path not in wanted]
    merged = _merge(current, body)
    for path in sorted(left, key=_is_key):  # an item is found by its key, so the key is removed last
        _remove(merged, path)
    after = {}
    for path in _fields(merged):
        whose = owners.get(path, frozenset())
        if path in wanted:
            whose = frozenset({owner}) if path in held else whose | {owner}
        else:
            whose -= {owner}
        after[path] = whose
    return merged, after


def _fields(obj: Raw) -> dict[Path, Any]:
    found: dict[Path, Any] = {}
    for name, value in obj.items():
        if name in {"apiVersion", "kind"}:
            continue
        if name == "metadata":
            if own := {key: inner for key, inner in value.items() if key not in _UNOWNED}:
                _add_leaves(found, ("metadata",), own)
        else:
            _add_leaves(found, (name,), value)
    return found


def _add_leaves(found: dict[Path, Any], path: Path, value: Any) -> None:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            _add_leaves(found, (*path, name), inner)
    elif isinstance(value, list) and (key := _key_of(path, value)):
        for inner in value:
            _add_leaves(found, (*path, ListItem(key, str(inner[key]))), inner)
    else:
        found[path] = value


def _key_of(path: Path, value: Any) -> str | None:
    last = path[-1]
    key = _KEYS.get(last) if isinstance(last, str) else None
    is_keyed = (
        key and isinstance(value, list) and value and all(isinstance(inner, dict) and key in inner for inner in value)
    )
    return key if is_keyed else None


def _merge(current: Any, body: Any, path: Path = ()) -> Any:
    if isinstance(current, dict) and isinstance(body, dict):
        merged = dict(current)
        for name, value in body.items():
            merged[name] = _merge(current[name], value, (*path, name)) if name in current else value
        return merged
    if path and (key := _key_of(path, body)) and _key_of(path, current) == key:
        wanted = {inner[key]: inner for inner in body}
        kept = [_merge(inner, wanted.pop(inner[key], {}), (*path, ListItem(key, inner[key]))) for inner in current]
        return kept + list(wanted.values())
    return body


def _is_key(path: Path) -> bool:
    item = path[-2] if len(path) > 1 else None
    return isinstance(item, ListItem) and path[-1] == item.key


def _remove(obj: Raw, path: Path) -> None:
    """Remove a leaf and what becomes empty by it.  Objects on the way are replaced, not changed."""
    name = path[0]
    if not isinstance(name, str) or name not in obj:
        return
    value = obj[name]
    if len(path) == 1:
        del obj[name]
    elif isinstance(value, list) and isinstance(item := path[1], ListItem):
        kept = [_without(inner, path[2:]) if str(inner.get(item.key)) == item.value else inner for inner in value]
        obj[name] = [inner for inner in kept if inner]
    elif isinstance(value, dict):
        obj[name] = _without(value, path[1:])
    if obj.get(name) in ({}, []) and len(path) > 1:
        del obj[name]


def _without(obj: Raw, path: Path) -> Raw:
    copied = dict(obj)
    if path:
        _remove(copied, path)
    return copied
