"""Watch history: the server's changes in order, as far as it keeps them, and the watches that wait for the next one.

Versions count all kinds together, as etcd's do.  A watch is a cursor into the history.  Once its next change is
compacted, it gets a 410 and the client lists again.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from autoscaler.clusters.kubernetes.api.api_port import EventType, Raw, WatchEvent
from autoscaler.clusters.kubernetes.api.errors import ExpiredError, UnavailableError
from autoscaler.clusters.kubernetes.api.kinds import Kind
from autoscaler.clusters.kubernetes.memory_api.selectors import Matches


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectChange:
    """One object before and after a change; None where it did not exist."""

    version: int
    kind: Kind
    before: Raw | None
    after: Raw | None

    def seen_by(self, matches: Matches) -> WatchEvent | None:
        """Return the event for a watch of this scope: an object that leaves its selection is DELETED for it."""
        was = self.before is not None and matches(self.before)
        if self.after is not None and matches(self.after):
            return WatchEvent(type=EventType.MODIFIED if was else EventType.ADDED, object=self.after)
        if was and self.before is not None:
            last = self.after or self.before
            metadata = last["metadata"] | {"resourceVersion": str(self.version)}
            return WatchEvent(type=EventType.DELETED, object=last | {"metadata": metadata})
        return None


class WatchHistory:
    """The changes that a watch can begin at: those of the window."""

    def __init__(self, window: int) -> None:
        self.version = 1
        self.disconnects = 0  # how often every watch has been disconnected
        self.bookmarks = 0  # how often every idle watch has been sent a bookmark
        self._window = window
        self._compacted_version = 1
        self._changes: list[ObjectChange] = []
        self._waiting: set[asyncio.Event] = set()
        self._queues: list[deque[ObjectChange]] = []

    def append(self, kind: Kind, before: Raw | None, after: Raw | None) -> None:
        """Add a change under the current version, and wake all watches."""
        change = ObjectChange(version=self.version, kind=kind, before=before, after=after)
        self._changes.append(change)
        for queue in self._queues:
            queue.append(change)
        if len(self._changes) > 2 * self._window:
            self.compact(self._changes[-self._window - 1].version)
        self._wake()

    def compact(self, version: int) -> None:
        """Compact: no watch can start before `version` any more."""
        self._changes = [change for change in self._changes if change.version > version]
        self._compacted_version = max(self._compacted_version, version)
        self._wake()

    def disconnect_all(self) -> None:
        """End every watch as a lost connection does."""
        self.disconnects += 1
        self._wake()

    def bookmark(self) -> None:
        """Send every watch a bookmark."""
        self.bookmarks += 1
        self._wake()

    def kept_changes(self) -> tuple[ObjectChange, ...]:
        """Return all changes that are kept, in order."""
        return tuple(self._changes)

    def since(self, version: int) -> list[ObjectChange]:
        """Return the changes after `version`.  Raises ExpiredError, or UnavailableError for a future version."""
        if version < self._compacted_version:
            raise ExpiredError(f"too old resource version: {version} ({self._compacted_version})")
        if version > self.version:
            raise UnavailableError(
                f"too large resource version: {version}, current: {self.version}", may_have_happened=False
            )
        return self._changes[bisect_right(self._changes, version, key=lambda change: change.version) :]

    def subscribe(self) -> deque[ObjectChange]:
        """Return a queue that gets every later change, for a controller in the server's own process.

        Unlike a watch it never expires: its length is what is written between two turns of its reader.
        """
        self._queues.append(deque())
        return self._queues[-1]

    @contextmanager
    def waiting(self) -> Iterator[asyncio.Event]:
        """Yield an event that is set at each change."""
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            yield event
        finally:
            self._waiting.discard(event)

    def _wake(self) -> None:
        for event in self._waiting:
            event.set()
