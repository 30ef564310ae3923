"""Training model: speed of a job by its trainers and servers, and the cost of losing one.

Samples are counted as the checkpoint would (M1): those in flight on a lost trainer, or since the last checkpoint on a
lost server, are subtracted, counted as lost, and trained again later.  A pod that was drained loses nothing (M7).
"""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.errors import InvalidSpecError
from autoscaler.throughput import CurveShape


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedCurve:
    """Step time of one trainer: fixed + w / p x exchange + w x per_trainer + p x per_server (w trainers, p servers).

    The asynchronous speed model of Optimus (Peng et al., EuroSys 2018, equation 3): with few servers the exchange
    saturates, with many of either the step grows slowly.  Without servers w / p is 1.  The defaults (20 samples/s
    per trainer alone, half of it at ten trainers per server) are assumed, not measured.
    """

    batch_samples: int = 32
    fixed_s: float = 1.4
    exchange_s: float = 0.16
    per_trainer_s: float = 0.001
    per_server_s: float = 0.001

    def __post_init__(self) -> None:
        terms = (self.exchange_s, self.per_trainer_s, self.per_server_s)
        if self.batch_samples < 1 or not self.fixed_s > 0 or not all(term >= 0 for term in terms):
            raise InvalidSpecError("work.curve", f"is {self}", "batch and fixed_s above 0, the other terms at least 0")

    def samples_per_s(self, trainers: int, servers: int) -> float:
        """Return the job's speed; 0 without a trainer."""
        if trainers == 0:
            return 0.0
        load = trainers / servers if servers else 1.0
        step_s = self.fixed_s + load * self.exchange_s + trainers * self.per_trainer_s + servers * self.per_server_s
        return trainers * self.batch_samples / step_s


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingWork:
    """The work of a job.  `in_flight_s`: seconds of work in flight on a trainer, lost with it.

    `resize_pause_s`: all trainers stand still for so long when one comes or goes, as in a group.
    """

    curve: SpeedCurve | CurveShape = SpeedCurve()
    resize_pause_s: float = 0.0
    samples_total: float | None = None  # then the job ends; None: it trains until it is deleted
    in_flight_s: float = 5.0  # half a lease of 10 s
    checkpoint_every_s: float = 60.0

    def __post_init__(self) -> None:
        if not self.resize_pause_s >= 0:
            raise InvalidSpecError("work.resize_pause_s", f"is {self.resize_pause_s}", "at least 0")
        if not (self.in_flight_s >= 0 and self.checkpoint_every_s > 0):
            raise InvalidSpecError("work", f"is {self}", "in_flight_s at least 0, checkpoint_every_s above 0")
        if self.samples_total is not None and not self.samples_total > 0:
            raise InvalidSpecError("work.samples_total", f"is {self.samples_total}", "above 0, or nothing")


class TrainingProgress:
    """Samples of one job: `trained` are in its next checkpoint, `lost` were trained in vain."""

    def __init__(self, work: TrainingWork) -> None:
        self.work = work
        self.trained = 0.0
        self.lost = 0.0
        self.samples_per_s = 0.0
        self.first_trained_at_s: float | None = None
        self.frozen_until_s = 0.0
        self._counted_s = 0.0

    def count(self, now_s: float) -> None:
        """Add what was trained since the last count."""
        since_s = max(self._counted_s, self.frozen_until_s)
        self.trained += self.samples_per_s * max(0.0, now_s - since_s)
        self._counted_s = now_s

    def set_speed(self, samples_per_s: float, now_s: float) -> None:
        """Train at this speed from now on."""
        self.count(now_s)
        self.samples_per_s = samples_per_s
        if samples_per_s and self.first_trained_at_s is None:
            self.first_trained_at_s = now_s

    def freeze(self, until_s: float, now_s: float) -> None:
        """Train nothing until this instant, while state moves."""
        self.count(now_s)
        self.frozen_until_s = max(self.frozen_until_s, until_s)

    def lose(self, samples: float, now_s: float) -> None:
        """Subtract the samples that a lost pod had not handed in."""
        self.count(now_s)
        lost = min(samples, self.trained)
        self.trained -= lost
        self.lost += lost

    def since_checkpoint(self, now_s: float) -> float:
        """Return the samples since the last checkpoint, at the current speed."""
        if self.first_trained_at_s is None:
            return 0.0
        return self.samples_per_s * ((now_s - self.first_trained_at_s) % self.work.checkpoint_every_s)

    def done_at_s(self, now_s: float) -> float | None:
        """Return when all samples are trained at this speed; None: never."""
        if self.work.samples_total is None or not self.samples_per_s:
            return None
        start_s = max(now_s, self.frozen_until_s)
        return start_s + max(0.0, self.work.samples_total - self.trained) / self.samples_per_s
