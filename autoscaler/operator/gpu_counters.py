"""Metrics of an operator about GPUs by use: what was or could be given back, reports that are wrong or missing."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from autoscaler.operator.idle.report_faults import ReportFault


class GpuCounters:
    """In the operator's registry; each fault has its series from the start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._given_back: Final = Counter(
            "edl_idle_gpus_given_back", "GPUs that pods of others gave back unused.", registry=registry
        )
        self._unused_s: Final = Counter(
            "edl_idle_gpu_seconds",
            "GPU-seconds for which somebody waited for GPUs that pods of others held unused by consent.",
            registry=registry,
        )
        self._faults: Final = Counter(
            "edl_gpu_report_faults",
            "Reports of nodes on their GPUs that cannot be right; fault: "
            f"{', '.join(ReportFault)}.  A node counts once until its report is sound again.",
            ("fault",),
            registry=registry,
        )
        self._unreported: Final = Gauge(
            "edl_gpu_nodes_unreported",
            "Ready nodes with GPUs of which the leader has no report that counts: their agent is missing or silent.",
            registry=registry,
        )
        for fault in ReportFault:
            self._faults.labels(fault.value)

    def count_given_back(self, gpus: int) -> None:
        """Count GPUs that a pod of others gave back."""
        self._given_back.inc(gpus)

    def count_unused(self, gpus: int, seconds: float) -> None:
        """Count the time for which so many unused GPUs were waited for."""
        self._unused_s.inc(gpus * seconds)

    def set_unreported(self, nodes: int) -> None:
        """Show how many nodes have GPUs and no report; 0 at the end of a term."""
        self._unreported.set(nodes)

    def count_fault(self, fault: ReportFault) -> None:
        """Count a report that has begun to have this fault."""
        self._faults.labels(fault.value).inc()
