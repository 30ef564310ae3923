"""Small HTTP server for Prometheus and kubelets, on an unauthenticated port (ADR 0192).

The problem: any client can connect, and the process serves a job or the whole cluster.  So connections are bounded and
the oldest is closed for a new one; each serves one small request within a time limit; an expensive page is cached for
a second.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

log: Final = logging.getLogger(__name__)

PROMETHEUS_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"

_MOST_CONNECTIONS: Final = 256
"""A real client is done within milliseconds, so the connection that is closed is almost never one."""

_BACKLOG: Final = 64  # taken at once: far fewer than there are places
_TURNS_TO_TAKE: Final = 3  # of the loop, from asyncio's accept to `take`
_MOST_HEAD_BYTES: Final = 8192
_ANSWER_WITHIN_S: Final = 15.0  # a whole connection; a scrape's own limit is 10 s as a rule
_PIECE_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    kind: str = "text/plain; charset=utf-8"


class CachedPage:
    """A page that is made again once it is `kept_s` old, and not before."""

    def __init__(self, make: Callable[[], Page], *, kept_s: float = 1.0) -> None:
        self._make = make
        self._kept_s = kept_s
        self._page: Page | None = None
        self._made_s = -math.inf

    def __call__(self) -> Page:
        if self._page is None or time.monotonic() - self._made_s >= self._kept_s:
            self._page = self._make()
            self._made_s = time.monotonic()  # a slow page is also cached for as long as it took
        return self._page


def listen_at(host: str, port: int) -> socket.socket:
    """A listening socket for `serving`.  Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


@asynccontextmanager
async def serving(listening: socket.socket, pages: Mapping[str, Callable[[], Page]]) -> AsyncIterator[None]:
    """Serve the pages by path inside the context; at its end all connections are closed."""
    connections = _Connections(pages)
    server = await asyncio.start_server(connections.take, sock=listening, backlog=_BACKLOG, limit=_MOST_HEAD_BYTES)
    try:
        yield
    finally:
        asyncio.get_running_loop().remove_reader(listening)
        for _ in range(_TURNS_TO_TAKE):  # a closed server loses those in transit
            await asyncio.sleep(0)
        server.close()
        await connections.end()
        await server.wait_closed()


class _Connections:
    def __init__(self, pages: Mapping[str, Callable[[], Page]]) -> None:
        self._pages = pages
        self._open: dict[asyncio.Task[None], StreamWriter] = {}  # oldest first

    def take(self, reader: StreamReader, writer: StreamWriter) -> None:
        """One connection, from its request to its answer; it is cut however early its task ends."""
        if len(self._open) >= _MOST_CONNECTIONS:
            self._cut(next(iter(self._open)))
        task = asyncio.create_task(self._serve(reader, writer))
        self._open[task] = writer
        task.add_done_callback(self._cut)

    def _cut(self, task: asyncio.Task[None]) -> None:
        """Close the connection at once instead of cancelling its task first, because new ones need the descriptor."""
        if (writer := self._open.pop(task, None)) is not None:
            writer.transport.abort()
        task.cancel()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            async with asyncio.timeout(_ANSWER_WITHIN_S):
                await self._serve_request(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client has disconnected, or is not HTTP
        except Exception:
            log.exception("a page could not be made")

    async def end(self) -> None:
        """Cuts every connection."""
        tasks = tuple(self._open)
        for task in tasks:
            self._cut(task)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve_request(self, reader: StreamReader, writer: StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, _, rest = head.partition(b" ")
        page = self._page(method, rest.partition(b" ")[0])
        writer.write(
            f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\nContent-Type: {page.kind}\r\n"
            f"Content-Length: {len(page.body)}\r\nConnection: close\r\n\r\n".encode()
        )
        body = memoryview(b"" if method == b"HEAD" else page.body)
        for start in range(0, len(body), _PIECE_BYTES):  # a slow client holds one piece in memory, not the page
            writer.write(body[start : start + _PIECE_BYTES])
            await writer.drain()
        writer.write_eof()
        with suppress(OSError):
            while await reader.read(_PIECE_BYTES):  # an abort could overtake the answer
                pass

    def _page(self, method: bytes, target: bytes) -> Page:
        if method not in (b"GET", b"HEAD"):
            return Page(body=b"only GET is known here\n", status=HTTPStatus.METHOD_NOT_ALLOWED)
        make = self._pages.get(target.partition(b"?")[0].decode("ascii", errors="replace"))
        if make is None:
            return Page(body=b"there is no such page\n", status=HTTPStatus.NOT_FOUND)
        return make()
