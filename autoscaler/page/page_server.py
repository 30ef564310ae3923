"""The page on an address of this machine, for the time of a block."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from autoscaler.errors import InvariantViolationError
from autoscaler.page.access.connections import ConnectionBounds, accepting
from autoscaler.page.access.request_checks import LOOPBACK_HOSTS
from autoscaler.page.access.token_access import PARAMETER, TokenAccess, new_token
from autoscaler.page.answers.keeping import PodKeeper
from autoscaler.page.page_app import PageApp, PageSettings
from autoscaler.page.page_source import PageSource

LOOPBACK: Final = "127.0.0.1"
LONGEST_LINE: Final = 8_190  # bytes of a request's first line, and of one of its headers
SHUTDOWN_S: Final = 1.0
KEEP_ALIVE_S: Final = 30.0
"""A connection without a whole request for so long is closed: its request's head is overdue, or nobody needs it."""

MOST_CONNECTIONS: Final = 1_500
"""Three for each viewer: a stream, and a page with what it loads."""

BOUNDS: Final = ConnectionBounds(MOST_CONNECTIONS, MOST_CONNECTIONS)

MOST_LOCAL_CONNECTIONS: Final = 100
"""Every user of the machine can open them, and the run in the same process needs its descriptors: often 1,024."""

MOST_LOCAL_WITH_OTHERS: Final = MOST_LOCAL_CONNECTIONS // 2
"""With so many, only the user whose run it is gets more."""

BACKLOG: Final = 64

requests_log = logging.getLogger(f"{__name__}.requests")


@asynccontextmanager
async def serve_locally(
    source: PageSource, *, port: int = 0, token: str = "", keeper: PodKeeper | None = None
) -> AsyncIterator[str]:
    """Serve the page on the loopback address inside the block; yields its address, with the token that opens it.

    `port`: 0 takes a free one.  `token`: of an earlier page at this port; empty makes a new one.  `keeper` None:
    nothing can be changed.

    Raises:
        OSError: the port is taken.
    """
    token = token or new_token()
    with socket.create_server((LOOPBACK, port), backlog=BACKLOG) as listening:
        number: int = listening.getsockname()[1]
        page = PageApp(source, TokenAccess(token, number), PageSettings(hosts=LOOPBACK_HOSTS), keeper=keeper)
        bounds = ConnectionBounds(MOST_LOCAL_CONNECTIONS, MOST_LOCAL_WITH_OTHERS)
        async with serving(page, listening, bounds=bounds):
            yield f"http://{LOOPBACK}:{number}/?{PARAMETER}={token}"


@asynccontextmanager
async def serving(
    page: PageApp,
    listening: socket.socket,
    *,
    encryption: ssl.SSLContext | None = None,
    longest_header: int = LONGEST_LINE,
    bounds: ConnectionBounds = BOUNDS,
) -> AsyncIterator[None]:
    """Serve the page on a socket inside the block, over HTTPS with `encryption`; open streams end with it.

    `longest_header`: bytes of one header.
    """
    runner = web.AppRunner(
        page.app,
        access_log=None,
        handle_signals=False,
        max_line_size=LONGEST_LINE,
        max_field_size=longest_header,
        shutdown_timeout=SHUTDOWN_S,
        keepalive_timeout=KEEP_ALIVE_S,
        handler_cancellation=True,
        logger=requests_log,
    )
    await runner.setup()
    try:
        if runner.server is None:
            raise InvariantViolationError("a runner that was set up has no server")
        async with accepting(runner.server, listening, bounds, encryption=encryption):
            yield
    finally:
        await runner.cleanup()


def _is_fault_of_the_page(record: logging.LogRecord) -> bool:
    """False for a request that is none: whoever reaches the port could fill the log, or a run's terminal, with them."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


requests_log.addFilter(_is_fault_of_the_page)
