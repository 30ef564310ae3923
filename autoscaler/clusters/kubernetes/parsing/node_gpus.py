"""NodeGpus objects as the operator keeps them: the report, parsed once, in place of the object.

10,000 nodes of eight GPUs are 140 MB as reports and several times that as objects (ADR 0283).
"""

from __future__ import annotations

from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.domain.gpu_reports import NodeGpuReport
from autoscaler.errors import InvalidSpecError
from autoscaler.gpus.report_documents import parse_report, renewal_asked_at_s

_REPORT: Final = "edl:report"  # no field of the API
_PROBLEM: Final = "edl:problem"
_ASKED: Final = "edl:asked"


def trim_node_gpus(raw: Raw) -> Raw:
    """The object with its report parsed, or with what is wrong with it; an object that is trimmed stays as it is."""
    if _REPORT in raw:
        return raw
    report: NodeGpuReport | None = None
    problem = ""
    try:
        report = parse_report(raw)
    except InvalidSpecError as error:
        problem = str(error)
    metadata = {name: raw["metadata"][name] for name in ("name", "uid", "resourceVersion") if name in raw["metadata"]}
    return {"metadata": metadata, _REPORT: report, _PROBLEM: problem, _ASKED: renewal_asked_at_s(raw)}


def report_of(trimmed: Raw) -> NodeGpuReport | None:
    """The report; None if the agent has not reported, or not what can be read."""
    report = trimmed.get(_REPORT)
    assert report is None or isinstance(report, NodeGpuReport)
    return report


def problem_of(trimmed: Raw) -> str:
    """Problem of the report; empty: it is sound."""
    return str(trimmed.get(_PROBLEM, "it could not be read, through a fault of EDL"))
