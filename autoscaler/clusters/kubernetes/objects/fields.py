"""Raw objects, and the one way to walk in them.

A field that is absent, null or of a kind that it should not have reads as empty, so that no reading fails half way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, TypeAlias

Raw: TypeAlias = Mapping[str, Any]

EMPTY: Final[Raw] = {}


ENDED_PHASES: Final = frozenset({"Succeeded", "Failed"})
"""Phases of pods that have ended and occupy nothing any more."""


def part(raw: Raw, *path: str) -> Raw:
    """The mapping that stands there."""
    for name in path:
        found = raw.get(name)
        # Asking the abstract class alone would be nearly half of a reading.
        if type(found) is not dict and not isinstance(found, Mapping):
            return EMPTY
        raw = found
    return raw


def parts(raw: Raw, *path: str) -> Sequence[Raw]:
    """The mappings of the list that stands there."""
    found = part(raw, *path[:-1]).get(path[-1])
    if not isinstance(found, list):
        return ()
    return [item for item in found if type(item) is dict or isinstance(item, Mapping)]


def text(raw: Raw, *path: str) -> str:
    """The text that stands there; empty when there is none."""
    found = part(raw, *path[:-1]).get(path[-1])
    return found if isinstance(found, str) else ""


def whole(raw: Raw, *path: str, default: int = 0) -> int:
    """The whole number that stands there."""
    found = part(raw, *path[:-1]).get(path[-1])
    return found if isinstance(found, int) and not isinstance(found, bool) else default


def key_of(raw: Raw) -> str:
    """`NAMESPACE/NAME`, as views name things; `NAME` of what has no namespace."""
    metadata = part(raw, "metadata")
    namespace, name = text(metadata, "namespace"), text(metadata, "name")
    return f"{namespace}/{name}" if namespace else name


def controller_of(raw: Raw) -> Raw:
    """The ownerReference of whoever controls the object; empty when nobody does."""
    return next((ref for ref in parts(raw, "metadata", "ownerReferences") if ref.get("controller") is True), EMPTY)


def condition_of(raw: Raw, kind: str) -> Raw:
    """The status condition of this type; empty when there is none."""
    return next((found for found in parts(raw, "status", "conditions") if found.get("type") == kind), EMPTY)


@lru_cache(maxsize=4096)
def unix_s(written: str) -> float | None:
    """Seconds since 1970; None for what is no instant."""
    try:
        instant = datetime.fromisoformat(written)
    except ValueError:
        return None
    return instant.timestamp() if instant.tzinfo is not None else None


def created_at_s(raw: Raw) -> float:
    """When the API server made the object, in Unix seconds; 0 for one that it has not made."""
    return unix_s(text(raw, "metadata", "creationTimestamp")) or 0.0


def to_time(at_unix_s: float) -> str:
    """Return an instant as the API writes it: RFC 3339, whole seconds."""
    return _utc(int(at_unix_s)).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_micro_time(at_unix_s: float) -> str:
    """Return an instant as the API's MicroTime."""
    return _utc(at_unix_s).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _utc(at_unix_s: float) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(seconds=at_unix_s)
