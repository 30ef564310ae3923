"""Use of GPUs by pods, out of the agents' reports: which pods use none of the GPUs that they hold.

A pod is idle only while the report of its node names as many GPUs of it as it asks for, and every one of them is held:
what is missing, old or contradicts itself is work (promise A12).  A cluster of 10,000 nodes changes some reports a
second, and the leader's other tasks wait meanwhile: so what is known is kept by node.  The operator acts by this rule,
and the page shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from autoscaler.domain import NodeName, Pod, PodName, Resources
from autoscaler.domain.gpu_reports import NO_REPORTS, GpuReports, GpuVerdict, NodeGpuReport
from autoscaler.gpus.pods.device_ids import RESOURCE_PREFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUse:
    """A pod's GPUs by one report of its node, whatever its age."""

    uuids: tuple[str, ...] = ()
    low_since_s: float = -inf  # Unix time since when none of them is used
    is_low: bool = True


def join_pods(report: NodeGpuReport) -> Mapping[PodName, PodUse]:
    """Return the pods that the report names, each with its GPUs."""
    uses: dict[PodName, PodUse] = {}
    for gpu in report.gpus:
        since_s = inf if gpu.low_since_s is None else gpu.low_since_s
        for name in gpu.pods:
            before = uses.get(name, PodUse())
            uses[name] = PodUse(
                uuids=(*before.uuids, gpu.uuid),
                low_since_s=max(before.low_since_s, since_s),
                is_low=before.is_low and gpu.verdict is GpuVerdict.HELD and since_s < inf,
            )
    return uses


Join: TypeAlias = Callable[[NodeGpuReport], Mapping[PodName, PodUse]]


class GpuUses:
    """Use of GPUs by pods, by the newest report of each node; only reports that have changed are joined anew.

    Another node's report says nothing of a pod: it may be an old one of a pod of the same name, or of a hostile agent.
    A GPU that pods have by the reports of two nodes is used on both.  `join`: for who keeps what was joined.
    """

    def __init__(self, reports: GpuReports = NO_REPORTS, join: Join = join_pods) -> None:
        self._join = join
        self.reports = NO_REPORTS
        self.joined = 0  # reports, so far
        self._pods: dict[NodeName, Mapping[PodName, PodUse]] = {}
        self._low: dict[NodeName, Mapping[PodName, PodUse]] = {}  # of nodes with some, those that use none
        self._nodes_of: dict[str, set[NodeName]] = {}  # by GPU that pods have
        self.renew(reports)

    def renew(self, reports: GpuReports) -> None:
        """Take the newest reports."""
        if reports is self.reports:
            return
        before, self.reports = self.reports.by_node, reports
        changed = [node for node, report in reports.by_node.items() if before.get(node) is not report]
        for node in (*changed, *(before.keys() - reports.by_node.keys())):
            self._low.pop(node, None)
            for use in self._pods.pop(node, {}).values():
                for uuid in use.uuids:
                    self._forget(uuid, node)
        for node in changed:
            self._put(reports.by_node[node])

    def is_named(self, pod: Pod) -> bool:
        """True if the report of the pod's node names it."""
        return pod.node is not None and pod.name in self._pods.get(pod.node, ())

    def low_since_s(self, pod: Pod, now_unix_s: float) -> float | None:
        """Return the Unix time since when the pod uses none of its GPUs; None: it may use one."""
        return self.low_since_s_of(pod.name, pod.node, pod.shape.requests, now_unix_s)

    def low_since_s_of(
        self, name: PodName, node: NodeName | None, requests: Resources, now_unix_s: float
    ) -> float | None:
        """Return it as `low_since_s`, of a pod with this name, node and requests."""
        low = None if node is None else self._low.get(node)
        use = None if low is None else low.get(name)
        if use is None or len(use.uuids) < gpus_asked(requests):
            return None
        if not self._counts(node, now_unix_s) or any(self._is_twice(uuid, now_unix_s) for uuid in use.uuids):
            return None
        return use.low_since_s

    def age_s(self, pod: Pod, now_unix_s: float) -> float:
        """Return the age of the report of the pod's node; of a clock that is ahead it counts as of one behind."""
        report = None if pod.node is None else self.reports.by_node.get(pod.node)
        return inf if report is None else abs(now_unix_s - report.reported_at_s)

    def _put(self, report: NodeGpuReport) -> None:
        self.joined += 1
        uses = self._pods[report.node] = self._join(report)
        for use in uses.values():
            for uuid in use.uuids:
                self._nodes_of.setdefault(uuid, set()).add(report.node)
        if low := {name: use for name, use in uses.items() if use.is_low}:
            self._low[report.node] = low

    def _forget(self, uuid: str, node: NodeName) -> None:
        nodes = self._nodes_of.get(uuid, set())
        nodes.discard(node)
        if not nodes:
            self._nodes_of.pop(uuid, None)

    def _counts(self, node: NodeName | None, now_unix_s: float) -> bool:
        report = None if node is None else self.reports.by_node.get(node)
        return report is not None and report.counts_at(now_unix_s)

    def _is_twice(self, uuid: str, now_unix_s: float) -> bool:
        """True if pods have the GPU by the reports of two nodes; one that is too old contradicts nobody."""
        nodes = self._nodes_of[uuid]
        return len(nodes) > 1 and sum(self._counts(node, now_unix_s) for node in nodes) > 1


def gpus_asked(requests: Resources) -> int:
    """Return how many GPUs and parts of GPUs a pod asks for by number; 0 where it has them by a claim."""
    if not requests.extended:
        return requests.gpu_count
    return requests.gpu_count + sum(count for name, count in requests.extended if name.startswith(RESOURCE_PREFIX))
