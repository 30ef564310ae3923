"""The queue in front of the writer: bounded, and emptied in one turn.

asyncio.Queue hands out one item a call and wakes one getter an item; at thousands of events a second that is most of
the work.  This queue wakes the writer once, and it takes all that is there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from master.job.domain.job_events import CoreEvent


class EventQueue:
    """Events in order of arrival.  Streams wait while it is full; outcomes of effects never do."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._events: deque[CoreEvent] = deque()
        self._filled = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()

    def __len__(self) -> int:
        return len(self._events)

    def add(self, event: CoreEvent) -> None:
        """Queues the outcome of an effect at once, whatever the limit."""
        self._events.append(event)
        self._filled.set()

    async def extend(self, events: Iterable[CoreEvent]) -> None:
        """Queues a member's events; waits for room first, which makes the member's stream wait."""
        while len(self._events) >= self._limit:
            self._has_room.clear()
            await self._has_room.wait()
        self._events.extend(events)
        self._filled.set()

    async def wait(self, timeout_s: float | None) -> None:
        """Returns when there is an event or the time has passed."""
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
        """Up to `limit` events, oldest first."""
        count = min(limit, len(self._events))
        taken = [self._events.popleft() for _ in range(count)]
        if not self._events:
            self._filled.clear()
        if len(self._events) < self._limit:
            self._has_room.set()
        return taken
