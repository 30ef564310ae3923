"""Observations of a job's throughput: one point for each size, few, fading, and refused where they cannot be true.

A point is the mean over the time at one number of trainers and servers. Points of another setting (batch size, kind of
hardware) are kept apart and never mixed into one fit. Nothing here knows where points come from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from typing import Final

MOST_POINTS: Final = 12  # of one setting: more sizes say nothing new about three parameters
MOST_SETTINGS: Final = 3
LARGEST_SIZE: Final = 1_000_000
FASTEST: Final = 1e12  # samples a second
LONGEST_S: Final = 3_600.0  # more time at one size does not make a point surer: the job itself drifts
WILD: Final = 20.0
"""A point is refused if one of its trainers would be so many times faster or slower than those of every other point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeObservation:
    """Mean throughput at one size.  `at_s`: when it was last seen, in Unix time."""

    trainers: int
    samples_per_s: float
    duration_s: float
    at_s: float
    servers: int = 0
    setting: str = ""  # batch size and hardware, as text; points of different settings are never compared

    @property
    def is_sound(self) -> bool:
        """True if the numbers can be true."""
        numbers = (self.samples_per_s, self.duration_s, self.at_s)
        return (
            all(map(isfinite, numbers))
            and 1 <= self.trainers <= LARGEST_SIZE
            and 0 <= self.servers <= LARGEST_SIZE
            and 0 < self.samples_per_s <= FASTEST
            and self.duration_s > 0
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationLog:
    """The points of one job, newest last: at most `MOST_POINTS` of each of the `MOST_SETTINGS` last settings."""

    points: tuple[SizeObservation, ...] = ()

    def of_setting(self, setting: str) -> tuple[SizeObservation, ...]:
        """Return the points of one setting."""
        return tuple(point for point in self.points if point.setting == setting)

    def add(self, point: SizeObservation) -> ObservationLog:
        """Return the log with a point, which replaces the one of its size; unchanged if the point cannot be true."""
        if not point.is_sound or self._is_wild(point):
            return self
        kept = [one for one in self.points if not is_same_size(one, point)]
        kept.append(replace(point, duration_s=min(point.duration_s, LONGEST_S)))
        settings = list(dict.fromkeys(one.setting for one in reversed(kept)))[:MOST_SETTINGS]
        newest = [one for setting in settings for one in [p for p in kept if p.setting == setting][-MOST_POINTS:]]
        chosen = set(newest)
        return ObservationLog(points=tuple(one for one in kept if one in chosen))

    def _is_wild(self, point: SizeObservation) -> bool:
        others = [one for one in self.of_setting(point.setting) if not is_same_size(one, point)]
        of_one = point.samples_per_s / point.trainers
        ratios = [of_one * one.trainers / one.samples_per_s for one in others]
        # a job that stopped scaling may well fall by the ratio of its sizes
        return bool(ratios) and all(
            ratio > WILD or ratio * max(1.0, point.trainers / one.trainers) < 1 / WILD
            for ratio, one in zip(ratios, others, strict=True)
        )


def is_same_size(one: SizeObservation, other: SizeObservation) -> bool:
    """True if both were seen at the same number of trainers and servers, in the same setting."""
    return (one.trainers, one.servers, one.setting) == (other.trainers, other.servers, other.setting)
