"""Reports out of samples: verdicts and owners of the last, and how often each GPU was busy since the report before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autoscaler.domain.cluster import NodeName, PodName
from autoscaler.domain.gpu_reports import (
    IDLE_VERDICTS,
    LONGEST_MODEL,
    LONGEST_REASON,
    MOST_GPUS,
    MOST_PODS,
    MOST_WATTS,
    GpuReport,
    GpuVerdict,
    NodeGpuReport,
)
from autoscaler.gpus.agent.gpu_metrics import device_name
from autoscaler.gpus.agent.node_agent import NodeSample
from autoscaler.gpus.pod_verdicts import PodVerdict
from autoscaler.gpus.sample_outcomes import SampleOutcome
from autoscaler.gpus.verdicts import DeviceVerdict


class SampleReports:
    """Makes reports of one node.  Nothing grows: two numbers a GPU."""

    def __init__(self, node: NodeName) -> None:
        self.node = node
        self._counts: dict[str, tuple[int, int]] = {}  # samples in which somebody computed, and all, by UUID

    def add(self, sample: NodeSample, at_s: float) -> NodeGpuReport:
        """The report after this sample of Unix time `at_s`; of more GPUs than a report may have only the first."""
        counts = {}
        for one in sample.devices:
            busy, samples = self._counts.get(one.reading.uuid, (0, 0))
            is_busy = one.outcome is SampleOutcome.WORKING
            is_told = is_busy or one.outcome is SampleOutcome.LOW
            counts[one.reading.uuid] = (busy + is_busy, samples + is_told)
        self._counts = counts
        pods: dict[str, list[PodName]] = {}
        for use in sample.pods:
            pods.setdefault(use.device.reading.uuid, []).append(PodName(str(use.pod)))
        gpus = tuple(
            _gpu_report(
                _as_its_pods(one, sample.pods),
                tuple(sorted(pods.get(one.reading.uuid, ()))),
                *counts[one.reading.uuid],
                at_s,
            )
            for one in sample.devices[:MOST_GPUS]
        )
        return NodeGpuReport(node=self.node, gpus=gpus, reported_at_s=at_s)

    def begin_anew(self) -> None:
        """Count from here: the last report was written."""
        self._counts.clear()


def _as_its_pods(one: DeviceVerdict, uses: Sequence[PodVerdict]) -> DeviceVerdict:
    """The verdict, or active if it is idle and that of one of its pods is not: a report says one thing of all."""
    if one.verdict not in IDLE_VERDICTS:
        return one
    mine = (use for use in uses if use.device.reading.uuid == one.reading.uuid)
    doubt = next((use for use in mine if use.verdict not in IDLE_VERDICTS), None)
    return one if doubt is None else replace(one, verdict=GpuVerdict.ACTIVE, reason=doubt.reason)


def _gpu_report(one: DeviceVerdict, pods: tuple[PodName, ...], busy: int, samples: int, at_s: float) -> GpuReport:
    verdict, reason = one.verdict, one.reason
    if len(pods) > MOST_PODS:
        verdict, reason, pods = GpuVerdict.UNKNOWN, f"{len(pods)} pods share it, more than {MOST_PODS}", ()
    is_idle = verdict in IDLE_VERDICTS
    return GpuReport(
        uuid=one.reading.uuid,
        model=_printable(one.reading.model, LONGEST_MODEL),
        name=device_name(one.reading),
        verdict=verdict,
        low_since_s=max(0.0, at_s - one.low_s) if is_idle else None,
        pods=pods,
        reason=_printable(reason, LONGEST_REASON),
        busy_ratio=busy / samples if samples else None,
        watts=None if one.watts is None else min(one.watts, MOST_WATTS),
    )


def _printable(text: str, most: int) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text[:most])
