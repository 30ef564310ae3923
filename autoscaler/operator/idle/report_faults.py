"""Reports on GPUs that cannot be right: each is counted once and told by one event, until it is sound again.

None of them makes a GPU idle (promise A12): what cannot be read is not used, a clock that is ahead makes GPUs active,
a pod of another node is ignored, and a GPU that two nodes have is active on both.  So a broken or hostile agent costs
use of GPUs and nobody's work; but an administrator has to know of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, TypeVar

from autoscaler.domain import ClusterView, Node, NodeName, Pod, PodName
from autoscaler.domain.gpu_reports import FRESH_S, NO_REPORTS, GpuReport, GpuReports, NodeGpuReport
from autoscaler.gpus.pod_uses import gpus_asked

MOST_SHOWN: Final = 3  # names in one text

_Key = TypeVar("_Key", bound=str)


class ReportFault(StrEnum):
    """Kind of fault; the label of its metric."""

    UNREADABLE = "unreadable"  # too many GPUs, a figure out of range, another form
    CLOCK_AHEAD = "clock ahead"  # of a time that has not come
    OTHER_NODE = "other node"  # names pods that run on another node
    TWO_NODES = "two nodes"  # names a GPU that another node's report names too


Faults = Mapping[tuple[NodeName, ReportFault], str]
"""What is wrong, by node and fault."""


class FaultIndex:
    """Every fault of the newest reports; only reports and pods that have changed are looked at anew.

    A cluster of 10,000 nodes changes some reports a second, and the leader's other tasks wait meanwhile.  `offset_s`
    takes Unix time to the view's clock.
    """

    def __init__(self, *, offset_s: float) -> None:
        self.joined = 0  # reports, so far
        self._offset_s = offset_s
        self._reports = NO_REPORTS
        self._pods: Sequence[Pod] | None = None  # of the newest view; None: reports have changed since
        self._named: dict[PodName, Pod] = {}  # pods of the view that reports name
        self._nodes_naming: dict[PodName, set[NodeName]] = {}
        self._nodes_listing: dict[str, set[NodeName]] = {}  # by GPU
        self._shared: set[str] = set()  # GPUs that several nodes list
        self._elsewhere: dict[NodeName, str] = {}  # of nodes with some

    def faults(
        self, view: ClusterView, reports: GpuReports, unreadable: Mapping[str, str], now_unix_s: float
    ) -> Faults:
        """Return every fault of these reports.  `unreadable`: nodes whose report cannot be read, and why."""
        stale = self._take_reports(reports) | self._take_pods(view.pods)
        for node in stale:
            self._elsewhere.pop(node, None)
            if (report := reports.by_node.get(node)) is not None and (
                found := sorted(set(self._pods_elsewhere(report)))
            ):
                self._elsewhere[node] = f"it names {_listed(found)}"
        self.joined += len(stale)
        faults = {(NodeName(node), ReportFault.UNREADABLE): problem for node, problem in unreadable.items()}
        ahead = {
            node: by_s for node, one in reports.by_node.items() if (by_s := one.reported_at_s - now_unix_s) > FRESH_S
        }
        for node, ahead_s in ahead.items():
            faults[node, ReportFault.CLOCK_AHEAD] = f"its clock is {ahead_s:.0f} s ahead of the operator's"
        for node, text in self._elsewhere.items():
            if node not in ahead:
                faults[node, ReportFault.OTHER_NODE] = text
        for node, uuids in self._listed_twice(now_unix_s).items():
            if node not in ahead:
                faults[node, ReportFault.TWO_NODES] = f"another node reports {_listed(sorted(uuids))}, too"
        return faults

    def _take_reports(self, reports: GpuReports) -> set[NodeName]:
        """Take the newest reports, and return the nodes whose report is another one."""
        if reports is self._reports:
            return set()
        before, self._reports = self._reports.by_node, reports
        gone = before.keys() - reports.by_node.keys()
        changed = {node for node, report in reports.by_node.items() if before.get(node) is not report}
        for node in (*gone, *(node for node in changed if node in before)):
            self._forget(before[node])
        for node in changed:
            for gpu in reports.by_node[node].gpus:
                self._put(gpu, node)
        if changed:  # pods that were not named before are looked up
            self._pods = None
        return changed | gone

    def _take_pods(self, pods: Sequence[Pod]) -> set[NodeName]:
        """Take the pods of the newest view, and return the nodes whose reports name one that has changed."""
        if pods is self._pods:
            return set()
        before, self._pods = self._named, pods
        self._named = {pod.name: pod for pod in pods if pod.name in self._nodes_naming}
        changed = [name for name, pod in self._named.items() if before.get(name) is not pod]
        return {
            node
            for name in (*changed, *(before.keys() - self._named.keys()))
            for node in self._nodes_naming.get(name, ())
        }

    def _put(self, gpu: GpuReport, node: NodeName) -> None:
        nodes = self._nodes_listing.setdefault(gpu.uuid, set())
        nodes.add(node)
        if len(nodes) > 1:
            self._shared.add(gpu.uuid)
        for name in gpu.pods:
            self._nodes_naming.setdefault(name, set()).add(node)

    def _forget(self, report: NodeGpuReport) -> None:
        for gpu in report.gpus:
            _take_out(self._nodes_listing, gpu.uuid, report.node)
            if len(self._nodes_listing.get(gpu.uuid, ())) < 2:
                self._shared.discard(gpu.uuid)
            for name in gpu.pods:
                _take_out(self._nodes_naming, name, report.node)

    def _listed_twice(self, now_unix_s: float) -> Mapping[NodeName, set[str]]:
        """Return by node the GPUs of its report that pods have by more than one node (`gpus_of_two_nodes`)."""
        listing = {node: self._reports.by_node[node] for uuid in self._shared for node in self._nodes_listing[uuid]}
        twice = gpus_of_two_nodes(GpuReports(listing), now_unix_s)
        shared = ((node, {gpu.uuid for gpu in report.gpus if gpu.uuid in twice}) for node, report in listing.items())
        return {node: uuids for node, uuids in shared if uuids}

    def _pods_elsewhere(self, report: NodeGpuReport) -> Iterator[str]:
        """Yield the pods of the report that were made before it, and run on another node.

        A younger one may have had a namesake here, and what a report says of that is true.
        """
        for gpu in report.gpus:
            for name in gpu.pods:
                pod = self._named.get(name)
                if pod is None or pod.node is None or pod.node == report.node:
                    continue
                if pod.created_at_s + FRESH_S < report.reported_at_s + self._offset_s:
                    yield f"{name}, which runs on {pod.node}"


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


def nodes_without_report(nodes: Iterable[Node], reports: GpuReports, now_unix_s: float) -> int:
    """Return how many ready nodes have GPUs and no report that counts: their agent is not there, or silent."""
    found = (reports.by_node.get(node.name) for node in nodes if node.is_ready and gpus_asked(node.allocatable))
    return sum(report is None or not report.counts_at(now_unix_s) for report in found)


def _take_out(nodes_of: dict[_Key, set[NodeName]], key: _Key, node: NodeName) -> None:
    nodes = nodes_of.get(key, set())
    nodes.discard(node)
    if not nodes:
        nodes_of.pop(key, None)


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    more = f" and {len(found) - MOST_SHOWN} more" if len(found) > MOST_SHOWN else ""
    return ", ".join(found[:MOST_SHOWN]) + more
