"""Throughput of a job in its status, the setting under which it is measured, and the time that the job still takes.

Pure (ADR 0267).  The points outlive the operator there, and `edl describe` draws them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from autoscaler.clusters.kubernetes.objects.fields import Raw as RawRead
from autoscaler.clusters.kubernetes.objects.fields import parts, text
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.domain import Decision
from autoscaler.jobs.progress import JobProgress
from autoscaler.jobs.throughput_watch import ThroughputWatch, points_in_status, points_of, with_setting
from autoscaler.throughput import FittedCurve
from autoscaler.throughput.remaining_time import RemainingWork, remaining_time

HARDWARE_LABELS: Final = ("nvidia.com/gpu.product", "node.kubernetes.io/instance-type")
"""The first of these that a node has names its hardware."""

LONGEST_SETTING: Final = 128


def setting_of(job: KubeJob, trainers: Iterable[RawRead], labels_of: Mapping[str, Mapping[str, str]]) -> str:
    """Return batch size and hardware of a job as text; points of different texts are never compared.

    `labels_of`: labels by the name of the node. The batch is known if the job's file names it.
    """
    nodes = {text(raw, "spec", "nodeName") for raw in trainers}
    kinds = {kind for name in nodes if (kind := hardware_of(labels_of.get(name, {})))}
    group = job.spec.group
    batch = f"batch {group.global_batch}" if group is not None and group.global_batch else ""
    return ", ".join(filter(None, (batch, " + ".join(sorted(kinds)))))[:LONGEST_SETTING]


def hardware_of(labels: Mapping[str, str]) -> str:
    """Return a node's hardware; empty if its labels do not name it."""
    return next((labels[label] for label in HARDWARE_LABELS if labels.get(label)), "")


def throughput_in_status(status: RawRead) -> ThroughputWatch:
    """Return what an earlier leader measured of the job."""
    return points_in_status(parts(status, "throughput", "points"))


def curve_in_status(status: RawRead, now_unix_s: float) -> FittedCurve | None:
    """Return the curve that the points of the status give now, under the setting that they were last measured with."""
    watch = throughput_in_status(status)
    return with_setting(watch, text(status, "throughput", "setting"), now_unix_s).curve if watch.log.points else None


def throughput_status(watch: ThroughputWatch, worthwhile: int | None) -> dict[str, Any]:
    """Return the part of the status; empty without a point.  `worthwhile`: the size at which growth has stopped."""
    if not watch.log.points:
        return {}
    report: dict[str, Any] = {"points": points_of(watch.log), "setting": watch.setting}
    if watch.curve is not None and watch.curve.is_known:
        shape = watch.curve.expected
        report["curve"] = {
            "work": shape.work,
            "serial": shape.serial,
            "exchange": shape.exchange,
            "overlap": shape.overlap,
            "even": shape.even,
            "rest": shape.rest,
            "error": watch.curve.error,
        }
        if worthwhile is not None:
            report["worthwhile"] = worthwhile
    return report


def remaining_status(progress: JobProgress, curve: FittedCurve | None, decision: Decision) -> dict[str, Any]:
    """Return how long the job takes at the size that is decided, as its status has it; empty: that is not known."""
    if progress.total <= 0:
        return {}
    work = RemainingWork(
        samples=max(0, progress.total - progress.done - progress.quarantined),
        samples_per_s=progress.samples_per_s,
        trainers=progress.training,
        servers=progress.servers,
    )
    found = remaining_time(work, curve, trainers=decision.target, servers=decision.servers_target)
    if found is None:
        return {}
    return {
        "trainers": found.trainers,
        "seconds": found.seconds,
        "shortestSeconds": found.shortest_s,
        "longestSeconds": found.longest_s,
    }
