"""Virtual time: what will happen, by its instant, and at one instant in the order in which it was planned."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from math import isfinite

from autoscaler.errors import InvariantViolationError

Happening = Callable[[], object]


class Timeline:
    """The clock and the queue of what is planned.  `now_s` never falls."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._planned: list[tuple[float, int, Happening]] = []
        self._count = 0

    def at(self, at_s: float, happening: Happening) -> None:
        """Plan something; an instant that is past means now."""
        if not isfinite(at_s):
            raise InvariantViolationError(f"something is planned at {at_s} s")
        self._count += 1
        heapq.heappush(self._planned, (max(at_s, self.now_s), self._count, happening))

    def after(self, delay_s: float, happening: Happening) -> None:
        """Plan something that long from now."""
        self.at(self.now_s + delay_s, happening)

    def next_at_s(self) -> float | None:
        """The instant of the next happening; None: nothing is planned."""
        return self._planned[0][0] if self._planned else None

    def run_next(self) -> None:
        """Go to the next happening and let it be."""
        at_s, _, happening = heapq.heappop(self._planned)
        self.now_s = at_s
        happening()

    def advance_to(self, at_s: float) -> None:
        """Let time pass in which nothing happens."""
        self.now_s = max(self.now_s, at_s)
