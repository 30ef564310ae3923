"""Events about jobs as lines of the page's journal, the newest kept: they survive the operator that wrote them.

The API server keeps events for an hour by default; what was read is kept here while the page runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Api, EventType, Raw, Scope
from autoscaler.clusters.kubernetes.api.errors import ExpiredError
from autoscaler.clusters.kubernetes.api.kinds import EVENTS
from autoscaler.clusters.kubernetes.objects.fields import part, text, unix_s
from autoscaler.errors import ClusterError
from autoscaler.views.journal import JournalLine

MOST_LINES: Final = 2_000
LONGEST_MESSAGE: Final = 1_024
_ABOUT_JOBS: Final = "regarding.kind=TrainingJob"
_TURN_S: Final = 240.0
_SILENCE_S: Final = 90.0  # the server sends a bookmark each minute
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 30.0

log = logging.getLogger(__name__)


class EventLines:
    """The newest lines, by time.  `sources`: namespaces, or CLUSTER alone; `notify` is called after changes."""

    def __init__(self, api: Api, sources: Sequence[str], *, notify: Callable[[], None]) -> None:
        self._api = api
        self._sources = sources
        self._notify = notify
        self._found: OrderedDict[str, JournalLine] = OrderedDict()
        self._lines: tuple[JournalLine, ...] | None = ()

    @property
    def lines(self) -> tuple[JournalLine, ...]:
        """All lines, the newest last."""
        if self._lines is None:
            self._lines = tuple(sorted(self._found.values(), key=lambda line: line.at_s))
        return self._lines

    async def run(self) -> None:
        """Follow the events until cancelled; without the right to do so there are no lines."""
        async with asyncio.TaskGroup() as tasks:
            for source in self._sources:
                tasks.create_task(self._follow(Scope(namespace=source or None, fields=_ABOUT_JOBS)))

    async def _follow(self, scope: Scope) -> None:
        since, pause_s = "", _FIRST_PAUSE_S
        while True:
            try:
                if not since:
                    listing = await self._api.list(EVENTS, scope)
                    self._put(listing.items)
                    since = listing.resource_version
                watch = self._api.watch(EVENTS, scope, since=since, timeout_s=_TURN_S, silence_s=_SILENCE_S)
                async with aclosing(watch) as events:
                    async for event in events:
                        since, pause_s = event.resource_version, _FIRST_PAUSE_S
                        if event.type in {EventType.ADDED, EventType.MODIFIED}:
                            self._put([event.object])
                await asyncio.sleep(_FIRST_PAUSE_S)  # a server that shuts down ends every watch at once
            except ExpiredError:
                since = ""
            except ClusterError as error:
                log.debug("events are not followed: %s", error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _put(self, events: Sequence[Raw]) -> None:
        for event in events:
            key = text(event, "metadata", "uid") or text(event, "metadata", "name")
            self._found.pop(key, None)
            self._found[key] = line_of(event)
        while len(self._found) > MOST_LINES:
            self._found.popitem(last=False)
        self._lines = None
        if events:
            self._notify()


def line_of(event: Raw) -> JournalLine:
    """Return the event as a line, at the time of the last of its series."""
    times = (text(part(event, "series"), "lastObservedTime"), text(event, "eventTime"))
    at_s = next((at_s for written in times if (at_s := unix_s(written)) is not None), None)
    return JournalLine(
        at_s=at_s if at_s is not None else unix_s(text(event, "metadata", "creationTimestamp")) or 0.0,
        kind="Warning" if text(event, "type") == "Warning" else "Event",
        object=f"tj/{text(event, 'regarding', 'name')}",
        reason=text(event, "reason"),
        message=text(event, "note")[:LONGEST_MESSAGE],
        namespace=text(event, "metadata", "namespace"),
    )
