"""Live parts of open pages: rendered once for each change and each kind of viewer, and sent to all who look at it.

A topic (`page_topics`) is a page as viewers with equal rights see it.  While somebody looks, a task renders it after
each change of what it shows, at most a few times a second.  A follower that is slow gets the newest part and none in
between, so that nothing queues up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from aiohttp import web

from autoscaler.errors import AutoscalerError
from autoscaler.page.access.answer_limits import ViewerShares, ViewerTurns
from autoscaler.page.content.page_topics import Topic
from autoscaler.page.page_source import PageSource
from autoscaler.views.view_memo import are_same

MOST_VIEWERS: Final = 500
LEAST_PAUSE_S: Final = 0.3
"""Between two parts of one topic: a burst of changes becomes one."""

REFRESH_S: Final = 10.0
"""A part is made anew after this long without a change: ages and instants move on."""

log = logging.getLogger(__name__)


Render = Callable[[Topic], Awaitable[str]]
ReadFrom = Callable[[Topic], tuple[object, ...] | None]
"""What a topic's part is made of: while these are the same objects it need not be made anew.  None: it is unknown."""


class LivePart:
    """The newest part of one topic, and `event`, what a stream sends of it.

    `number` counts the parts, from 1; `fault`: why there is no newer one.
    """

    def __init__(self) -> None:
        self.number = 0
        self.html = ""
        self.event = b""
        self.fault = ""
        self.followers = 0
        self.renewed = asyncio.Condition()

    async def newer_than(self, number: int, within_s: float) -> int | None:
        """Wait for a part after this one and return its number; None if there is none within that time."""
        try:
            async with asyncio.timeout(within_s), self.renewed:
                await self.renewed.wait_for(lambda: self.number > number)
        except TimeoutError:
            return None
        return self.number

    def is_new_fault(self, error: Exception) -> bool:
        """Keep why no part could be made; True unless it is as the last time: it may fail three times a second."""
        fault, self.fault = self.fault, repr(error)
        return fault != self.fault

    async def put(self, html: str) -> None:
        """Put a part in place of the last one; an equal one is no news."""
        if html == self.html:
            return
        async with self.renewed:
            self.html = html
            self.number += 1
            self.event = event_of(self.number, html)  # once, however many follow
            self.renewed.notify_all()


class LiveHub:
    """All topics that somebody follows; each is made in the turn of the viewer who came first.

    `record`: takes the name of each page that was made, and how long it took.
    """

    def __init__(
        self,
        source: PageSource,
        render: Render,
        read_from: ReadFrom,
        *,
        most_viewers: int,
        turns: ViewerTurns,
        record: Callable[[str, float], None] = lambda _page, _seconds: None,
    ) -> None:
        self._source = source
        self._render = render
        self._read_from = read_from
        self._most = most_viewers
        self._shares = ViewerShares()
        self._turns = turns
        self._record = record
        self._parts: dict[Topic, LivePart] = {}
        self._tasks: dict[Topic, asyncio.Task[None]] = {}
        self.viewers = 0

    @property
    def topics(self) -> int:
        """Topics that are kept current."""
        return len(self._parts)

    @contextmanager
    def follow(self, topic: Topic, viewer: str) -> Iterator[LivePart]:
        """Keep the topic's part current inside the block, for the viewer of this name.

        Raises:
            web.HTTPServiceUnavailable: as many viewers as are allowed follow already.
            web.HTTPTooManyRequests: this one follows as much as one viewer may.
        """
        if self.viewers >= self._most:
            raise web.HTTPServiceUnavailable(text="Too many people watch; reload in a while.\n")
        with self._shares.taking(viewer):
            part = self._parts.setdefault(topic, LivePart())
            if topic not in self._tasks:
                self._tasks[topic] = asyncio.create_task(self._keep(topic, part, viewer), name=f"page {topic.page}")
            self.viewers += 1
            part.followers += 1
            try:
                yield part
            finally:
                self.viewers -= 1
                part.followers -= 1
                if not part.followers:
                    del self._parts[topic]
                    self._tasks.pop(topic).cancel()

    async def close(self) -> None:
        """End all topics."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, topic: Topic, part: LivePart, viewer: str) -> None:
        version, last, made_at_s, loop = 0, None, 0.0, asyncio.get_running_loop()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(REFRESH_S):
                    version = await self._source.wait_for_change(version)
            try:
                read = self._read_from(topic)
                is_old = loop.time() - made_at_s >= REFRESH_S
                if is_old or read is None or last is None or not are_same(read, last):  # else it is of others, say
                    async with self._turns.turn(viewer):
                        made_at_s = loop.time()
                        await part.put(await self._render(topic))
                    last, part.fault = read, ""
                    self._record(topic.page, loop.time() - made_at_s)
            except AutoscalerError as error:
                if part.is_new_fault(error):
                    log.warning("page %s: %s", topic.page, error)
            except Exception as error:
                if part.is_new_fault(error):
                    log.exception("page %s cannot be rendered", topic.page)
            await asyncio.sleep(LEAST_PAUSE_S)


def event_of(number: int, html: str) -> bytes:
    """Return a part as a server-sent event."""
    lines = "".join(f"data: {line}\n" for line in html.split("\n"))
    return f"id: {number}\nevent: part\n{lines}\n".encode()
