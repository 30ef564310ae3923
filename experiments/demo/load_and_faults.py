"""Timeline of the demo: the web's load curve and its faults.  Pure; `load_driver` applies it.

Times are fractions of the curve's duration, so that `--duration` stretches all of it.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    KILL_TRAINER = "kill-trainer"
    DRAIN_TRAINER = "drain-trainer"
    KILL_MASTER = "kill-master"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFault:
    """A fault of this job, at `at_s` after the start."""

    at_s: float
    fault: Fault
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WebLoad:
    """Replicas of the web service over time: low, a half cosine up to high, a plateau, and down again."""

    low: int
    high: int
    duration_s: float
    rise_from: float = 0.15
    high_from: float = 0.40
    high_until: float = 0.55
    low_from: float = 0.80

    def replicas(self, t_s: float) -> int:
        """Replicas of the web service `t_s` seconds after the start."""
        x = t_s / self.duration_s
        if x < self.high_until:
            level = _ramp(x, self.rise_from, self.high_from)
        else:
            level = 1.0 - _ramp(x, self.high_until, self.low_from)
        return self.low + round(level * (self.high - self.low))


def _ramp(x: float, start: float, stop: float) -> float:
    """0 before start, 1 after stop, a half cosine between."""
    share = min(1.0, max(0.0, (x - start) / (stop - start)))
    return (1.0 - math.cos(math.pi * share)) / 2.0


def plan_faults(
    server_jobs: tuple[str, ...], groups: tuple[str, ...], *, duration_s: float, seed: int
) -> tuple[PlannedFault, ...]:
    """Of the jobs with servers one trainer SIGKILLed, one drained, one master SIGKILLed; then a trainer of each group.

    The seed decides job and instant.
    """
    rng = random.Random(seed)  # noqa: S311 - a demo, not a secret
    first, second = rng.sample(server_jobs, 2)
    planned = [(0.30, Fault.KILL_TRAINER, first), (0.48, Fault.DRAIN_TRAINER, second), (0.66, Fault.KILL_MASTER, first)]
    planned += [(0.84, Fault.KILL_TRAINER, group) for group in groups]
    return tuple(
        PlannedFault(at_s=duration_s * (at + rng.uniform(-0.03, 0.03)), fault=fault, job=job)
        for at, fault, job in planned
    )
