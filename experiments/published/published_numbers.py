"""The single figures of 2017: as printed by the authors, and as recomputed from their raw logs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from experiments.errors import RefusedInputError

FIGURES: Final = Path(__file__).parent.parent / "data" / "edl2017_figures.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One quantity of one arm; None where it was not published, or not recomputed."""

    published: float | None
    recomputed: float | None


def read_figures(file: Path = FIGURES) -> Mapping[tuple[str, str, str], Figure]:
    """Return figures by (case, "on" or "off", metric).

    Raises:
        RefusedInputError: the file is missing or not of the shape described in `experiments/data/README.md`.
    """
    try:
        cases = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RefusedInputError(file, "", f"the published figures cannot be read: {error}") from error
    return {
        (case, arm, metric): parse_figure(file, f"{case}.{arm}.{metric}", value)
        for case, arms in parse_object(file, "", cases)
        for arm, metrics in parse_object(file, case, arms)
        for metric, value in parse_object(file, f"{case}.{arm}", metrics)
    }


def parse_object(file: Path, path: str, value: Any) -> list[tuple[str, Any]]:
    """Return the fields of a JSON object."""
    if not isinstance(value, dict):
        raise RefusedInputError(file, path, "is not an object")
    return list(value.items())


def parse_figure(file: Path, path: str, value: Any) -> Figure:
    fields = dict(parse_object(file, path, value))
    if fields.keys() != {"published", "recomputed"}:
        raise RefusedInputError(file, path, f"has {sorted(fields)}", "published and recomputed, null where unknown")
    for name, number in fields.items():
        if number is not None and (isinstance(number, bool) or not isinstance(number, (int, float))):
            raise RefusedInputError(file, f"{path}.{name}", f"{number!r} is neither a number nor null")
    return Figure(**fields)
