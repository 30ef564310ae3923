"""Who had the cluster over time as pictures: stacked areas of the owners, lines of the web load, marks of resizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from autoscaler.page.drawings.words import format_amount
from autoscaler.views.history.journal import JournalLine
from autoscaler.views.history.time_view import Layer, TimeView

WIDTH: Final = 900.0
HEIGHT: Final = 220.0
LEFT: Final = 44.0
BOTTOM: Final = 24.0
TOP: Final = 14.0
_TICKS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """One owner's area; `path` is that of an SVG."""

    path: str
    style: str
    layer: Layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """An instant below the plot."""

    x: float
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A resize."""

    x: float
    line: JournalLine


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeDrawing:
    """Both plots: areas up to `capacity`, and the lines of web pods wanted and running up to `web_top`.

    Where an amount is not known there is a gap; a path is empty where it never is.
    """

    areas: tuple[Area, ...]
    capacity: str
    placeable: str
    capacity_told: str
    web_wanted: str
    web_running: str
    web_top: int
    ticks: tuple[Tick, ...]
    marks: tuple[Mark, ...]


def draw_time(view: TimeView, colours: Mapping[str, int]) -> TimeDrawing | None:
    """Return the drawing; None before two samples are there."""
    if len(view.instants) < 2 or view.unit is None or view.web is None:
        return None
    top, most_web = _largest(*view.capacity, *view.used), _largest(*view.web_wanted, *view.web_running)
    first, last = view.instants[0], view.instants[-1]

    def x(at_s: float) -> float:
        return round(LEFT + (at_s - first) / (last - first) * (WIDTH - LEFT - 8), 1)

    columns = [x(at_s) for at_s in view.instants]
    areas, below = [], [0] * len(columns)
    for layer in (view.web, *view.jobs):
        above = [low + (amount or 0) for low, amount in zip(below, layer.amounts, strict=True)]
        colour = colours.get(layer.owner)
        style = "use-web" if layer is view.web else f"use-core job-{colour}" if colour is not None else "use-core"
        path = "".join(_area(columns[at], below[at], above[at], top) for at in _known(layer.amounts))
        areas.append(Area(path=path, style=style, layer=layer))
        below = above
    return TimeDrawing(
        areas=tuple(areas),
        capacity=_line(columns, view.capacity, top),
        placeable=_line(columns, view.placeable, top),
        capacity_told=format_amount(top),
        web_wanted=_line(columns, view.web_wanted, most_web),
        web_running=_line(columns, view.web_running, most_web),
        web_top=most_web,
        ticks=tuple(Tick(x=x(at), at_s=at) for at in (first + (last - first) * n / _TICKS for n in range(_TICKS + 1))),
        marks=tuple(Mark(x=x(one.at_s), line=one) for one in view.marks if first <= one.at_s <= last),
    )


def _largest(*amounts: int | None) -> int:
    return max((amount for amount in amounts if amount is not None), default=1) or 1


def _known(amounts: Sequence[int | None]) -> Iterable[slice]:
    """Yield the runs of amounts that are known."""
    start = 0
    for at, amount in enumerate((*amounts, None)):
        if amount is None:
            if at > start:
                yield slice(start, at)
            start = at + 1


def _y(amount: int, top: int) -> float:
    return round(HEIGHT - BOTTOM - amount / top * (HEIGHT - BOTTOM - TOP), 1)


def _line(columns: Sequence[float], amounts: Sequence[int | None], top: int) -> str:
    """A line of steps: an amount holds until the next sample."""
    points, is_drawn = [], False
    for x, amount in zip(columns, amounts, strict=True):
        if amount is not None:
            points.append(f"H{x}V{_y(amount, top)}" if is_drawn else f"M{x} {_y(amount, top)}")
        is_drawn = amount is not None
    return "".join(points)


def _area(columns: Sequence[float], below: Sequence[int], above: Sequence[int], top: int) -> str:
    return _line(columns, above, top) + _steps_back(columns, below, top)


def _steps_back(columns: Sequence[float], amounts: Sequence[int], top: int) -> str:
    """The lower edge from right to left, with the same steps as `_line` has."""
    end = f"L{columns[-1]} {_y(amounts[-1], top)}"
    steps = (f"V{_y(amounts[at - 1], top)}H{columns[at - 1]}" for at in range(len(columns) - 1, 0, -1))
    return end + "".join(steps) + "Z"
