"""Events about jobs, and EDL's about pods, as lines of the page's journal, the newest kept.

They survive the operator that wrote them.  The API server keeps events for an hour by default; what was read is kept
here while the page runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Api, EventType, Raw, Scope
from autoscaler.clusters.kubernetes.api.errors import ExpiredError
from autoscaler.clusters.kubernetes.api.kinds import EVENTS
from autoscaler.clusters.kubernetes.objects.fields import part, text, unix_s
from autoscaler.errors import ClusterError
from autoscaler.views.history.journal import JournalLine

MOST_LINES: Final = 5_000
"""Of all namespaces together; where there are more, each has an equal share, and keeps its newest."""
LONGEST_MESSAGE: Final = 1_024
_SELECTORS: Final = ("regarding.kind=TrainingJob", "regarding.kind=Pod,reportingController=edl.dev/operator")
"""Of pods what EDL says: of GPUs that are about to be given back, say.  Their other events are many."""

_TYPES: Final = {"TrainingJob": "tj", "Pod": "pod"}
_TURN_S: Final = 240.0
_SILENCE_S: Final = 90.0  # the server sends a bookmark each minute
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 30.0

log = logging.getLogger(__name__)


class EventLines:
    """The newest lines, by time, of each namespace its share.

    `sources`: namespaces, or CLUSTER alone; `notify` is called after changes.
    """

    def __init__(self, api: Api, sources: Sequence[str], *, notify: Callable[[], None]) -> None:
        self._api = api
        self._sources = sources
        self._notify = notify
        self._found: dict[str, dict[str, JournalLine]] = {}  # by namespace and event
        self._lines: tuple[JournalLine, ...] | None = ()

    @property
    def lines(self) -> tuple[JournalLine, ...]:
        """All lines, the newest last."""
        if self._lines is None:
            self._lines = tuple(sorted((line for kept in self._found.values() for line in kept.values()), key=_at_s))
        return self._lines

    @property
    def namespaces(self) -> AbstractSet[str]:
        """Namespaces of the lines."""
        return self._found.keys()

    def forget(self, namespaces: AbstractSet[str]) -> None:
        """Drop the lines of these namespaces."""
        for namespace in namespaces:
            self._found.pop(namespace, None)
        self._lines = None
        self._notify()

    async def run(self) -> None:
        """Follow the events until cancelled; without the right to do so there are no lines."""
        async with asyncio.TaskGroup() as tasks:
            for source in self._sources:
                for fields in _SELECTORS:
                    tasks.create_task(self._follow(Scope(namespace=source or None, fields=fields)))

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

    def _evict(self) -> None:
        """Drop the oldest lines of those namespaces that have more than their share."""
        if sum(map(len, self._found.values())) <= MOST_LINES:
            return
        share = fair_share(map(len, self._found.values()), MOST_LINES)
        for namespace, kept in self._found.items():
            if len(kept) > share:
                newest = sorted(kept.items(), key=lambda item: item[1].at_s)[len(kept) - share :]
                self._found[namespace] = dict(newest)

    def _put(self, events: Sequence[Raw]) -> None:
        for event in events:
            key = text(event, "metadata", "uid") or text(event, "metadata", "name")
            line = line_of(event)
            self._found.setdefault(line.namespace, {})[key] = line
        self._evict()
        self._lines = None
        if events:
            self._notify()


def fair_share(counts: Iterable[int], most: int) -> int:
    """Return how many each may have, so that all have at most `most` together and who has few keeps all of them."""
    left, share = most, 0
    waiting = sorted(counts)
    for at, count in enumerate(waiting):
        share = left // (len(waiting) - at)
        if count > share:
            return share
        left -= count
    return max(waiting, default=0)


def _at_s(line: JournalLine) -> float:
    return line.at_s


def line_of(event: Raw) -> JournalLine:
    """Return the event as a line, at the time of the last of its series."""
    kind = text(event, "regarding", "kind")
    times = (text(part(event, "series"), "lastObservedTime"), text(event, "eventTime"))
    at_s = next((at_s for written in times if (at_s := unix_s(written)) is not None), None)
    return JournalLine(
        at_s=at_s if at_s is not None else unix_s(text(event, "metadata", "creationTimestamp")) or 0.0,
        kind="Warning" if text(event, "type") == "Warning" else "Event",
        object=f"{_TYPES.get(kind, kind)}/{text(event, 'regarding', 'name')}",
        reason=text(event, "reason"),
        message=text(event, "note")[:LONGEST_MESSAGE],
        namespace=text(event, "metadata", "namespace"),
    )
