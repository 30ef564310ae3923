"""A job's throughput over its size as a picture: the fitted curve, what was measured, the present size, the knee."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from autoscaler.views.jobs.throughput import ThroughputView

WIDTH: Final = 420.0
HEIGHT: Final = 160.0
LEFT: Final = 52.0
BOTTOM: Final = 22.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A measured size."""

    x: float
    y: float
    is_present: bool
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveDrawing:
    """`line`: points of an SVG polyline; `knee_x`: None where growth does not stop."""

    line: str
    dots: tuple[Dot, ...]
    knee_x: float | None
    top: str
    largest: int
    description: str


def draw_curve(found: ThroughputView) -> CurveDrawing:
    """Return the drawing; the axes begin at 0."""
    largest = max(size for size, _ in (*found.fitted, *found.measured))
    top = max(rate for _, rate in (*found.fitted, *found.measured))

    def x(size: int) -> float:
        return round(LEFT + size / largest * (WIDTH - LEFT - 10), 1)

    def y(rate: float) -> float:
        return round(HEIGHT - BOTTOM - rate / top * (HEIGHT - BOTTOM - 12), 1)

    measured = "; ".join(f"{size}: {rate:,.4g} samples/s" for size, rate in found.measured)
    return CurveDrawing(
        line=" ".join(f"{x(size)},{y(rate)}" for size, rate in found.fitted),
        dots=tuple(
            Dot(x=x(size), y=y(rate), is_present=size == found.now, title=f"{size} trainers: {rate:,.4g} samples/s")
            for size, rate in found.measured
        ),
        knee_x=x(found.knee) if found.knee else None,
        top=f"{top:,.4g}",
        largest=largest,
        description=f"Measured throughput by number of trainers: {measured}",
    )
