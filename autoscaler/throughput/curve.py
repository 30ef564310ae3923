"""The throughput model, and the knee of a curve.

With n trainers and p parameter servers (1 where a job has none) a sample takes

    y(n, p) = (f(n)^k + g(n, p)^k)^(1/k)    f(n) = work / n    g(n, p) = work x (serial / p + exchange x n)

seconds, so a job trains 1 / y samples a second. `serial` is what more trainers do not divide: Amdahl's serial part,
the fixed part of an all-reduce, or the exchange with servers (divided by more servers, as in Optimus, EuroSys 2018).
`exchange` is communication that grows with the trainers. With `overlap` k = 1 the parts follow each other. With larger
k they overlap, as in Pollux (OSDI 2021, equation 11), until with k = 4 nearly the larger of the two alone counts.

Trainers beyond `even` may be slower: they stand on other machines, or share what the first ones had alone. Each of them
counts as `rest` of a trainer, and n is what all of them make.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Final

from autoscaler.errors import InvalidSpecError

MOST_OVERLAP: Final = 16.0
"""Beyond it powers of small times are no numbers any more."""

MOST_STEPS: Final = 100_000
"""Sizes walked through in search of a knee; far above what a job can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveShape:
    """One curve.  `work`: seconds of one trainer per sample, above 0; the other parts are relative to it.

    Raises:
        InvalidSpecError: a part is no number, is negative, `work` or `overlap` is too small, or `rest` not 0 to 1.
    """

    work: float
    serial: float = 0.0
    exchange: float = 0.0
    overlap: float = 1.0
    even: float = 0.0  # so many trainers are equally fast
    rest: float = 1.0  # speed of each further one, relative to them; 1: all are the same

    def __post_init__(self) -> None:
        parts = (self.work, self.serial, self.exchange, self.overlap, self.even, self.rest)
        is_shape = 1 <= self.overlap <= MOST_OVERLAP and 0 < self.rest <= 1
        if not (all(map(isfinite, parts)) and self.work > 0 and min(parts) >= 0 and is_shape):
            hint = f"work above 0; serial, exchange and even at least 0; overlap 1 to {MOST_OVERLAP:g}; rest up to 1"
            raise InvalidSpecError("throughput", f"is {self}", hint)

    def samples_per_s(self, trainers: float, servers: float = 1.0) -> float:
        """Return the job's throughput; 0 without a trainer."""
        if trainers <= 0:
            return 0.0
        count = trainers if trainers <= self.even else self.even + self.rest * (trainers - self.even)
        divided, shared = 1.0 / count, self.serial / max(1.0, servers) + self.exchange * count
        k = self.overlap
        parts = divided + shared if k == 1.0 else (divided**k + shared**k) ** (1.0 / k)
        return 1.0 / (self.work * parts)


EXPLORED_SIZES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedCurve:
    """A fit: the expected curve, and the most favourable one that the observations leave likely (`fit.FAVOURABLE`).

    How far the two are apart is what is not known.  `sizes`: the observed numbers of trainers, ascending.
    """

    expected: CurveShape
    favourable: CurveShape
    sizes: tuple[int, ...]
    error: float = 0.0  # spread of the predicted gain of twice the largest size, relative

    @property
    def is_known(self) -> bool:
        """True if the curve says anything about other sizes: two have been observed."""
        return len(self.sizes) > 1

    @property
    def tried(self) -> CurveShape:
        """The curve that decisions to stop or to shrink ask: what is not known is tried while room is free.

        From EXPLORED_SIZES on the expected one: what seemed likely has been tried by then, and a bias would remain.
        """
        return self.expected if len(self.sizes) >= EXPLORED_SIZES else self.favourable


SpeedAt = Callable[[int], float]
"""Samples per second by number of trainers."""


def marginal_gain(speed: SpeedAt, smallest: int, size: int, following: int) -> float:
    """Return what each trainer from `size` to `following` adds, in trainers as the smallest size has them.

    1 is perfect scaling; 0 or less adds nothing. The smallest size is the reference, since it is the first that any
    job is seen at. A speed of 0 gives 1: nothing is known against growth.
    """
    of_one = speed(smallest) / smallest
    return (speed(following) - speed(size)) / ((following - size) * of_one) if of_one > 0 else 1.0


def knee_of(speed: SpeedAt, smallest: int, next_size: Callable[[int], int | None], efficiency: float) -> int:
    """Return the largest size up to which each step brings at least `efficiency` of a trainer for each trainer."""
    size = smallest
    for _ in range(MOST_STEPS):
        following = next_size(size)
        if following is None or marginal_gain(speed, smallest, size, following) < efficiency:
            break
        size = following
    return size
