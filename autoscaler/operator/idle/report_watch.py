"""Tells of reports on GPUs that cannot be right: by a metric and an event at the Node, once until they are sound."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Protocol

from autoscaler.domain import ClusterView, NodeName
from autoscaler.domain.gpu_reports import GpuReports
from autoscaler.operator.gpu_counters import GpuCounters
from autoscaler.operator.idle.report_faults import FaultIndex, Faults, nodes_without_report
from autoscaler.operator.store.event_recorder import EventRecorder, JobEvent, ObjectSubject

LOOK_EVERY_S: Final = 30.0
MOST_EVENTS: Final = 20
"""Events in one look: if the operator's own clock is wrong, all nodes have the fault.  The metric counts them all."""

REASON: Final = "GpuReportIgnored"


class ReportSource(Protocol):
    """Source of the agents' reports."""

    @property
    def refused(self) -> Mapping[str, str]: ...

    def reports(self) -> GpuReports: ...

    def arrived_at_s(self, node: NodeName) -> float: ...

    def asked(self, now_s: float) -> Collection[NodeName]: ...

    async def ask_for_report(self, node: NodeName, now_s: float) -> None: ...


class ReportWatch:
    """Faults of one term."""

    def __init__(self, source: ReportSource, events: EventRecorder, gpus: GpuCounters, *, offset_s: float) -> None:
        self._source, self._events, self._gpus = source, events, gpus
        self._index = FaultIndex(offset_s=offset_s)
        self._known: Faults = {}
        self._next_at_s = float("-inf")

    def look(self, view: ClusterView, now_unix_s: float) -> None:
        """Count and tell the faults that were not there before, and count the nodes whose GPUs nobody reports.

        Does nothing within `LOOK_EVERY_S` of the last look.
        """
        if now_unix_s < self._next_at_s:
            return
        self._next_at_s = now_unix_s + LOOK_EVERY_S
        reports = self._source.reports()
        self._gpus.set_unreported(nodes_without_report(view.nodes, reports, now_unix_s))
        found = self._index.faults(view, reports, self._source.refused, now_unix_s)
        new = [one for one in found if one not in self._known]
        self._known = found
        for number, (node, fault) in enumerate(new):
            self._gpus.count_fault(fault)
            if number < MOST_EVENTS:
                message = f"its report on GPUs is not used as it stands ({fault}): {found[node, fault]}"
                # A Node's events carry its name as UID, as the kubelet's do: so `kubectl describe node` shows them.
                subject = ObjectSubject(kind="Node", name=node, uid=node)
                self._events.emit(subject, JobEvent(reason=REASON, message=message, is_warning=True))
