"""A few of many measured values."""

from __future__ import annotations

import math
from collections.abc import Sequence


def spread_of(values: Sequence[float]) -> dict[str, float]:
    """Some of the values: of p99, say, the smallest that 99 of 100 do not exceed."""
    line = sorted(values)
    parts = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
    found = {name: line[math.ceil(part * len(line)) - 1] for name, part in parts.items()} if line else {}
    return {
        name: round(value, 3) for name, value in ({"min": line[0], **found, "max": line[-1]} if line else {}).items()
    }
