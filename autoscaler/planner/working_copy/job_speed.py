"""Worth of a job's sizes: its knee, and its speed in trainers, from the throughput that was observed (ADR 0266).

Speed is told in trainers as the job has them at its minimum: perfect scaling makes n trainers worth n. A job of which
nothing is known scales perfectly, so that nothing changes for it.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Final

from autoscaler.domain import Job, ServerSpec, TrainerSpec
from autoscaler.throughput import CurveShape, knee_of, marginal_gain

KEPT_KNEES: Final = 4096
FARTHEST: Final = 4
"""A curve is believed down to this part of the smallest size that was seen: large sizes alone, where a job is
saturated, say little about what one trainer does."""


def worthwhile_size(job: Job) -> int:
    """Return the largest size whose steps all bring what `trainer.efficiency` asks for; the ceiling if not known.

    `FittedCurve.tried` is asked: a size that may pay is tried while there is room for it.
    """
    curve, spec = job.throughput, job.trainer
    if not spec.efficiency or spec.pinned_replicas or curve is None or not curve.is_known:
        return spec.ceiling
    return max(knee(curve.tried, spec, job.servers), spec.largest_allowed(curve.sizes[0] // FARTHEST))


def second_size(spec: TrainerSpec, size: int) -> int:
    """Return where a job that was seen at one size only is measured: as far below it as its curve will be believed."""
    return spec.largest_allowed(size // FARTHEST)


@lru_cache(maxsize=KEPT_KNEES)
def knee(curve: CurveShape, spec: TrainerSpec, servers: ServerSpec | None) -> int:
    """Return the knee of a curve; a job is looked at anew with each of its pods, and its curve stays."""

    def speed(size: int) -> float:
        return curve.samples_per_s(size, 1.0 if servers is None else servers.count_beside(size))

    return knee_of(speed, spec.min_replicas, spec.next_size, spec.efficiency)


def added_by(job: Job, curve: CurveShape, size: int, following: int) -> float:
    """Return what each trainer between two sizes adds, in trainers of the minimum."""
    return marginal_gain(partial(job.samples_per_s, curve), job.trainer.min_replicas, size, following)


def worth_of(job: Job, size: int) -> float:
    """Return the job's speed at a size, in trainers of the minimum; the size itself while its curve is not known."""
    curve = job.throughput
    if curve is None or not curve.is_known:
        return float(size)
    of_one = job.samples_per_s(curve.expected, job.trainer.min_replicas) / job.trainer.min_replicas
    return job.samples_per_s(curve.expected, size) / of_one if of_one > 0 else float(size)
