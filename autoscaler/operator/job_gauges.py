"""Gauges of jobs, each with the labels of its job; a value that is not known has no series.

A gauge that keeps its last value would show a job that trains after it was suspended, and an instant of 0 would have an
age of 56 years.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from autoscaler.domain import JobName
from autoscaler.jobs.progress import JobProgress
from autoscaler.jobs.restart_policy import SILENCE_LIMIT_S
from autoscaler.jobs.throughput_watch import ThroughputWatch

JOB: Final = ("namespace", "job")
LONGEST_PAUSE_S: Final = 1e6

INSTANTS: Final[Mapping[str, str]] = {
    "edl_job_last_checkpoint_timestamp_seconds": "Unix time of the last commit.",
    "edl_job_uncommitted_since_timestamp_seconds": (
        "Unix time since which a job's training is in no checkpoint: its last commit, or a later start or resume."
    ),
    "edl_job_waiting_since_timestamp_seconds": (
        "Unix time since which an active job has not started; its condition Admitted has the reason."
    ),
}
TRAINING: Final[Mapping[str, str]] = {
    "edl_job_samples_per_second": "Samples per second of all trainers, as the job's master says.",
    "edl_job_efficiency_ratio": (
        "Throughput for each trainer at the present size, in parts of what one trainer alone would have, by the job's "
        "fitted curve."
    ),
    "edl_job_progress_ratio": "Part of all samples of all epochs that is trained; 1: all.",
    "edl_job_waiting_ratio": (
        "Part of their time that trainers wait: for parameter servers, or in a group for their data."
    ),
    "edl_job_resize_pause_seconds": "How long the last change of a group's members stopped its training.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFigures:
    """What is known of a job's training; None: not known, or none takes place."""

    samples_per_s: float | None = None
    efficiency: float | None = None
    progress: float | None = None
    waiting: float | None = None
    resize_pause_s: float | None = None


def training_figures(
    progress: JobProgress | None, throughput: ThroughputWatch, *, is_active: bool, silent_s: float
) -> TrainingFigures:
    """Return the figures of a job by its master's last answer, which is `silent_s` old.

    A job that is not active trains nothing.  After `SILENCE_LIMIT_S` nobody knows how it trains, only how far it was.
    """
    if progress is None:
        return TrainingFigures()
    done = progress.done / progress.total if progress.total else None
    if not is_active or silent_s >= SILENCE_LIMIT_S:
        return TrainingFigures(progress=done)
    return TrainingFigures(
        samples_per_s=progress.samples_per_s,
        efficiency=_efficiency(throughput, progress.training, progress.servers),
        progress=done,
        waiting=progress.waiting_share,
        resize_pause_s=progress.resize_pause_s if 0 < progress.resize_pause_s < LONGEST_PAUSE_S else None,
    )


def _efficiency(throughput: ThroughputWatch, trainers: int, servers: int) -> float | None:
    if throughput.curve is None or not throughput.curve.is_known or trainers < 1:
        return None
    shape = throughput.curve.expected
    return shape.samples_per_s(trainers, servers) / (trainers * shape.samples_per_s(1, servers))


class JobGauges:
    """Gauges with the labels of a job alone, by the metric's name."""

    def __init__(self, texts: Mapping[str, str], registry: CollectorRegistry) -> None:
        self._gauges: Final = {name: Gauge(name, text, JOB, registry=registry) for name, text in texts.items()}

    def set(self, job: JobName, values: Mapping[str, float | None]) -> None:
        """Show these values of a job; None takes the series away."""
        namespace, _, name = job.partition("/")
        for metric, value in values.items():
            if value is not None:
                self._gauges[metric].labels(namespace, name).set(value)
            else:
                with suppress(KeyError):  # never shown
                    self._gauges[metric].remove(namespace, name)

    def forget(self, job: JobName) -> None:
        """Take away all series of a job."""
        self.set(job, dict.fromkeys(self._gauges))
