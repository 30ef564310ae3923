"""Virtual time: a clock and a queue of planned events.

Events run in the order of their instants, and those of one instant in the order of planning.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from math import isfinite

from autoscaler.errors import InvariantViolationError

EventCallback = Callable[[], object]


class Timeline:
    """The clock and the event queue.  `now_s` never decreases."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._planned: list[tuple[float, int, EventCallback]] = []
        self._count = 0

    def at(self, at_s: float, event: EventCallback) -> None:
        """Plan an event; an instant in the past means now."""
        if not isfinite(at_s):
            raise InvariantViolationError(f"an event is planned at {at_s} s")
        self._count += 1
        heapq.heappush(self._planned, (max(at_s, self.now_s), self._count, event))

    def after(self, delay_s: float, event: EventCallback) -> None:
        """Plan an event after this delay."""
        self.at(self.now_s + delay_s, event)

    def next_at_s(self) -> float | None:
        """Return the instant of the next event; None if none is planned."""
        return self._planned[0][0] if self._planned else None

    def run_next(self) -> None:
        """Advance to the next event and run it."""
        at_s, _, event = heapq.heappop(self._planned)
        self.now_s = at_s
        event()

    def advance_to(self, at_s: float) -> None:
        """Advance the clock to an instant before the next event."""
        self.now_s = max(self.now_s, at_s)
