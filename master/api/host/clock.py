"""Monotonic clock for leases (CLOCK_BOOTTIME): it cannot be set, and it counts suspend time.

The time of day may be set back, and a leader that relies on it could act beside its successor.  A clock that stands
still while a machine is suspended has the same effect: the lease ran out meanwhile, and its holder does not know.
"""

from __future__ import annotations

import time
from typing import Final

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def uptime_s() -> float:
    """Seconds since some instant in the past; only differences are meaningful."""
    return time.clock_gettime(_CLOCK)
