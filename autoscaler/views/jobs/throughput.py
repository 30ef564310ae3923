"""A job's throughput over its size, as `status.throughput` has it: what was measured, the fit, where growth stops.

The points and the curve are those of ADR 0267.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from autoscaler.clusters.kubernetes.objects.fields import Raw, integer, part, parts, text
from autoscaler.errors import InvalidSpecError
from autoscaler.throughput import CurveShape

WIDTH: Final = 60
Points = Mapping[int, tuple[float, int]]
"""Samples per second and servers, by number of trainers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputView:
    """Samples per second by number of trainers: `measured`, and `fitted` at every size shown.

    `knee`: the size at which growth stops because more would add too little; 0: it does not.
    """

    measured: tuple[tuple[int, float], ...]
    fitted: tuple[tuple[int, float], ...]
    now: int
    knee: int
    efficiency: float


def throughput_of(job: Raw) -> ThroughputView | None:
    """Return the throughput of a job; None before two of its sizes were measured."""
    report = part(job, "status", "throughput")
    points, shape = points_of(report), shape_of(part(report, "curve"))
    if len(points) < 2 or shape is None:
        return None
    now = integer(job, "status", "trainers", "ready")
    servers = {size: count for size, (_, count) in points.items()}
    sizes = sizes_shown(largest_shown(job, points))
    return ThroughputView(
        measured=tuple(sorted((size, rate) for size, (rate, _) in points.items())),
        fitted=tuple((size, shape.samples_per_s(size, nearest(servers, size))) for size in sizes),
        now=now,
        knee=integer(report, "worthwhile"),
        efficiency=number(part(job, "spec", "trainer"), "efficiency"),
    )


def largest_shown(job: Raw, points: Points) -> int:
    """Return the largest number of trainers that a plot of these points shows."""
    largest = min(integer(job, "spec", "trainer", "maxReplicas", default=1), 2 * max(points))
    return max(*points, integer(job, "status", "trainers", "ready"), largest)


def points_of(report: Raw) -> Points:
    """Return the points of the present setting, without what no job can have."""
    found: dict[int, tuple[float, int]] = {}
    for one in parts(report, "points"):
        size, rate = integer(one, "trainers"), number(one, "samplesPerSecond")
        if text(one, "setting") == text(report, "setting") and 0 < size <= 10_000 and rate > 0:
            found[size] = (rate, integer(one, "servers"))
    return found


def shape_of(curve: Raw) -> CurveShape | None:
    """Return the fitted curve; None if it is not there, or no curve.  Without `rest` all trainers are equally fast."""
    fields = {name: number(curve, name) for name in ("work", "serial", "exchange", "overlap", "even")}
    fields["rest"] = number(curve, "rest") if "rest" in curve else 1.0
    try:
        return CurveShape(**fields)
    except InvalidSpecError:
        return None


def number(raw: Mapping[str, Any], name: str) -> float:
    """Return a number of an object; 0 if it is none."""
    value = raw.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    return float(value) if is_number and value is not None else 0.0


def nearest(servers: Mapping[int, int], size: int) -> int:
    """Return the servers at the measured size next to this one."""
    return servers[min(servers, key=lambda one: abs(one - size))]


def sizes_shown(most: int) -> list[int]:
    """Return the numbers of trainers along the plot, at most one a column."""
    step = -(-most // WIDTH)
    return [*range(1, most + 1, step)]
