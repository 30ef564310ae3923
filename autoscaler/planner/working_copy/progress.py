"""Progress of a job: what fairness compares under `Fairness.PROGRESS`, in place of what the job takes (ADR 0292).

A job's *part* is its weight among those of all jobs that have one (`parts`); its *fair size* is the number of
trainers that its part of the cluster holds. Its progress is its throughput in relation to that at its fair size: 1 is
as fast as alone on its part. So progress is the inverse of Themis' finish-time fairness while a job runs, and the
speed-up of Pollux.

For comparison progress is told in trainers: as many as would bring it if each worked as one does at the fair size.
Then a job that scales perfectly, or of which nothing is known, has as many as it has trainers, and comes in the order
of weighted dominant shares of trainers.  Servers and masters are no progress and do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from autoscaler.domain import Job, ServerSpec, TrainerSpec
from autoscaler.throughput import CurveShape

LEAST_GAIN: Final = 0.1
"""A further trainer counts as this part of one at the minimum, even if it brings less: else a job that gets no faster
had the least progress for ever, and would take the whole cluster."""

GRAINS: Final = 1 << 20
"""Trainers of progress are compared in this part of one; less is a tie."""

KEPT_CURVES: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressScale:
    """Progress by number of trainers.

    `unit`: the weighted dominant share of one trainer, in the plan's unit of shares.  `speeds`: throughput by size, in
    any unit, from 0 on; empty: perfect scaling.
    """

    unit: int
    fair_size: float
    speeds: Sequence[float] = ()

    def attained(self, size: int) -> int:
        """Return the progress at a size, in the unit of shares times `GRAINS`: strictly rising with the size."""
        if not self.speeds:
            return self.unit * size * GRAINS
        return self.unit * round(self.fair_size * self.relative(size) * GRAINS)

    def relative(self, size: int) -> float:
        """Return the throughput at a size in relation to that at the fair size; 0 where the fair size is 0."""
        fair = self._speed(self.fair_size)
        return self._speed(size) / fair if fair > 0.0 else 0.0

    def _speed(self, size: float) -> float:
        """Return the throughput, between whole sizes on a straight line; a part of a trainer does its part.

        Beyond the job's largest size further trainers would do as those up to it, on average.
        """
        speeds = self.speeds or (0.0, 1.0)
        last = len(speeds) - 1
        if size >= last:
            return speeds[last] * size / last
        below = int(max(0.0, size))
        return speeds[below] + (speeds[below + 1] - speeds[below]) * (max(0.0, size) - below)


def progress_scale(job: Job, unit: int, total_weight: int, share_unit: int) -> ProgressScale:
    """Return a job's scale. `unit`: see there; `total_weight`: of all jobs that have a part."""
    fair_size = share_unit / (unit * total_weight) if unit and total_weight else 0.0
    curve = job.throughput
    is_known = curve is not None and curve.is_known
    speeds = speeds_of(curve.expected, job.trainer, job.servers) if curve is not None and is_known else ()
    return ProgressScale(unit=unit, fair_size=fair_size, speeds=speeds)


@lru_cache(maxsize=KEPT_CURVES)
def speeds_of(curve: CurveShape, spec: TrainerSpec, servers: ServerSpec | None) -> tuple[float, ...]:
    """Return the throughput at each size from 0 to the largest, with at least `LEAST_GAIN` for each trainer."""
    least = LEAST_GAIN * curve.samples_per_s(spec.min_replicas, servers_beside(servers, spec.min_replicas))
    speeds = [0.0]
    for size in range(1, spec.max_replicas + 1):
        speed = curve.samples_per_s(size, servers_beside(servers, size))
        speeds.append(max(speed, speeds[-1] + least / spec.min_replicas))
    return tuple(speeds)


def servers_beside(servers: ServerSpec | None, trainers: int) -> float:
    """Return the servers that a curve takes for so many trainers."""
    return 1.0 if servers is None else servers.count_beside(trainers)
