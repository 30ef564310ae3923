"""The queue in front of the one writer: events wait here, bounded, until the writer takes all of them in one turn.

asyncio.Queue hands out one item per call and wakes one getter per item; at thousands of events a second that is most
of the work.  Here the writer is woken once and takes what there is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from master.job.domain import CoreEvent


class EventQueue:
    """Events in order of arrival.  Streams wait while it is full; the outcomes of effects never do."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._events: deque[CoreEvent] = deque()
        self._filled = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()

    def __len__(self) -> int:
        return len(self._events)

    def add(self, event: CoreEvent) -> None:
        """For outcomes, of which each effect has one: at once, whatever the limit."""
        self._events.append(event)
        self._filled.set()

    async def extend(self, events: Iterable[CoreEvent]) -> None:
        """For what members say: waits for room first, which makes the member's stream wait."""
        while len(self._events) >= self._limit:
            self._has_room.clear()
            await self._has_room.wait()
        self._events.extend(events)
        self._filled.set()

    async def wait(self, timeout_s: float | None) -> None:
        """Until there is an event, or the time has passed."""
        if self._events or (timeout_s is not None and timeout_s <= 0):
            return
        loop = asyncio.get_running_loop()
        timer = None if timeout_s is None else loop.call_later(timeout_s, self._filled.set)
        try:
            await self._filled.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def take(self, limit: int) -> list[CoreEvent]:
        """Up to so many, oldest first."""
        count = min(limit, len(self._events))
        taken = [self._events.popleft() for _ in range(count)]
        if not self._events:
            self._filled.clear()
        if len(self._events) < self._limit:
            self._has_room.set()
        return taken
