"""Plot of a job's throughput over its size, for the terminal: what was measured, the fit, the present size.  Pure.

The points and the curve are those of `status.throughput` (ADR 0267); `edl get -o json` prints them as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final

from autoscaler.cli.output.object_tables import PlainObject
from autoscaler.clusters.kubernetes.objects.fields import integer, part, parts, text
from autoscaler.errors import InvalidSpecError
from autoscaler.throughput import CurveShape

HEIGHT: Final = 8
WIDTH: Final = 60
MEASURED, FITTED, PRESENT = "●", "·", "◆"
BARS: Final = "▁▂▃▄▅▆▇█"
MOST_BARS: Final = 8
Points = Mapping[int, tuple[float, int]]
"""Samples per second and servers, by number of trainers."""


def throughput_lines(job: PlainObject) -> list[str]:
    """Return the plot of a job; nothing before two of its sizes were measured."""
    report = part(job, "status", "throughput")
    points, shape = points_of(report), shape_of(part(report, "curve"))
    if len(points) < 2 or shape is None:
        return []
    now = integer(job, "status", "trainers", "ready")
    largest = min(integer(job, "spec", "trainer", "maxReplicas", default=1), 2 * max(points))
    most = max(*points, now, largest)
    servers = {size: count for size, (_, count) in points.items()}
    fitted = {size: shape.samples_per_s(size, nearest(servers, size)) for size in sizes_shown(most)}
    lines = grid_of(fitted, {size: rate for size, (rate, _) in points.items()}, now)
    return [*lines, legend(job, report, now)]


def points_of(report: PlainObject) -> Points:
    """Return the points of the present setting, without what no job can have."""
    found: dict[int, tuple[float, int]] = {}
    for one in parts(report, "points"):
        size, rate = integer(one, "trainers"), number(one, "samplesPerSecond")
        if text(one, "setting") == text(report, "setting") and 0 < size <= 10_000 and rate > 0:
            found[size] = (rate, integer(one, "servers"))
    return found


def shape_of(curve: PlainObject) -> CurveShape | None:
    """Return the fitted curve; None if it is not there, or no curve."""
    fields = {name: number(curve, name) for name in ("work", "serial", "exchange", "overlap")}
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


def grid_of(fitted: Mapping[int, float], measured: Mapping[int, float], now: int) -> list[str]:
    """Return the plot: one row for each level, the largest throughput above."""
    top = max(*fitted.values(), *measured.values())
    sizes = list(fitted)
    cells = [[" "] * len(sizes) for _ in range(HEIGHT)]

    def put(size: int, rate: float, mark: str) -> None:
        column = min(range(len(sizes)), key=lambda at: abs(sizes[at] - size))
        cells[HEIGHT - 1 - min(HEIGHT - 1, int(rate / top * (HEIGHT - 0.001)))][column] = mark

    for size, rate in fitted.items():
        if size not in measured:
            put(size, rate, FITTED)
    for size, rate in measured.items():
        put(size, rate, PRESENT if size == now else MEASURED)
    labels = {0: f"{top:,.4g}", HEIGHT // 2: f"{top / 2:,.4g}"}
    width = max(map(len, labels.values()))
    rows = [f"{labels.get(at, ''):>{width}} |{''.join(row)}" for at, row in enumerate(cells)]
    ends = f"1{sizes[-1]:>{max(1, len(sizes) - 1)}}" if len(sizes) > 1 else "1"
    return [*(row.rstrip() for row in rows), f"{'0':>{width}} +{'-' * len(sizes)}", f"{'':>{width}}  {ends} trainers"]


def legend(job: PlainObject, report: PlainObject, now: int) -> str:
    """Return what the marks mean, and where growth stops."""
    line = f"samples/s: {MEASURED} measured, {PRESENT} at the present {now}, {FITTED} fitted"
    if knee := integer(report, "worthwhile"):
        asked = number(part(job, "spec", "trainer"), "efficiency")
        line += f"; growth stops at {knee}: more would add less than {asked:g} of a trainer each"
    return line


def bars_of(points: Sequence[tuple[int, float]]) -> str:
    """Return the points in one line, such as `2 ▂  4 ▄  8 ▇`; empty without two of them."""
    shown = sorted(points)[-MOST_BARS:]
    if len(shown) < 2:
        return ""
    top = max(rate for _, rate in shown)
    return "  ".join(f"{size} {BARS[min(len(BARS) - 1, int(rate / top * len(BARS)))]}" for size, rate in shown)
