"""Reports on GPUs that cannot be right: each is counted once and told by one event, until it is sound again.

None of them makes a GPU idle (promise A12): what cannot be read is not used, a clock that is ahead makes GPUs active,
a pod of another node is ignored, and a GPU that two nodes have is active on both.  So a broken or hostile agent costs
use of GPUs and nobody's work; but an administrator has to know of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final

from autoscaler.domain import ClusterView, NodeName, Pod, PodName
from autoscaler.domain.gpu_reports import FRESH_S, GpuReports, NodeGpuReport

MOST_SHOWN: Final = 3  # names in one text


class ReportFault(StrEnum):
    """Kind of fault; the label of its metric."""

    UNREADABLE = "unreadable"  # too many GPUs, a figure out of range, another form
    CLOCK_AHEAD = "clock ahead"  # of a time that has not come
    OTHER_NODE = "other node"  # names pods that run on another node
    TWO_NODES = "two nodes"  # names a GPU that another node's report names too


Faults = Mapping[tuple[NodeName, ReportFault], str]
"""What is wrong, by node and fault."""


def faults_of(
    view: ClusterView, reports: GpuReports, unreadable: Mapping[str, str], now_unix_s: float, *, offset_s: float
) -> Faults:
    """Return every fault of these reports.  `unreadable`: nodes whose report cannot be read, and why.

    `offset_s` takes Unix time to the view's clock.  Pure.
    """
    found = {(NodeName(node), ReportFault.UNREADABLE): problem for node, problem in unreadable.items()}
    twice = gpus_of_two_nodes(reports, now_unix_s)
    pods = _pods_named(view, reports)
    for node, report in reports.by_node.items():
        if (ahead_s := report.reported_at_s - now_unix_s) > FRESH_S:
            found[node, ReportFault.CLOCK_AHEAD] = f"its clock is {ahead_s:.0f} s ahead of the operator's"
            continue
        if elsewhere := sorted(set(_elsewhere(report, pods, offset_s))):
            found[node, ReportFault.OTHER_NODE] = f"it names {_listed(elsewhere)}"
        if shared := sorted({gpu.uuid for gpu in report.gpus if gpu.uuid in twice}):
            found[node, ReportFault.TWO_NODES] = f"another node reports {_listed(shared)}, too"
    return found


def gpus_of_two_nodes(reports: GpuReports, now_unix_s: float) -> frozenset[str]:
    """Return the GPUs that pods have by the reports of more than one node: which of them is right, nobody knows.

    Reports that are too old to make a GPU idle contradict nobody: a GPU may have moved since.
    """
    node_of: dict[str, NodeName] = {}
    twice: set[str] = set()
    for report in reports.by_node.values():
        if not report.counts_at(now_unix_s):
            continue
        for gpu in report.gpus:
            if gpu.pods and node_of.setdefault(gpu.uuid, report.node) != report.node:
                twice.add(gpu.uuid)
    return frozenset(twice)


def _pods_named(view: ClusterView, reports: GpuReports) -> Mapping[PodName, Pod]:
    named = {pod for report in reports.by_node.values() for gpu in report.gpus for pod in gpu.pods}
    return {pod.name: pod for pod in view.pods if pod.name in named}


def _elsewhere(report: NodeGpuReport, pods: Mapping[PodName, Pod], offset_s: float) -> Iterator[str]:
    """Yield the pods of the report that were made before it, and run on another node.

    A younger one may have had a namesake here, and what a report says of that is true.
    """
    for gpu in report.gpus:
        for name in gpu.pods:
            pod = pods.get(name)
            if pod is None or pod.node is None or pod.node == report.node:
                continue
            if pod.created_at_s + FRESH_S < report.reported_at_s + offset_s:
                yield f"{name}, which runs on {pod.node}"


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    more = f" and {len(found) - MOST_SHOWN} more" if len(found) > MOST_SHOWN else ""
    return ", ".join(found[:MOST_SHOWN]) + more
