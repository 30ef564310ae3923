"""Virtual time: what is due runs in order of its instant, and in the order in which it was asked for."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count


class VirtualClock:
    def __init__(self) -> None:
        self.now_s = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """The action runs once, `delay_s` seconds from now."""
        heapq.heappush(self._due, (self.now_s + delay_s, next(self._numbers), action))

    def run_until(self, end_s: float) -> None:
        """Everything due until then has run, also what that asked for."""
        while self._due and self._due[0][0] <= end_s:
            self.run_next()
        self.now_s = end_s

    def run_next(self) -> None:
        """Time goes on to what is due next, and that has run.  Raises IndexError where nothing will happen any more."""
        self.now_s, _, action = heapq.heappop(self._due)
        action()
