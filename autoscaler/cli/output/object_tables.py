"""Tables of objects, as kubectl prints them.  Pure.

The columns here are those of a run on this machine; a cluster has its own (`kubernetes.cluster_tables`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from autoscaler.cli.output.phrases import format_age, format_count
from master.api.host.log_lines import escape_controls

PlainObject = Mapping[str, Any]
Cell = Callable[[PlainObject], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A heading, and the function that reads the cell off an object.  `is_wide`: only with -o wide."""

    title: str
    cell: Cell
    is_wide: bool = False


Columns: TypeAlias = Mapping[str, Sequence[Column]]
"""By kind of object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectList:
    """Objects of one kind, and the columns of a table of them."""

    objects: Sequence[PlainObject]
    columns: Columns


def _status(field: str) -> Cell:
    return lambda o: o["status"].get(field)


def _server(field: str) -> Cell:
    return lambda o: (o["spec"].get("parameterServer") or {}).get(field)


def _progress(field: str) -> Cell:
    return lambda o: (o["status"].get("progress") or {}).get(field)


def _decision(field: str) -> Cell:
    return lambda o: (o["status"].get("decision") or {}).get(field)


def _servers(o: PlainObject) -> str:
    """`3/2`: servers and their target; a server that leaves counts until its buckets have been moved."""
    status = o["status"]
    return format_count(status["servers"] + status["serversLeaving"], status["serversTarget"])


def _loss(o: PlainObject) -> Any:
    metrics = dict((o["status"].get("progress") or {}).get("metrics") or ())
    return f"{metrics['loss']:.4g}" if "loss" in metrics else None


def _epoch(o: PlainObject) -> Any:
    progress = o["status"].get("progress")
    return f"{progress['epoch']}/{progress['epochs']}" if progress and progress["epochs"] else None


_NAME: Final = Column(title="NAME", cell=lambda o: o["metadata"]["name"])
_AGE: Final = Column(title="AGE", cell=lambda o: format_age(o["status"].get("ageSeconds")))

COLUMNS: Final[Columns] = {
    "TrainingJob": (
        _NAME,
        Column(title="PHASE", cell=_status("phase")),
        Column(title="MIN", cell=lambda o: o["spec"]["trainer"]["minReplicas"]),
        Column(title="NOW", cell=_status("trainers")),
        Column(title="TARGET", cell=_status("target")),
        Column(title="MAX", cell=lambda o: o["spec"]["trainer"]["maxReplicas"]),
        Column(title="SERVERS", cell=_servers),
        Column(title="EPOCH", cell=_epoch),
        Column(title="COMMITTED", cell=_progress("committed")),
        Column(title="TOTAL", cell=_progress("total")),
        Column(title="LOSS", cell=_loss),
        Column(title="REASON", cell=_status("reason")),
        _AGE,
        Column(title="WEIGHT", cell=lambda o: o["spec"]["weight"], is_wide=True),
        Column(title="PINNED", cell=lambda o: o["spec"]["trainer"]["replicas"] or None, is_wide=True),
        Column(title="MIN-SERVERS", cell=_server("minReplicas"), is_wide=True),
        Column(title="MAX-SERVERS", cell=_server("maxReplicas"), is_wide=True),
        Column(title="PINNED-SERVERS", cell=lambda o: _server("replicas")(o) or None, is_wide=True),
        Column(title="REWORKED", cell=_progress("reworked"), is_wide=True),
        Column(title="QUARANTINED", cell=_progress("quarantined"), is_wide=True),
        Column(title="WHY", cell=_decision("message"), is_wide=True),
    ),
    "Node": (
        _NAME,
        Column(title="STATUS", cell=lambda o: "Draining" if o["spec"]["unschedulable"] else "Ready"),
        Column(title="CPU", cell=lambda o: _of(o, "cpu")),
        Column(title="MEMORY", cell=lambda o: _of(o, "memory")),
        Column(title="GPU", cell=lambda o: _of(o, "nvidia.com/gpu")),
        Column(title="PODS", cell=lambda o: len(o["status"]["pods"])),
        Column(title="NAMES", cell=lambda o: ",".join(o["status"]["pods"]), is_wide=True),
    ),
    "Pod": (
        _NAME,
        Column(title="STATUS", cell=_status("phase")),
        Column(title="ROLE", cell=lambda o: o["metadata"]["labels"]["edl.dev/role"]),
        Column(title="TIER", cell=lambda o: o["metadata"]["labels"]["edl.dev/tier"]),
        Column(title="NODE", cell=lambda o: o["spec"]["nodeName"]),
        Column(title="RESTARTS", cell=_status("restarts")),
        _AGE,
        Column(title="PID", cell=_status("pid"), is_wide=True),
        Column(title="PORT", cell=_status("port"), is_wide=True),
        Column(title="GPUS", cell=lambda o: ",".join(map(str, o["spec"]["gpus"])), is_wide=True),
        Column(title="REASON", cell=_status("reason"), is_wide=True),
    ),
    "Deployment": (
        _NAME,
        Column(title="READY", cell=lambda o: f"{o['status']['readyReplicas']}/{o['spec']['replicas']}"),
        Column(title="STARTING", cell=_status("startingReplicas")),
        Column(title="PENDING", cell=_status("pendingReplicas")),
        _AGE,
    ),
}


def format_table(objects: Sequence[PlainObject], *, is_wide: bool, columns: Columns = COLUMNS) -> list[str]:
    """Table of objects: a heading and one aligned line each; empty for no objects."""
    if not objects:
        return []
    shown = columns_of(objects[0]["kind"], is_wide=is_wide, columns=columns)
    return align_columns([[column.title for column in shown], *(_row(shown, o) for o in objects)])


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of equal length as lines, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [_line(row, widths) for row in rows]


class GrowingTable:
    """A table that is printed line by line: a column widens with its cells and never shrinks again."""

    def __init__(self, *, is_wide: bool) -> None:
        self._is_wide = is_wide
        self._widths: list[int] = []

    def add(self, found: PlainObject, columns: Columns = COLUMNS) -> list[str]:
        """The line of this object, below the heading if it is the first."""
        shown = columns_of(found["kind"], is_wide=self._is_wide, columns=columns)
        rows = [_row(shown, found)]
        if not self._widths:
            self._widths = [0] * len(shown)
            rows.insert(0, [column.title for column in shown])
        for row in rows:
            self._widths = [max(width, len(text)) for width, text in zip(self._widths, row, strict=True)]
        return [_line(row, self._widths) for row in rows]


def columns_of(kind: str, *, is_wide: bool, columns: Columns) -> list[Column]:
    """The columns of a kind of object."""
    return [column for column in columns[kind] if is_wide or not column.is_wide]


def _of(o: PlainObject, resource: str) -> str:
    allocatable, requested = o["status"]["allocatable"], o["status"]["requested"]
    return f"{requested.get(resource, '0')}/{allocatable[resource]}" if resource in allocatable else ""


def _row(columns: Sequence[Column], found: PlainObject) -> list[str]:
    return [_shown(column.cell(found)) for column in columns]


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def _shown(value: Any) -> str:
    return "-" if value is None or value == "" else escape_controls(str(value))
