"""Numbers that a job's script reports by `Session.report`, such as loss and accuracy, as the job's status has them."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Final

from autoscaler.clusters.kubernetes.objects.fields import Raw, part

MOST_METRICS: Final = 16
"""As many as the operator writes into a status; of a document that somebody else wrote, no more are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricView:
    """The last value that was reported of one metric, the mean over the trainers."""

    name: str
    value: float


def reported_metrics(job: Raw) -> tuple[MetricView, ...]:
    """Return the metrics in the order of their names: the first `MOST_METRICS`, without those that are no number."""
    told = sorted(part(job, "status", "progress", "metrics").items())
    numbers = [MetricView(name=name, value=value) for name, value in told if _is_number(value)]
    return tuple(numbers[:MOST_METRICS])


def format_metric(value: float) -> str:
    """A value for people: a status has three digits of it."""
    return f"{value:.6g}"


def job_metrics(job: Raw) -> str:
    """The metrics as `accuracy=0.97, loss=0.12`; empty: none."""
    return ", ".join(f"{one.name}={format_metric(one.value)}" for one in reported_metrics(job))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
