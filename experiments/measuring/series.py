"""Step functions over time: a value holds from its instant until the next one's."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """`values[n]` holds from `times_s[n]` on; before the first instant the value is 0."""

    times_s: tuple[float, ...] = ()
    values: tuple[float, ...] = ()

    def at(self, at_s: float) -> float:
        """Return the value at an instant."""
        index = bisect_right(self.times_s, at_s)
        return self.values[index - 1] if index else 0.0

    def integral(self, from_s: float, until_s: float) -> float:
        """Return value times seconds between two instants."""
        total, at_s, value = 0.0, from_s, self.at(from_s)
        for index in range(bisect_right(self.times_s, from_s), len(self.times_s)):
            if self.times_s[index] >= until_s:
                break
            total += value * (self.times_s[index] - at_s)
            at_s, value = self.times_s[index], self.values[index]
        return total + value * (until_s - at_s)

    def mean(self, from_s: float, until_s: float) -> float:
        """Return the mean between two instants; the value itself where they are one."""
        return self.integral(from_s, until_s) / (until_s - from_s) if until_s > from_s else self.at(from_s)

    def first(self, holds: Callable[[float], bool], from_s: float) -> float:
        """Return the first instant from `from_s` on at which the value fulfils a condition; infinity if none does."""
        if holds(self.at(from_s)):
            return from_s
        for index in range(bisect_right(self.times_s, from_s), len(self.times_s)):
            if holds(self.values[index]):
                return self.times_s[index]
        return inf


def make_steps(rows: Iterable[tuple[float, float]], *, zero_s: float = 0.0) -> Steps:
    """Return the step function of (instant, value) rows, relative to `zero_s`, without rows that repeat the value."""
    pairs: list[tuple[float, float]] = []
    for at_s, value in rows:
        if not pairs or pairs[-1][1] != value:
            pairs.append((at_s - zero_s, float(value)))
    return Steps(times_s=tuple(at_s for at_s, _ in pairs), values=tuple(value for _, value in pairs))


def add(parts: Sequence[Steps]) -> Steps:
    """Return the sum of step functions."""
    changes: dict[float, float] = {}
    for part in parts:
        before = 0.0
        for at_s, value in zip(part.times_s, part.values, strict=True):
            changes[at_s] = changes.get(at_s, 0.0) + value - before
            before = value
    times, values, total = [], [], 0.0
    for at_s in sorted(changes):
        total += changes[at_s]
        times.append(at_s)
        values.append(total)
    return Steps(times_s=tuple(times), values=tuple(values))
