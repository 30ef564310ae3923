"""Somebody is called when a deadline passes: whoever waits in the kernel cannot look at a clock.

A `threading.Timer` is a thread for each deadline, and starting one costs more than what is mostly guarded by it.  Here
one thread is kept for the next deadline, and ends by itself when none has come for a while.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_IDLE_S: Final = 10.0


class Alarm:
    """For one deadline at a time."""

    def __init__(self, ring: Callable[[], None]) -> None:
        """`ring` is called in a thread of its own; it may not block, nor use this alarm."""
        self._ring = ring
        self._changed = threading.Condition()
        self._due_s = math.inf  # the deadline
        self._wakes_s: float | None = None  # when the thread looks again; None: there is none

    @contextmanager
    def at(self, due_s: float) -> Iterator[None]:
        """Rings once if the block is not left by then (monotonic clock), and not afterwards."""
        with self._changed:
            self._due_s = due_s
            if self._wakes_s is None:
                threading.Thread(target=self._watch, name="alarm", daemon=True).start()
                self._wakes_s = due_s
            elif due_s < self._wakes_s:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._due_s = math.inf

    def _watch(self) -> None:
        with self._changed:
            idle_until_s = time.monotonic() + _IDLE_S
            while (now_s := time.monotonic()) < idle_until_s or self._due_s < math.inf:
                if self._due_s <= now_s:
                    self._due_s = math.inf
                    self._ring()
                if self._due_s < math.inf:
                    idle_until_s = self._due_s + _IDLE_S
                self._wakes_s = min(self._due_s, idle_until_s)
                self._changed.wait(self._wakes_s - now_s)
            self._wakes_s = None
