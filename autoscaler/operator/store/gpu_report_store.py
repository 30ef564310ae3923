"""Reports on GPUs in the operator: the newest of each node, from one watch of NodeGpus.

Their watch stands beside those of the view: where it fails, or NodeGpus is not defined, reports grow old, and plans
without GPUs by use go on.  A report that cannot be read is dropped, and its node counts as without one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from math import inf
from types import MappingProxyType
from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Api
from autoscaler.clusters.kubernetes.api.kinds import NODE_GPUS
from autoscaler.clusters.kubernetes.cache.object_cache import ObjectCache
from autoscaler.clusters.kubernetes.cache.reflector import Reflector
from autoscaler.clusters.kubernetes.parsing.node_gpus import problem_of, report_of, trim_node_gpus
from autoscaler.domain.cluster import NodeName
from autoscaler.domain.gpu_reports import FRESH_S, NO_REPORTS, GpuReports, NodeGpuReport
from autoscaler.errors import ClusterError
from autoscaler.fault_isolation import JobErrors
from autoscaler.gpus.report_documents import to_time

log = logging.getLogger(__name__)

_MOST_NODES: Final = 50_000


class GpuReportStore:
    """`reports` is the newest of each node.  `run` follows them until cancelled."""

    def __init__(self, api: Api, errors: JobErrors, *, clock: Callable[[], float], jitter: Callable[[], float]) -> None:
        self._api = api
        self._cache = ObjectCache(errors, {NODE_GPUS: trim_node_gpus})
        self._watch = Reflector(api, self._cache, (NODE_GPUS,), now=clock, jitter=jitter, notify=lambda: None)
        self._reports = NO_REPORTS
        self._refused: dict[str, str] = {}
        self._clock = clock
        self._arrived_at_s: dict[NodeName, float] = {}
        self._asked_at_s: dict[NodeName, float] = {}

    async def run(self) -> None:
        """Follow NodeGpus until cancelled."""
        await self._watch.run()

    @property
    def is_synced(self) -> bool:
        """True once all have been listed; without the definition never."""
        return self._cache.is_synced((NODE_GPUS,))

    @property
    def refused(self) -> Mapping[str, str]:
        """Nodes whose report cannot be read, and why."""
        return MappingProxyType(self._refused)

    def reports(self) -> GpuReports:
        """The newest report of each node; the same object while none has changed."""
        changed = self._cache.pop_changes().get(NODE_GPUS, frozenset())
        new: list[NodeGpuReport] = []
        gone: list[NodeName] = []
        for key in changed:
            name, trimmed = NodeName(key[1]), self._cache.get(NODE_GPUS, key)
            self._tell(name, "" if trimmed is None else problem_of(trimmed))
            report = None if trimmed is None else report_of(trimmed)
            if report is None or (name not in self._reports.by_node and len(self._reports.by_node) >= _MOST_NODES):
                gone.append(name)
                self._arrived_at_s.pop(name, None)
            elif report != (before := self._reports.by_node.get(name)):  # else the operator has asked for another
                self._arrived_at_s[name] = -inf if before is None else self._clock()
                new.append(report)
        if new or gone:
            self._reports = self._reports.changed(new, gone)
        return self._reports

    def arrived_at_s(self, node: NodeName) -> float:
        """Return when the operator got the node's report, by its own clock; minus infinity: of the first nobody knows.

        Nodes' clocks differ, and an agent may have tried for long to write.
        """
        return self._arrived_at_s.get(node, -inf)

    def asked(self, now_s: float) -> Collection[NodeName]:
        """Return the nodes that were asked for a report within `FRESH_S`, and are not asked again now."""
        return [node for node, at_s in self._asked_at_s.items() if now_s - at_s < FRESH_S]

    async def ask_for_report(self, node: NodeName, now_s: float) -> None:
        """Ask the node's agent for a report after `now_s` (Unix time), once within `FRESH_S`.

        It comes within half a minute, and only while the node holds an idle GPU.  Raises ClusterError.
        """
        if now_s - self._asked_at_s.get(node, float("-inf")) < FRESH_S:
            return
        self._asked_at_s = {one: at_s for one, at_s in self._asked_at_s.items() if now_s - at_s < FRESH_S}
        self._asked_at_s[node] = now_s
        try:
            await self._api.patch(NODE_GPUS, node, {"spec": {"renewAfter": to_time(now_s)}})
        except ClusterError:
            del self._asked_at_s[node]
            raise

    def _tell(self, node: NodeName, problem: str) -> None:
        before = self._refused.pop(node, "")
        if problem:
            self._refused[node] = problem
            if problem != before:
                log.warning("the report of node %s on its GPUs is not used: %s", node, problem)
