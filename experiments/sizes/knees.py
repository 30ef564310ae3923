"""Knees of synthetic curves: the size that EDL chooses after so many sizes were seen, beside the true knee.

Four kinds of curves with parameters drawn from a seed: Amdahl, communication-bound, server-bound (the hard knee of a
saturated server), heterogeneous (the later half of the trainers on slower machines). A job starts at its maximum, as in
an empty cluster; then the planner measures it at a quarter, and goes where its fit says. Of its own accord it measures
no more. What is granted here is that the demands of others show the remaining sizes, and those that tell most
(`next_seen`). Each size is seen for a minute, with an error of `NOISE`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from typing import Final

import numpy as np

from autoscaler.domain import Job, JobName, MasterSpec, Resources, Shape, TrainerSpec
from autoscaler.planner.working_copy.job_speed import second_size, worthwhile_size
from autoscaler.throughput import CurveShape, knee_of
from autoscaler.throughput.curve import SpeedAt
from autoscaler.throughput.fit import fit_curve
from autoscaler.throughput.observations import ObservationLog, SizeObservation

KINDS: Final = ("amdahl", "communication", "servers", "heterogeneous")
EACH: Final = 50
SIZES_SEEN: Final = 4
NOISE: Final = 0.01
SLOWER: Final = 0.7  # speed of the later half of a heterogeneous job's trainers

SIZE_LISTS: Final = (
    (1, 2, 4, 8, 16, 32, 64),
    tuple(range(2, 61, 2)),
    tuple(range(1, 17)),
    tuple(range(4, 65, 4)),
    (1, 2, 3, 4, 6, 8, 12, 16),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticJob:
    """A job whose true throughput is known."""

    kind: str
    sizes: Sequence[int]
    speed: SpeedAt
    seed: tuple[int, int]

    def following(self, size: int) -> int | None:
        """Return the next allowed size."""
        at = self.sizes.index(size)
        return self.sizes[at + 1] if at + 1 < len(self.sizes) else None

    def knee(self, speed: SpeedAt, efficiency: float) -> int:
        """Return the knee of a curve among the job's sizes."""
        return knee_of(speed, self.sizes[0], self.following, efficiency)


@dataclass(frozen=True, slots=True, kw_only=True)
class KneeResult:
    """What became of one job: sizes seen, in their order, the size chosen, and how far it is from the true knee."""

    kind: str
    seen: tuple[int, ...]
    chosen: int
    true: int
    steps_off: int


def list_jobs(each: int = EACH) -> list[SyntheticJob]:
    """Return the synthetic jobs."""
    return [make_job(kind, number) for kind in KINDS for number in range(each)]


def make_job(kind: str, number: int) -> SyntheticJob:
    """Return one job; the same number has the same curve."""
    seed = (KINDS.index(kind), number)
    rng = np.random.default_rng(seed)
    sizes = SIZE_LISTS[number % len(SIZE_LISTS)]
    work = float(rng.uniform(0.01, 1.0))

    def power(low: float, high: float) -> float:
        return float(10.0 ** rng.uniform(low, high))

    match kind:
        case "amdahl":
            speed: SpeedAt = CurveShape(work=work, serial=power(-3, -0.5)).samples_per_s
        case "communication":
            speed = CurveShape(work=work, serial=power(-4, -1.5), exchange=power(-5, -2)).samples_per_s
        case "servers":
            speed = CurveShape(work=work, serial=power(-2, -0.3), overlap=8.0).samples_per_s
        case _:
            shape = CurveShape(work=work, serial=power(-3.5, -1.0), exchange=power(-5, -2.5))
            speed = slower_beyond(shape, sizes[len(sizes) // 2])
    return SyntheticJob(kind=kind, sizes=sizes, speed=speed, seed=seed)


def slower_beyond(shape: CurveShape, limit: int) -> Callable[[int], float]:
    """Return a curve whose trainers beyond a number are slower."""

    def speed(size: int) -> float:
        return shape.samples_per_s(size if size <= limit else limit + SLOWER * (size - limit))

    return speed


def find_knee(
    job: SyntheticJob, efficiency: float, *, sizes_seen: int = SIZES_SEEN, noise: float = NOISE
) -> KneeResult:
    """Let EDL see so many sizes of a job, and return the size that it then chooses."""
    rng = np.random.default_rng((*job.seed, 1))
    spec = spec_of(job.sizes, efficiency)
    log, seen = ObservationLog(), list[int]()
    chosen = size = job.sizes[-1]
    while len(seen) < sizes_seen:
        rate = job.speed(size) * exp(noise * float(rng.standard_normal()))
        log = log.add(SizeObservation(trainers=size, samples_per_s=rate, duration_s=60.0, at_s=0.0))
        seen.append(size)
        curve = fit_curve(log.points, 0.0)
        if curve is not None and curve.is_known:
            chosen = worthwhile_size(replace(spec, throughput=curve))
        else:
            chosen = second_size(spec.trainer, size)
        size = next_seen(job.sizes, chosen, seen)
    true = job.knee(job.speed, efficiency)
    off = abs(job.sizes.index(chosen) - job.sizes.index(true))
    return KneeResult(kind=job.kind, seen=tuple(seen), chosen=chosen, true=true, steps_off=off)


def spec_of(sizes: Sequence[int], efficiency: float) -> Job:
    """Return a job as the planner sees it, with these sizes."""
    pod = Shape(requests=Resources(cpu_milli=1_000))
    trainer = TrainerSpec(
        shape=pod, min_replicas=sizes[0], max_replicas=sizes[-1], sizes=tuple(sizes), efficiency=efficiency
    )
    return Job(name=JobName("j"), trainer=trainer, master=MasterSpec(shape=pod))


def next_seen(sizes: Sequence[int], chosen: int, seen: Sequence[int]) -> int:
    """Return the size that is seen next: the chosen one, if neither it nor a neighbour was seen.

    Else the size in the widest gap beside it, as a ratio: that of a neighbour differs by less than the error.
    """
    places, at = sorted({0, *map(sizes.index, seen)}), sizes.index(chosen)
    if all(abs(one - at) > 1 for one in map(sizes.index, seen)):
        return chosen
    low = max([one for one in places if one < at - 1], default=0)
    high = min([one for one in places if one > at + 1], default=len(sizes) - 1)
    unseen = [one for one in sizes[low : high + 1] if one not in seen] or [one for one in sizes if one not in seen]

    def gap(size: int) -> float:
        return min(abs(log(size / one)) for one in seen)

    return max(unseen, key=lambda size: (round(gap(size), 6), -abs(size - chosen)), default=chosen)
