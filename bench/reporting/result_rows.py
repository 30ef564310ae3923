"""Rows of a benchmark's results: {name, value, unit, goal, met}, for all benchmarks."""

from __future__ import annotations

import json
import operator
import os
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Final

_COMPARISONS: Final = {"<=": operator.le, ">=": operator.ge}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure.  `goal` is a comparison such as "<= 1" in the row's unit, or "" for a figure without one."""

    name: str
    value: float
    unit: str
    goal: str = ""
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the value keeps the goal; None where there is none."""
        if not self.goal:
            return None
        comparison, bound = self.goal.split()
        return bool(_COMPARISONS[comparison](self.value, float(bound)))


def print_rows(rows: Iterable[Row]) -> None:
    """One JSON object a line on standard output: what `python -m bench` collects."""
    for row in rows:
        print(json.dumps({**asdict(row), "met": row.met}), flush=True)


def median_seconds(action: Callable[[], object], *, repeats: int = 5, number: int = 1) -> float:
    """Median over `repeats` of the mean seconds of `number` calls, after one call that is not counted."""
    action()
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        for _ in range(number):
            action()
        times.append((time.perf_counter() - begun) / number)
    return statistics.median(times)


def load() -> str:
    """How busy the machine is, for the note of a figure."""
    return f"load {os.getloadavg()[0]:.1f}"
