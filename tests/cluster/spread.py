"""A few of many measured values."""

from __future__ import annotations

from collections.abc import Sequence


def spread_of(values: Sequence[float]) -> dict[str, float]:
    """Some of the sorted values; the one at or above each part."""
    line = sorted(values)
    parts = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
    found = {name: line[min(len(line) - 1, int(part * len(line)))] for name, part in parts.items()} if line else {}
    return {
        name: round(value, 3) for name, value in ({"min": line[0], **found, "max": line[-1]} if line else {}).items()
    }
