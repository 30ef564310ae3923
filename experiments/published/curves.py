"""The published curves: mean, smallest and largest of ten passes on a grid of 10 s.

The file is checked whole before anything is drawn over it: a shifted column would look like a result.  Single figures
are in `figures`; where the file comes from stands in `experiments/data/README.md`.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Final

from experiments.errors import RefusedInputError

CURVES: Final = Path(__file__).parent.parent / "data" / "edl2017_curves.csv"

QUANTITIES: Final = (
    "cpu_request_utilisation_percent",
    "trainers_running",
    "jobs_not_submitted",
    "jobs_pending",
    "jobs_running",
    "nginx_running",
)
COLUMNS: Final = (
    "case",
    "autoscaling",
    "time_s",
    "passes",
    *(f"{quantity}_{statistic}" for quantity in QUANTITIES for statistic in ("mean", "min", "max")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """One quantity over time; the four tuples are of one length."""

    time_s: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def mean_until(self, until_s: float) -> float:
        """Mean over the grid points from 0 to `until_s`, both included."""
        values = [value for at_s, value in zip(self.time_s, self.mean, strict=True) if at_s <= until_s]
        return sum(values) / len(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """All bands of one case with autoscaling on or off, by quantity (`QUANTITIES`)."""

    case: str
    is_autoscaled: bool
    bands: Mapping[str, Band]


def read_curves(file: Path = CURVES) -> tuple[Curves, ...]:
    """Return the published curves, checked.

    Raises:
        RefusedInputError: the file is missing, a column is missing or unknown, or a cell is not a number, negative,
            outside its band or out of order; the path is the line and the column.
    """
    rows = read_rows(file)
    keys = dict.fromkeys((row["case"], row["autoscaling"]) for _, row in rows)
    return tuple(
        parse_arm(file, [(line, row) for line, row in rows if (row["case"], row["autoscaling"]) == key]) for key in keys
    )


def find_curves(curves: tuple[Curves, ...], case: str, *, is_autoscaled: bool) -> Curves | None:
    """Return the curves of one arm; None where none were published."""
    return next((c for c in curves if c.case == case and c.is_autoscaled is is_autoscaled), None)


def read_rows(file: Path) -> list[tuple[int, dict[str, str]]]:
    """Return (line, cells) of every row.  Every row has every column."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = "restore it from the repository: the experiments compare against it"
        raise RefusedInputError(file, "", f"the published curves cannot be read: {error}", hint) from error
    reader = csv.reader(text.splitlines())
    header = next(reader, [])
    for column in COLUMNS:
        if column not in header:
            raise RefusedInputError(file, f"line 1, {column}", "the column is missing")
    for column in header:
        if column not in COLUMNS:
            raise RefusedInputError(file, f"line 1, {column}", "the column is not known")
    rows = []
    for line, cells in enumerate(reader, start=2):
        if len(cells) != len(header):
            raise RefusedInputError(file, f"line {line}", f"{len(cells)} cells under {len(header)} columns")
        rows.append((line, dict(zip(header, cells, strict=True))))
    if not rows:
        raise RefusedInputError(file, "line 2", "there is no row")
    return rows


def parse_arm(file: Path, rows: list[tuple[int, dict[str, str]]]) -> Curves:
    line, first = rows[0]
    if first["case"] not in {"case1", "case2"}:
        raise RefusedInputError(file, f"line {line}, case", f"is {first['case']!r}", "case1 or case2")
    if first["autoscaling"] not in {"on", "off"}:
        raise RefusedInputError(file, f"line {line}, autoscaling", f"is {first['autoscaling']!r}", "on or off")
    time_s = tuple(parse_number(file, line, row, "time_s") for line, row in rows)
    for (line, _), before, after in zip(rows[1:], time_s, time_s[1:], strict=False):
        if after <= before:
            raise RefusedInputError(file, f"line {line}, time_s", f"{after:g} does not follow {before:g}")
    bands = {quantity: parse_band(file, rows, time_s, quantity) for quantity in QUANTITIES}
    return Curves(case=first["case"], is_autoscaled=first["autoscaling"] == "on", bands=bands)


def parse_band(file: Path, rows: list[tuple[int, dict[str, str]]], time_s: tuple[float, ...], quantity: str) -> Band:
    """Return one quantity's band; its mean lies between its ends."""
    mean, low, high = (
        tuple(parse_number(file, line, row, f"{quantity}_{statistic}") for line, row in rows)
        for statistic in ("mean", "min", "max")
    )
    for (line, _), least, middle, most in zip(rows, low, mean, high, strict=True):
        if not least <= middle <= most:
            problem = f"{middle:g} is not between its smallest ({least:g}) and its largest value ({most:g})"
            raise RefusedInputError(file, f"line {line}, {quantity}_mean", problem)
    return Band(time_s=time_s, mean=mean, low=low, high=high)


def parse_number(file: Path, line: int, row: Mapping[str, str], column: str) -> float:
    """Return one cell as a finite number of at least 0."""
    try:
        value = float(row[column])
    except ValueError:
        raise RefusedInputError(file, f"line {line}, {column}", f"{row[column]!r} is not a number") from None
    if not isfinite(value) or value < 0:
        raise RefusedInputError(file, f"line {line}, {column}", f"{row[column]} is not a finite number of 0 or more")
    return value
