"""How long a job still takes at a size that is planned for it: its samples that are left, over its throughput there.

At the size that a job has, its present rate counts. Another size is taken from the curve, scaled by how far the present
rate is off it, so that both agree where they meet. Not here: which size is planned, and where samples and rates come
from (`operator.job.throughput_status`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Final

from autoscaler.throughput.curve import CurveShape, FittedCurve

LONGEST_S: Final = 1e9  # 30 years; what takes longer is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingWork:
    """What is left of a job, and how fast `trainers` and `servers` train it now; a rate of 0: it is not known."""

    samples: float
    samples_per_s: float = 0.0
    trainers: int = 0
    servers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingTime:
    """How long the work takes from now on with `trainers`: `seconds` expected, to two digits.

    `shortest_s` and `longest_s`: by the favourable curve, and as far off on the other side.  All three are equal at the
    size whose rate is known.
    """

    trainers: int
    seconds: float
    shortest_s: float
    longest_s: float


def remaining_time(
    work: RemainingWork, curve: FittedCurve | None, *, trainers: int, servers: int
) -> RemainingTime | None:
    """Return how long the work takes with so many trainers and servers, pauses of resizes not counted.

    None where that is not known: without a trainer, without a rate or a curve of two sizes, or where a number is none.
    """
    if trainers <= 0 or not 0 <= work.samples <= 1e18:
        return None
    if trainers == work.trainers and is_rate(work.samples_per_s):
        expected = favourable = work.samples_per_s
    elif curve is not None and curve.is_known:
        expected, favourable = (
            _rate_at(shape, work, trainers, servers) for shape in (curve.expected, curve.favourable)
        )
    else:
        return None
    if not (is_rate(expected) and is_rate(favourable)):
        return None
    seconds, ratio = work.samples / expected, favourable / expected
    shortest_s, longest_s = sorted((seconds / ratio, seconds * ratio))
    if not (is_rate(ratio) and longest_s <= LONGEST_S):
        return None
    return RemainingTime(
        trainers=trainers,
        seconds=_rounded(seconds),
        shortest_s=_rounded(shortest_s),
        longest_s=_rounded(longest_s),
    )


def is_rate(samples_per_s: float) -> bool:
    """True for a finite number above 0."""
    return isfinite(samples_per_s) and samples_per_s > 0


def _rate_at(shape: CurveShape, work: RemainingWork, trainers: int, servers: int) -> float:
    """Return the throughput of a curve at a size, drawn through the present rate where there is one."""
    planned, present = shape.samples_per_s(trainers, servers), shape.samples_per_s(work.trainers, work.servers)
    return planned * work.samples_per_s / present if is_rate(work.samples_per_s) and is_rate(present) else planned


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.2g}")
