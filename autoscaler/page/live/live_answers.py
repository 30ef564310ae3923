"""Open pages: streams that send each new part to their viewers, as long as these have the same rights."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from aiohttp import web

from autoscaler.page.access.answer_limits import sending
from autoscaler.page.access.viewers import Viewer
from autoscaler.page.content.page_topics import PageTopics, Topic
from autoscaler.page.content.pages import PageSpec
from autoscaler.page.live.live_stream import LiveHub, LivePart

HEARTBEAT_S: Final = 10.0
"""A stream that is silent for longer is cut by proxies."""

ALIVE: Final = b": nothing new\nevent: alive\ndata: 1\n\n"
"""A sign of life, which a browser's script hears too."""

RETRY_MS: Final = 1_000
RETRY_STEPS: Final = 20
"""A browser whose stream ended asks again after one to three seconds: not all at once, where a new leader begins."""

RIGHTS_KEPT_S: Final = 5.0
"""A stream asks again for its viewer's rights after this long."""

STREAM_HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx hands each part on at once
}


class LiveAnswers:
    """Answers that go on for as long as their viewers listen."""

    def __init__(self, hub: LiveHub, topics: PageTopics) -> None:
        self._hub = hub
        self._topics = topics

    async def stream(self, page: PageSpec, request: web.Request, viewer: Viewer) -> web.StreamResponse:
        """Send the page's live part, now and after each change."""
        topic = await self._topics.topic_of(page, request, viewer)
        with self._hub.follow(topic, viewer.name) as part:
            response = web.StreamResponse(headers=STREAM_HEADERS)
            await response.prepare(request)
            with suppress(ConnectionResetError):
                await response.write(f"retry: {retry_ms(self._hub.viewers)}\n\n".encode())
                await self._send_parts(request, response, topic, part)
            return response

    async def _send_parts(
        self, request: web.Request, response: web.StreamResponse, topic: Topic, part: LivePart
    ) -> None:
        """Send each new part, and a sign of life where there is none, until the viewer leaves or has other rights."""
        loop, sent, checked_at_s = asyncio.get_running_loop(), 0, asyncio.get_running_loop().time()
        while True:
            number = await part.newer_than(sent, HEARTBEAT_S)
            if loop.time() - checked_at_s > RIGHTS_KEPT_S:
                if not await self._topics.still_has(topic.rights, request):
                    return
                checked_at_s = loop.time()
            data = ALIVE if number is None else part.event
            sent = sent if number is None else number
            async with sending(request, len(data)):
                await response.write(data)


def retry_ms(viewers: int) -> int:
    """Return the pause before a browser asks again for its stream, another one for each of some viewers."""
    return RETRY_MS + 100 * (viewers % RETRY_STEPS)
