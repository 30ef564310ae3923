"""Answers of an API server that are kept for a while, and how many questions it may be asked.  Pure.

Both are bounded, so that nobody who sends tokens can fill the operator's memory, or have it ask all the time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class KeptAnswer(Generic[V]):
    """An answer that may be None, and until when it holds."""

    value: V
    until_s: float


class ReviewCache(Generic[K, V]):
    """At most `most` answers; those not asked for longest go first."""

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._answers: OrderedDict[K, KeptAnswer[V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: K, now_s: float) -> KeptAnswer[V] | None:
        """Return the answer that holds now; None without one."""
        found = self._answers.get(key)
        if found is None:
            return None
        if now_s >= found.until_s:
            del self._answers[key]
            return None
        self._answers.move_to_end(key)
        return found

    def put(self, key: K, value: V, *, until_s: float) -> None:
        """Keep an answer."""
        self._answers[key] = KeptAnswer(value, until_s)
        self._answers.move_to_end(key)
        while len(self._answers) > self._most:
            self._answers.popitem(last=False)


class ReviewBudget:
    """Budget of questions: `per_s` on average, `burst` at once, none that waits longer than `longest_wait_s`."""

    def __init__(self, *, per_s: float, burst: int, longest_wait_s: float) -> None:
        self._per_s = per_s
        self._burst_s = burst / per_s
        self._longest_wait_s = longest_wait_s
        self._spent_until_s = float("-inf")  # when the budget will be whole again, but for the burst

    def take(self, now_s: float) -> float | None:
        """Return how long the next question waits, and count it; None, with nothing counted, if it may not be asked."""
        from_s = max(self._spent_until_s, now_s - self._burst_s)
        wait_s = max(0.0, from_s + 1 / self._per_s - now_s)
        if wait_s > self._longest_wait_s:
            return None
        self._spent_until_s = from_s + 1 / self._per_s
        return wait_s
