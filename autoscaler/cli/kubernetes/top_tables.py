"""`edl top` as people and scripts read it: a table, JSON, YAML, or names.  Pure.  The lines are `top_lines`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from autoscaler.cli.kubernetes.gpu_tables import format_busy
from autoscaler.cli.kubernetes.top_lines import TopLine
from autoscaler.cli.output.formats import format_content
from autoscaler.cli.output.object_tables import align_columns
from autoscaler.domain.gpu_reports import GpuVerdict
from autoscaler.quantities import format_cpu, format_memory
from autoscaler.views.phrases import format_age

NOTHING: Final = "nothing there"


def _count_of(verdict: GpuVerdict, one: TopLine) -> str:
    return str(one.count(verdict))


def _whole_mi(memory_bytes: int) -> str:
    """As `kubectl top` writes it: what is in use changes while it is read."""
    return format_memory(-(-memory_bytes // _MI) * _MI)


_MI: Final = 1 << 20
_VERDICTS: Final = (GpuVerdict.ACTIVE, GpuVerdict.HELD, GpuVerdict.FREE, GpuVerdict.UNKNOWN)
_COLUMNS: Final[Mapping[str, Callable[[TopLine], str | None]]] = {
    "CPU": lambda one: None if one.used is None else format_cpu(one.used.cpu_milli),
    "MEMORY": lambda one: None if one.used is None else _whole_mi(one.used.memory_bytes),
    "GPUS": lambda one: str(len(one.gpus)),
    **{verdict.value.upper(): partial(_count_of, verdict) for verdict in _VERDICTS},
    "BUSY": lambda one: format_busy(one.busy_ratio),
    "WATTS": lambda one: None if one.watts is None else f"{one.watts:.0f}",
    "HELD-FOR": lambda one: format_age(one.held_s),
}
_WIDE: Final[Mapping[str, Callable[[TopLine], str | None]]] = {
    "MODEL": lambda one: ",".join(one.models),
    "NODES": lambda one: ",".join(one.nodes),
    "REPORTED": lambda one: format_age(one.report_age_s),
}


def format_top(lines: Sequence[TopLine], output: str, *, has_namespaces: bool, has_heading: bool = True) -> str:
    """These lines in the format of -o; `has_namespaces`: the table has them in a column of their own."""
    match output:
        case "json" | "yaml":
            return format_content({"kind": "List", "items": [line_content(one) for one in lines]}, output)
        case "name":
            return "\n".join(f"{one.kind}/{one.name}" for one in lines)
        case _:
            table = _table(lines, is_wide=output == "wide", has_namespaces=has_namespaces)
            return "\n".join(table if has_heading else table[1:]) or NOTHING


def line_content(one: TopLine) -> Mapping[str, Any]:
    """One line for scripts, with units in its names; null where nobody tells."""
    return {
        "kind": one.kind,
        **({"namespace": one.namespace} if one.namespace else {}),
        "name": one.name,
        "cpuMilli": None if one.used is None else one.used.cpu_milli,
        "memoryBytes": None if one.used is None else one.used.memory_bytes,
        "gpus": {"total": len(one.gpus)} | {verdict.value: one.count(verdict) for verdict in _VERDICTS},
        "busyRatio": one.busy_ratio,
        "watts": one.watts,
        "heldSeconds": one.held_s,
        "models": list(one.models),
        "nodes": list(one.nodes),
        "reportAgeSeconds": one.report_age_s,
    }


def _table(lines: Sequence[TopLine], *, is_wide: bool, has_namespaces: bool) -> list[str]:
    if not lines:
        return []
    shown = {**_COLUMNS, **(_WIDE if is_wide else {})}
    rows = [[*(["NAMESPACE"] if has_namespaces else []), "NAME", *shown]]
    for one in lines:
        name = one.name if one.kind == "node" else f"{one.kind}/{one.name}"
        names = [one.namespace, name] if has_namespaces else [name]
        rows.append([*names, *(cell(one) or "-" for cell in shown.values())])
    return align_columns(rows)
