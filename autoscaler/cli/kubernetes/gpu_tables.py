"""`edl get gpus`: one row for each GPU, or for each pod that has it.  Pure.

A row tells what the report says now: an old one permits nothing and shows nothing as idle.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from autoscaler.cli.output.object_tables import Cell, Column, PlainObject
from autoscaler.clusters.kubernetes.objects.fields import text
from autoscaler.clusters.kubernetes.objects.labels import JOB
from autoscaler.domain.gpu_reports import GpuReport, NodeGpuReport
from autoscaler.errors import InvalidSpecError
from autoscaler.gpus.report_documents import parse_report
from autoscaler.views.phrases import format_age

_ROW: Final = "row"


def gpu_rows(
    found: PlainObject,
    jobs: Mapping[str, str],
    now_s: float,
    *,
    nodes: Mapping[str, str] = MappingProxyType({}),
    disputed: Container[str] = (),
) -> list[PlainObject]:
    """Rows of one NodeGpus object at `now_s` (Unix time), or one that says why it has none.

    `jobs`: the job of each pod of EDL's, both as NAMESPACE/NAME.  `nodes`: its node; what another
    one's report says of it does not count.  `disputed`: GPUs that two nodes report.
    """
    try:
        report = parse_report(found)
    except InvalidSpecError as error:
        return [_row(found, {"why": str(error)})]
    if report is None:
        return [_row(found, {"why": "its agent has not reported yet"})]
    if not report.gpus:
        return [_row(found, {"why": "no GPUs, or its driver does not answer", "reported": _age(report, now_s)})]
    gpus = report.gpus_at(now_s, disputed=disputed)
    return [_row(found, cells) for one in gpus for cells in _cells(one, report, jobs, nodes, now_s)]


def gpu_columns() -> Sequence[Column]:
    """The columns of those rows."""
    return (
        Column(title="NODE", cell=lambda o: text(o, "metadata", "name")),
        _column("GPU", "gpu"),
        _column("MODEL", "model"),
        _column("VERDICT", "verdict"),
        _column("LOW-FOR", "low_for", key="low_for_s"),
        _column("POD", "pod"),
        _column("JOB", "job"),
        _column("BUSY", "busy", is_wide=True, key="busy_ratio"),
        _column("WATTS", "watts", is_wide=True),
        _column("REPORTED", "reported", is_wide=True, key="reported_s"),
        _column("UUID", "uuid", is_wide=True),
        _column("WHY", "why"),
    )


def jobs_of_pods(pods: Sequence[PlainObject]) -> dict[str, str]:
    """The job of each pod with EDL's label, both as NAMESPACE/NAME."""
    found = {}
    for pod in pods:
        namespace, name = text(pod, "metadata", "namespace"), text(pod, "metadata", "name")
        if job := text(pod, "metadata", "labels", JOB):
            found[f"{namespace}/{name}"] = f"{namespace}/{job}"
    return found


def nodes_of_pods(pods: Sequence[PlainObject]) -> dict[str, str]:
    """The node of each pod, as NAMESPACE/NAME; empty for one that waits for a node."""
    return {
        f"{text(pod, 'metadata', 'namespace')}/{text(pod, 'metadata', 'name')}": text(pod, "spec", "nodeName")
        for pod in pods
    }


def _cells(
    one: GpuReport, report: NodeGpuReport, jobs: Mapping[str, str], nodes: Mapping[str, str], now_s: float
) -> Iterator[dict[str, Any]]:
    cells = {
        "gpu": one.name or one.uuid,
        "model": one.model,
        "verdict": one.verdict.value,
        "low_for": format_age(one.low_for_s(now_s)) if one.low_since_s is not None else None,
        "low_for_s": one.low_for_s(now_s) if one.low_since_s is not None else None,
        "busy": format_busy(one.busy_ratio),
        "busy_ratio": one.busy_ratio,
        "watts": None if one.watts is None else round(one.watts),
        "reported": _age(report, now_s),
        "reported_s": now_s - report.reported_at_s,
        "uuid": one.uuid,
        "why": one.reason,
    }
    for pod in one.pods or (None,):
        if pod is not None and (there := nodes.get(pod, report.node)) != report.node:
            yield {**cells, "pod": pod, "job": None, "why": f"the pod {f'runs on {there}' if there else 'has no node'}"}
        else:
            yield {**cells, "pod": pod, "job": None if pod is None else jobs.get(pod)}


def format_busy(ratio: float | None) -> str | None:
    """`73%`; None where it is not known."""
    return None if ratio is None else f"{100 * ratio:.0f}%"


def _age(report: NodeGpuReport, now_s: float) -> str:
    return format_age(max(0.0, now_s - report.reported_at_s))


def _row(found: PlainObject, cells: Mapping[str, Any]) -> PlainObject:
    return {"kind": found["kind"], "metadata": found["metadata"], _ROW: cells}


def _column(title: str, name: str, *, is_wide: bool = False, key: str | None = None) -> Column:
    """`key`: the value behind the words of the cell."""
    return Column(title=title, cell=_cell(name), is_wide=is_wide, key=None if key is None else _cell(key))


def _cell(name: str) -> Cell:
    return lambda o: o[_ROW].get(name)
