"""The dashboards as Grafana reads them: panels, expressions, and variables in the place of which values stand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.chart.exported import FILES

FOLDER: Final = FILES / "dashboards"
BOARDS: Final[Mapping[str, dict[str, Any]]] = {
    path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))
}
RANGES: Final = {"__rate_interval": "1m", "__range": "5m"}
_VARIABLE: Final = re.compile(r"\$\{?(\w+)\}?")


@dataclass(frozen=True)
class Query:
    """One expression of a panel."""

    board: str
    panel: str
    expr: str
    legend: str
    links_jobs: bool

    def __str__(self) -> str:
        return f"{self.board}: {self.panel}: {self.expr}"

    def labels(self) -> set[str]:
        """Labels that its legend or its link names."""
        linked = {"namespace", "job"} if self.links_jobs else set()
        return set(re.findall(r"\{\{(\w+)\}\}", self.legend)) | linked


def panels(board: str) -> list[dict[str, Any]]:
    """Return the panels that show something: all but headings."""
    return [panel for panel in BOARDS[board]["panels"] if panel["type"] != "row"]


def queries() -> Iterator[Query]:
    """Yield every expression of every dashboard."""
    for board in BOARDS:
        for panel in panels(board):
            links = "edl-job" in json.dumps(panel["fieldConfig"])
            for target in panel["targets"]:
                yield Query(board, panel["title"], target["expr"], target["legendFormat"], links)


def variables(board: str) -> list[dict[str, Any]]:
    """Return the variables of a dashboard whose values Prometheus tells."""
    return [one for one in BOARDS[board]["templating"]["list"] if one["type"] == "query"]


def variable_names(text: str) -> set[str]:
    """Return the names of variables in an expression, without those that Grafana sets."""
    return set(_VARIABLE.findall(text)) - RANGES.keys()


def with_values(expr: str, values: Mapping[str, str]) -> str:
    """Return the expression with values in the place of variables."""
    return _VARIABLE.sub(lambda found: {**RANGES, **values}[found[1]], expr)
