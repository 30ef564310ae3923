"""Fields of raw objects, and instants as the API server writes them.

A field that is absent, null or of the wrong type reads as empty, so that no parser fails half way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import isfinite
from typing import Any, Final, TypeAlias

Raw: TypeAlias = Mapping[str, Any]

EMPTY: Final[Raw] = {}


ENDED_PHASES: Final = frozenset({"Succeeded", "Failed"})
"""Phases of pods that have ended and occupy nothing any more."""

LONGEST_VALUE: Final = 40
"""Characters of an annotation of EDL's that are read and shown: the longest sound one, an instant with its zone, has
32."""


def part(raw: Raw, *path: str) -> Raw:
    """Return the mapping at this path."""
    for name in path:
        found = raw.get(name)
        # isinstance(..., Mapping) alone would take nearly half of the parsing time.
        if type(found) is not dict and not isinstance(found, Mapping):
            return EMPTY
        raw = found
    return raw


def parts(raw: Raw, *path: str) -> Sequence[Raw]:
    """Return the mappings of the list at this path."""
    found = _found(raw, path)
    if not isinstance(found, list):
        return ()
    return [item for item in found if type(item) is dict or isinstance(item, Mapping)]


def text(raw: Raw, *path: str) -> str:
    """Return the text at this path; empty if there is none."""
    found = _found(raw, path)
    return found if isinstance(found, str) else ""


def short_text(value: object) -> str:
    """Return an annotation's value without blanks around it; empty, which nothing understands, if it is too long."""
    written = str(value)
    return written.strip() if len(written) <= LONGEST_VALUE else ""


def integer(raw: Raw, *path: str, default: int = 0) -> int:
    """Return the integer at this path."""
    found = _found(raw, path)
    return found if isinstance(found, int) and not isinstance(found, bool) else default


def duration_s(raw: Raw, *path: str) -> float | None:
    """Return the number of seconds at this path; None if there is none that is finite and not negative."""
    found = _found(raw, path)
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return float(found) if is_number and isfinite(found) and found >= 0 else None


def _found(raw: Any, path: tuple[str, ...]) -> Any:
    """Return what is at this path; None if there is nothing."""
    for name in path:
        if type(raw) is not dict and not isinstance(raw, Mapping):
            return None
        raw = raw.get(name)
    return raw


def percent_of(written: str) -> float | None:
    """Return a percentage such as `25.0%`, within 0 to 100; 0 if there is none, None if it is no number."""
    try:
        found = float(written.removesuffix("%") or 0)
    except ValueError:
        return None
    return min(100.0, max(0.0, found)) if isfinite(found) else None


def key_of(raw: Raw) -> str:
    """Return `NAMESPACE/NAME`, as views name objects; `NAME` for objects without a namespace."""
    metadata = part(raw, "metadata")
    namespace, name = text(metadata, "namespace"), text(metadata, "name")
    return f"{namespace}/{name}" if namespace else name


def controller_of(raw: Raw) -> Raw:
    """Return the ownerReference of the controller; empty if there is none."""
    return next((ref for ref in parts(raw, "metadata", "ownerReferences") if ref.get("controller") is True), EMPTY)


def condition_of(raw: Raw, kind: str) -> Raw:
    """Return the status condition of this type; empty if there is none."""
    return next((found for found in parts(raw, "status", "conditions") if found.get("type") == kind), EMPTY)


@lru_cache(maxsize=4096)
def unix_s(written: str) -> float | None:
    """Return seconds since 1970 for an instant in RFC 3339; None for anything else."""
    try:
        instant = datetime.fromisoformat(written)
    except ValueError:
        return None
    return instant.timestamp() if instant.tzinfo is not None else None


def created_at_s(raw: Raw) -> float:
    """Return when the API server created the object, in Unix seconds; 0 if it has not."""
    return unix_s(text(raw, "metadata", "creationTimestamp")) or 0.0


def to_time(at_unix_s: float) -> str:
    """Return an instant as the API writes it: RFC 3339, whole seconds."""
    return _utc(int(at_unix_s)).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_micro_time(at_unix_s: float) -> str:
    """Return an instant as the API's MicroTime."""
    return _utc(at_unix_s).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _utc(at_unix_s: float) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(seconds=at_unix_s)
