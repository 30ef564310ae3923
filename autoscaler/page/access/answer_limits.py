"""Sends answers within a time, and counts what each viewer has under way.

The problem: an answer that nobody reads keeps its memory and its connection for as long as the client likes, and one
viewer who asks for many at once keeps the others waiting.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

from aiohttp import web

WRITE_LIMIT_S: Final = 20.0
LEAST_BYTES_PER_S: Final = 64 * 1024
"""What is large is given more time, at this rate: half a megabit a second, a poor mobile line."""

MOST_AT_ONCE: Final = 32
"""Answers, and streams, of one viewer: browsers ask for six at a time."""

MOST_MADE_AT_ONCE: Final = 4
"""Different answers of one viewer that are made at a time, so that others' have their share of the cores."""

_TOO_MANY: Final = "You have too many pages under way; close some, or try again in a moment.\n"


class ViewerShares:
    """What each viewer has under way, by name."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()

    @contextmanager
    def taking(self, viewer: str) -> Iterator[None]:
        """Count one more inside the block.

        Raises:
            web.HTTPTooManyRequests: the viewer has `MOST_AT_ONCE` already.
        """
        if self._taken[viewer] >= MOST_AT_ONCE:
            raise web.HTTPTooManyRequests(text=_TOO_MANY, headers={"Retry-After": "1"})
        self._taken[viewer] += 1
        try:
            yield
        finally:
            self._taken[viewer] -= 1
            if not self._taken[viewer]:
                del self._taken[viewer]


class ViewerTurns:
    """Turns of each viewer, by name: further ones wait for their own, and for nobody else's."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()
        self._turns: dict[str, asyncio.Semaphore] = {}

    @asynccontextmanager
    async def turn(self, viewer: str) -> AsyncIterator[None]:
        """Have one of the viewer's turns inside the block."""
        self._taken[viewer] += 1
        try:
            async with self._turns.setdefault(viewer, asyncio.Semaphore(MOST_MADE_AT_ONCE)):
                yield
        finally:
            self._taken[viewer] -= 1
            if not self._taken[viewer]:
                del self._taken[viewer], self._turns[viewer]


async def send_whole(request: web.Request, response: web.Response) -> web.Response:
    """Send an answer and return it; the connection of a client that does not take it in time is cut."""
    size = len(response.body) if isinstance(response.body, bytes) else 0
    with suppress(ConnectionError):  # the server notices by itself
        async with sending(request, size):
            await response.prepare(request)
            await response.write_eof()
    return response


@asynccontextmanager
async def sending(request: web.Request, size: int) -> AsyncIterator[None]:
    """Give the block the time for sending so many bytes.

    Raises:
        ConnectionResetError: it was not enough, and the connection was cut.
    """
    transport = request.transport
    if transport is not None:
        # A write waits until the kernel has what is written.  At 0 asyncio pauses writes over TLS when nothing is left.
        transport.set_write_buffer_limits(1)
    try:
        async with asyncio.timeout(WRITE_LIMIT_S + size / LEAST_BYTES_PER_S):
            yield
    except TimeoutError:
        cut(request)
        raise ConnectionResetError("an answer was not read in time") from None


def cut(request: web.Request) -> None:
    """End the connection with all that was to be sent: to close it would wait for a client that does not read."""
    if request.transport is not None:
        request.transport.abort()
