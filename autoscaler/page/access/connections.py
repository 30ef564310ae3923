"""Connections of a page: at most so many at a time, those that still agree on a key among them.

The problem: a connection costs memory and a descriptor before anybody is known on it.  One more than allowed is closed
at once, and the accepted ones go on.  Where every user of the machine can open them, others do not get the last ones:
the page's own user is not shut out.  Who holds a connection without a request is cut by the server (`KEEP_ALIVE_S`),
and who does not read an answer by `answer_limits`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from aiohttp import web

from autoscaler.page.access.peer_user import find_uid_between

HANDSHAKE_LIMIT_S: Final = 10.0
PAUSE_S: Final = 1.0
"""After a connection that could not be accepted: there is no descriptor left."""

log = logging.getLogger(__name__)


class ConnectionBounds(NamedTuple):
    """Connections at a time; with `with_others` another user of this machine gets none any more."""

    most: int
    with_others: int


@asynccontextmanager
async def accepting(
    server: web.Server,
    listening: socket.socket,
    bounds: ConnectionBounds,
    *,
    encryption: ssl.SSLContext | None = None,
) -> AsyncIterator[None]:
    """Hand connections to the server inside the block; at its end none is taken any more, and the rest are its own."""
    listening.setblocking(False)
    accepted = _Accepted(server, encryption, bounds)
    task = asyncio.create_task(accepted.take_from(listening), name="page connections")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await accepted.end()


class _Accepted:
    def __init__(self, server: web.Server, encryption: ssl.SSLContext | None, bounds: ConnectionBounds) -> None:
        self._server = server
        self._bounds = bounds
        self._options: dict[str, Any] = {} if encryption is None else _with_key(encryption)
        self._beginning: set[asyncio.Task[None]] = set()

    async def take_from(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:
                log.warning("no connection can be accepted: %s", error)
                await asyncio.sleep(PAUSE_S)
                continue
            try:
                is_full = await self._is_full_for(connection)
            except BaseException:
                connection.close()
                raise
            if is_full:
                connection.close()
                continue
            task = asyncio.create_task(self._begin(connection), name="page connection")
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)

    async def _is_full_for(self, connection: socket.socket) -> bool:
        count = len(self._server.connections) + len(self._beginning)
        if self._bounds.with_others <= count < self._bounds.most:  # in a thread: the list of all sockets may be long
            return await asyncio.to_thread(_is_of_another, connection)
        return count >= self._bounds.most

    async def end(self) -> None:
        beginning = list(self._beginning)
        for task in beginning:
            task.cancel()
        await asyncio.gather(*beginning, return_exceptions=True)

    async def _begin(self, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._server, connection, **self._options)
        except OSError as error:  # also of TLS: whoever speaks another protocol
            log.debug("a connection has not begun: %s", error)
            connection.close()
        except BaseException:
            connection.close()
            raise


def _is_of_another(connection: socket.socket) -> bool:
    """True if another user of this machine is known to have the other end; also if it is closed already."""
    try:
        uid = find_uid_between(connection.getsockname(), connection.getpeername())
    except OSError:
        return True
    return uid is not None and uid != os.geteuid()


def _with_key(encryption: ssl.SSLContext) -> dict[str, Any]:
    return {"ssl": encryption, "ssl_handshake_timeout": HANDSHAKE_LIMIT_S}
