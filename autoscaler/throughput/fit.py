"""The fit: from a few observed sizes to a curve, with its uncertainty.

Bounded least squares on a grid. For every shape (`serial`, `exchange`, `overlap`) of a fixed grid the best `work` is
the weighted mean of the residuals, in logarithms. Each shape's probability follows from what is left, with the heavy
tails of Student's t, so that one wrong point moves little. A grid of few parameters costs milliseconds, finds no
local optimum, gives the same answer everywhere, and yields the spread of what is predicted along with the fit. Before
anything is seen perfect scaling is likeliest, as in Pollux: what is unknown is tried. Beside these shapes stand those
whose later trainers are slower (`EVEN`, `REST`), less likely beforehand, on a coarser grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from autoscaler.throughput.curve import CurveShape, FittedCurve
from autoscaler.throughput.observations import SizeObservation

GridArray = npt.NDArray[np.float64]

NOISE: Final = 0.01  # relative error of a long observation: what the model cannot express
NOISE_OF_SECOND: Final = 0.06  # relative error of one second's throughput, which falls with the root of the time
TAILS: Final = 4.0  # degrees of freedom of Student's t
HALF_LIFE_S: Final = 4 * 3_600.0  # a point counts half after so long: data, learning phase and neighbours change
FAVOURABLE: Final = 0.8
"""The favourable curve is the one at this part of the probability, from the curve that gains least to the best."""

SERIAL: Final = (0.0, *np.geomspace(1e-4, 4.0, 40).tolist())
EXCHANGE: Final = (0.0, *np.geomspace(1e-6, 0.5, 25).tolist())
OVERLAPS: Final = (1.0, 2.0, 4.0, 16.0)  # the last one is the hard knee of a saturated server
EVEN: Final = tuple(eighth / 8 for eighth in range(1, 8))  # where later trainers may begin, of the largest size seen
REST: Final = tuple(tenth / 10 for tenth in range(3, 10))
UNEVEN: Final = 0.25
"""Probability beforehand that a job's later trainers are slower."""

UNEVEN_SERIAL: Final = (0.0, *np.geomspace(1e-4, 1.0, 20).tolist())
UNEVEN_EXCHANGE: Final = (0.0, *np.geomspace(1e-6, 0.1, 10).tolist())
UNLIKELY: Final = 10.0  # shapes that are so much less likely than the likeliest, as a logarithm, are left out
LADDER: Final = 16  # sizes at which shapes are compared
SIMPLE: Final = 4.0  # how much likelier than each of the others a part that is not there is, beforehand: `Grid.prior`


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """All shapes, one a row, and the logarithm of each one's probability before anything is seen.

    `even` is relative to the largest size that was seen.
    """

    serial: GridArray
    exchange: GridArray
    overlap: GridArray
    even: GridArray
    rest: GridArray
    prior: GridArray

    def of(self, rows: npt.NDArray[np.bool_]) -> Grid:
        """Return some of the rows."""
        return Grid(**{axis.name: getattr(self, axis.name)[rows] for axis in fields(self)})


@cache
def grid() -> Grid:
    """Return the grid.  Parts that are absent are as likely as `SIMPLE` of the others together."""
    alike = rows_of((SERIAL, EXCHANGE, OVERLAPS, (0.0,), (1.0,)), 1.0 - UNEVEN)
    uneven = rows_of((UNEVEN_SERIAL, UNEVEN_EXCHANGE, (1.0,), EVEN, REST), UNEVEN)
    serial, exchange, overlap, even, rest, prior = np.concatenate((alike, uneven), axis=1)
    return Grid(serial=serial, exchange=exchange, overlap=overlap, even=even, rest=rest, prior=prior)


def rows_of(axes: Sequence[Sequence[float]], probability: float) -> GridArray:
    """Return all combinations, and as the last row their prior, which adds up to the probability."""
    columns = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")])
    serial, exchange, overlap = columns[:3]
    weights = SIMPLE ** ((serial == 0).astype(float) + (exchange == 0) + 0.5 * (overlap == 1))
    return np.vstack((columns, np.log(weights * (probability / weights.sum()))))


def fit_curve(points: Sequence[SizeObservation], now_s: float) -> FittedCurve | None:
    """Return the curve of sound points of one setting; None without any.  `now_s`: Unix time, by which points fade."""
    points = sorted((one for one in points if one.is_sound), key=lambda one: (one.trainers, one.servers, one.at_s))
    if not points:
        return None
    trainers = np.array([one.trainers for one in points], dtype=float)
    shapes = replace(grid(), even=grid().even * trainers[-1])
    servers = np.array([max(1, one.servers) for one in points], dtype=float)
    seconds = np.log([1.0 / one.samples_per_s for one in points])
    errors = np.array([error_of(one, now_s) for one in points])
    residuals = seconds - np.log(parts_of(shapes, trainers, servers))
    log_work, fits = weigh(residuals, errors)
    log_weights = fits + shapes.prior
    likely = log_weights > log_weights.max() - UNLIKELY
    shapes, log_work, log_weights = shapes.of(likely), log_work[likely], log_weights[likely]
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    largest, its_servers = trainers[-1:], servers[-1:]
    gains = (parts_of(shapes, largest, its_servers) / parts_of(shapes, 2 * largest, its_servers))[:, 0]
    order = np.lexsort((shapes.rest, shapes.even, shapes.overlap, shapes.exchange, shapes.serial, gains))
    reached = np.cumsum(weights[order])

    def shape_at(part: float) -> CurveShape:
        row = int(order[min(int(np.searchsorted(reached, part)), len(order) - 1)])
        near = np.abs(gains - gains[row]) <= 0.02 * gains[row]
        return shape_of(shapes, likeliest(log_weights, near), log_work)

    mean = float(weights @ gains)
    spread = float(np.sqrt(max(0.0, float(weights @ (gains - mean) ** 2)))) / mean
    expected = shape_of(shapes, nearest_to_mean(shapes, weights, float(largest[0]), float(its_servers[0])), log_work)
    sizes = tuple(sorted({one.trainers for one in points}))
    return FittedCurve(
        expected=expected,
        favourable=shape_at(FAVOURABLE),
        sizes=sizes,
        error=float(f"{spread:.2g}"),
    )


def error_of(point: SizeObservation, now_s: float) -> float:
    """Return a point's relative error, which its age makes larger without bound."""
    age_s = max(0.0, now_s - point.at_s)
    of_time = NOISE_OF_SECOND**2 / max(1.0, point.duration_s)
    return float(np.sqrt((NOISE**2 + of_time) * 2.0 ** min(60.0, age_s / HALF_LIFE_S)))


def parts_of(shapes: Grid, trainers: GridArray, servers: GridArray) -> GridArray:
    """Return y / work of the model: one row for each shape, one column for each point."""
    even = shapes.even[:, None]
    counts = np.where(trainers <= even, trainers, even + shapes.rest[:, None] * (trainers - even))
    divided, shared = 1.0 / counts, shapes.serial[:, None] / servers + shapes.exchange[:, None] * counts
    total: GridArray = divided + shared
    overlaps = shapes.overlap > 1.0
    k = shapes.overlap[overlaps, None]
    total[overlaps] = (divided[overlaps] ** k + shared[overlaps] ** k) ** (1.0 / k)
    return total


def weigh(residuals: GridArray, errors: GridArray) -> tuple[GridArray, GridArray]:
    """Return for each shape its best log(work), and the log-likelihood that remains."""
    weights = np.broadcast_to(errors**-2.0, residuals.shape)
    work = (residuals * weights).sum(axis=1) / weights.sum(axis=1)
    for _ in range(2):  # a point far off counts less
        squares = ((residuals - work[:, None]) / errors) ** 2
        robust = errors**-2.0 * (TAILS + 1) / (TAILS + squares)
        work = (residuals * robust).sum(axis=1) / robust.sum(axis=1)
    squares = ((residuals - work[:, None]) / errors) ** 2
    return work, -0.5 * (TAILS + 1) * np.log1p(squares / TAILS).sum(axis=1)


def nearest_to_mean(shapes: Grid, weights: GridArray, largest: float, servers: float) -> int:
    """Return the row whose trainers add, from one to the largest size, most nearly what they add in all shapes' mean.

    No single shape is likely where four points leave five parameters open, but most of the likely ones bend alike.
    """
    trainers = np.geomspace(1.0, max(2.0, largest), LADDER)
    speed_ups = 1.0 / parts_of(shapes, trainers, np.full(LADDER, servers))
    gains = np.diff(speed_ups, axis=1) / np.diff(trainers) / speed_ups[:, :1]
    return int(np.argmin(((gains - weights @ gains) ** 2).sum(axis=1)))


def likeliest(log_weights: GridArray, among: npt.NDArray[np.bool_]) -> int:
    """Return the likeliest of some rows, the first of equals."""
    return int(np.argmax(np.where(among, log_weights, -np.inf)))


def shape_of(shapes: Grid, row: int, log_work: GridArray) -> CurveShape:
    """Return a row as a curve, in four digits: a curve that hardly changes stays the same value."""
    values = (float(np.exp(log_work[row])), float(shapes.serial[row]), float(shapes.exchange[row]))
    work, serial, exchange = (float(f"{value:.4g}") for value in values)
    overlap, even, rest = (float(axis[row]) for axis in (shapes.overlap, shapes.even, shapes.rest))
    return CurveShape(work=work, serial=serial, exchange=exchange, overlap=overlap, even=even, rest=rest)
