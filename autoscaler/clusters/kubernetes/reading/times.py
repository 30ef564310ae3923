"""Instants as the API server writes them: RFC 3339 in UTC, whole seconds or microseconds."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache

from autoscaler.clusters.kubernetes.reading.raw import Raw, text


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
