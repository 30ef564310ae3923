"""Panels and their places: from short descriptions to what Grafana reads (schema version 39, Grafana 10 and newer)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

Json = dict[str, Any]

WIDTH: Final = 24  # of Grafana's grid
ROW_HEIGHT: Final = 1
DATA_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
TAG: Final = "edl"
JOB_UID: Final = "edl-job"
JOB_URL: Final = f"/d/{JOB_UID}?var-datasource=${{datasource}}&${{__url_time_range}}"


class Kind(StrEnum):
    """Kind of panel, by Grafana's name."""

    LINES = "timeseries"
    STAT = "stat"
    TABLE = "table"


class Unit(StrEnum):
    """Unit of a value, by Grafana's name."""

    COUNT = "short"
    SECONDS = "s"
    BYTES = "bytes"
    RATIO = "percentunit"
    PER_SECOND = "ops"
    PER_MINUTE = "opm"
    WATTS = "watt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """An expression, and the name of its lines by labels: `{{use}}`."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A question and its answer.

    `description`: what the panel shows, and what to do about it.  `warn_at`, `alarm_at`: from these values on it is
    orange and red; with `is_low_bad` below them.  `links_jobs`: a click on a line or a row leads to its job.
    """

    title: str
    description: str
    queries: tuple[Query, ...]
    kind: Kind = Kind.LINES
    unit: Unit = Unit.COUNT
    width: int = 12
    height: int = 8
    warn_at: float | None = None
    alarm_at: float | None = None
    is_low_bad: bool = False
    is_stacked: bool = False
    links_jobs: bool = False
    least: float | None = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Panels below a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable that the reader chooses: the values of a label."""

    name: str
    label: str
    query: str
    has_all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """A dashboard.  `uid` never changes: links and bookmarks name it."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()


def to_json(board: Dashboard) -> Json:
    """Return the dashboard as Grafana reads it."""
    links = {"type": "dashboards", "tags": [TAG], "title": "EDL", "asDropdown": True, "includeVars": True}
    return {
        "uid": board.uid,
        "title": board.title,
        "description": board.description,
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "tags": [TAG],
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": [{**links, "keepTime": True, "targetBlank": False, "icon": "external link", "url": "", "tooltip": ""}],
        "templating": {"list": [_data_source_variable(), *map(_variable, board.variables)]},
        "annotations": {"list": []},
        "panels": _place(board.rows),
    }


def _place(rows: Sequence[Row]) -> list[Json]:
    """Panels from left to right and from top to bottom, each row below the one before."""
    placed: list[Json] = []
    top = 0
    for row in rows:
        placed.append(
            {
                "id": len(placed) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "panels": [],
                "gridPos": {"h": ROW_HEIGHT, "w": WIDTH, "x": 0, "y": top},
            }
        )
        top += ROW_HEIGHT
        left = height = 0
        for panel in row.panels:
            if left + panel.width > WIDTH:
                top, left, height = top + height, 0, 0
            place = {"h": panel.height, "w": panel.width, "x": left, "y": top}
            placed.append({"id": len(placed) + 1, "gridPos": place, **_panel(panel)})
            left, height = left + panel.width, max(height, panel.height)
        top += height
    return placed


def _panel(panel: Panel) -> Json:
    is_line = panel.kind is Kind.LINES
    return {
        "type": panel.kind.value,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATA_SOURCE,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _overrides(panel)},
        "options": _options(panel),
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": DATA_SOURCE,
                "editorMode": "code",
                "expr": query.expr,
                "legendFormat": query.legend,
                "range": is_line,
                "instant": not is_line,
                **({"format": "table"} if panel.kind is Kind.TABLE else {}),
            }
            for number, query in enumerate(panel.queries)
        ],
        **({"transformations": _columns(panel)} if panel.kind is Kind.TABLE else {}),
    }


def _defaults(panel: Panel) -> Json:
    has_limit = panel.warn_at is not None or panel.alarm_at is not None
    defaults: Json = {
        "unit": panel.unit.value,
        "thresholds": {"mode": "absolute", "steps": _steps(panel)},
        "color": {"mode": "thresholds" if has_limit and panel.kind is not Kind.LINES else "palette-classic"},
    }
    if panel.least is not None:
        defaults["min"] = panel.least
    if panel.links_jobs and panel.kind is Kind.LINES:
        where = "&var-namespace=${__field.labels.namespace}&var-job=${__field.labels.job}"
        defaults["links"] = [{"title": "This job", "url": f"{JOB_URL}{where}"}]
    if panel.kind is Kind.LINES:
        defaults["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 30 if panel.is_stacked else 5,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if panel.is_stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "dashed" if has_limit else "off"},
        }
    return defaults


def _steps(panel: Panel) -> list[Json]:
    """Colours, each from its value on, rising; where low values are bad, red comes first."""
    limits = [("orange", panel.warn_at), ("red", panel.alarm_at)]
    known = [(colour, value) for colour, value in limits if value is not None]
    if not panel.is_low_bad:
        return [{"color": "green", "value": None}, *({"color": colour, "value": value} for colour, value in known)]
    colours = [*(colour for colour, _ in reversed(known)), "green"]
    values = [None, *(value for _, value in reversed(known))]
    return [{"color": colour, "value": value} for colour, value in zip(colours, values, strict=True)]


def _overrides(panel: Panel) -> list[Json]:
    if not (panel.links_jobs and panel.kind is Kind.TABLE):
        return []
    where = "&var-namespace=${__data.fields.namespace}&var-job=${__data.fields.job}"
    link = {"id": "links", "value": [{"title": "This job", "url": f"{JOB_URL}{where}"}]}
    return [{"matcher": {"id": "byName", "options": "job"}, "properties": [link]}]


def _options(panel: Panel) -> Json:
    match panel.kind:
        case Kind.LINES:
            return {
                "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
                "tooltip": {"mode": "multi", "sort": "desc"},
            }
        case Kind.STAT:
            return {
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                "colorMode": "value",
                "graphMode": "none",
                "textMode": "auto",
                "orientation": "auto",
            }
        case Kind.TABLE:
            return {"showHeader": True, "cellHeight": "sm"}


def _columns(panel: Panel) -> list[Json]:
    """One line for the same labels, a column for each query, named by its legend."""
    names: Mapping[str, str] = (
        {"Value": panel.queries[0].legend}
        if len(panel.queries) == 1
        else {f"Value #{chr(ord('A') + number)}": query.legend for number, query in enumerate(panel.queries)}
    )
    return [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": dict(names)}},
    ]


def _data_source_variable() -> Json:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {}}


def _variable(variable: Variable) -> Json:
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": DATA_SOURCE,
        "definition": variable.query,
        "query": {"query": variable.query, "refId": variable.name},
        "refresh": 2,
        "sort": 1,
        "includeAll": variable.has_all,
        "multi": variable.has_all,
        **({"allValue": ".*", "current": {"text": "All", "value": "$__all"}} if variable.has_all else {"current": {}}),
    }
