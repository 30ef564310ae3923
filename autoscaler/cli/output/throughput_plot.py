"""Plot of a job's throughput over its size, for the terminal: what was measured, the fit, the present size.  Pure.

The points and the curve are those of `status.throughput` (ADR 0267); `edl get -o json` prints them as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from autoscaler.cli.output.object_tables import PlainObject
from autoscaler.views.jobs.throughput import ThroughputView, throughput_of

HEIGHT: Final = 8
MEASURED, FITTED, PRESENT = "●", "·", "◆"
BARS: Final = "▁▂▃▄▅▆▇█"
MOST_BARS: Final = 8


def throughput_lines(job: PlainObject) -> list[str]:
    """Return the plot of a job; nothing before two of its sizes were measured."""
    if (found := throughput_of(job)) is None:
        return []
    return [*grid_of(dict(found.fitted), dict(found.measured), found.now), legend(found)]


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


def legend(found: ThroughputView) -> str:
    """Return what the marks mean, and where growth stops."""
    line = f"samples/s: {MEASURED} measured, {PRESENT} at the present {found.now}, {FITTED} fitted"
    if found.knee:
        line += f"; growth stops at {found.knee}: more would add less than {found.efficiency:g} of a trainer each"
    return line


def bars_of(points: Sequence[tuple[int, float]]) -> str:
    """Return the points in one line, such as `2 ▂  4 ▄  8 ▇`; empty without two of them."""
    shown = sorted(points)[-MOST_BARS:]
    if len(shown) < 2:
        return ""
    top = max(rate for _, rate in shown)
    return "  ".join(f"{size} {BARS[min(len(BARS) - 1, int(rate / top * len(BARS)))]}" for size, rate in shown)
