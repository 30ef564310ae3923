"""Unix socket behind which other terminals of the same user find the API of a run.

One connection carries one call.  The socket file is its owner's alone, the kernel names the user of each connection,
and number, length and time of calls are bounded, so that a terminal that hangs keeps no other one waiting.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Coroutine
from contextlib import aclosing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from autoscaler.clusters.kubernetes.api.api_port import Api
from autoscaler.clusters.kubernetes.api.errors import BadRequestError, ForbiddenError, RefusedBy, ThrottledError
from autoscaler.clusters.local.control_plane.api_wire import (
    LONGEST_CALL_BYTES,
    decode_call,
    encode_error,
    encode_line,
    encode_result,
)
from autoscaler.errors import ClusterError
from master.api.host.file_ownership import ForeignUserError
from master.api.host.unix_sockets import check_peer

log = logging.getLogger(__name__)

CALL_DEADLINE_S: Final = 10.0
MOST_CONNECTIONS: Final = 64
_CALLS: Final = frozenset({"apply", "check_create", "create", "delete", "get", "list", "patch"})
_STREAMS: Final = frozenset({"log", "watch"})


class ApiSocket:
    """Serves `api` at a path.  An async context: the socket is there inside it."""

    def __init__(self, api: Api, path: Path) -> None:
        self._api = api
        self._path = path
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(
            self._accept, sock=bind_for_owner(self._path), limit=LONGEST_CALL_BYTES
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        self._path.unlink(missing_ok=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the caller has gone
        except asyncio.CancelledError:
            pass  # the run is over; asyncio's own caller would print this as an error
        finally:
            self._connections.discard(task)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer(reader, writer)
        except ClusterError as error:
            await _send(writer, error=encode_error(error))
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            raise
        except Exception as error:  # the outermost shell of a call: the caller gets the error, the run goes on
            log.exception("a call failed")
            await _send(writer, error=encode_error(BadRequestError(f"a bug of EDL: {error!r}")))

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        check_caller(writer)
        if len(self._connections) > MOST_CONNECTIONS:
            raise ThrottledError(f"more than {MOST_CONNECTIONS} calls are open", retry_after_s=1.0)
        call, kinds, arguments = decode_call(await _read_line(reader))
        if call in _STREAMS:
            await _run_while_connected(reader, _send_items(writer, getattr(self._api, call)(*kinds, **arguments)))
        elif call in _CALLS:
            result: Awaitable[Any] = getattr(self._api, call)(*kinds, **arguments)
            await _send(writer, result=encode_result(await result))
        else:
            raise BadRequestError(f"there is no call {call!r}")


def check_caller(writer: asyncio.StreamWriter) -> None:
    """A second check behind the socket's mode: raise ForbiddenError if the caller is another user's process."""
    try:
        check_peer(writer.get_extra_info("socket"))
    except ForeignUserError as error:
        raise ForbiddenError(str(error), RefusedBy.RBAC) from error


def bind_for_owner(path: Path) -> socket.socket:
    """A listening socket that is its owner's alone from the first moment.

    The mask is the whole process's, so it is set for no longer than this call, in which nothing else runs in the loop.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listening.bind(str(path))
    except BaseException:
        listening.close()
        raise
    finally:
        os.umask(before)
    return listening


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(CALL_DEADLINE_S):
            return await reader.readuntil(b"\n")
    except asyncio.LimitOverrunError:
        raise BadRequestError(f"a call is at most {LONGEST_CALL_BYTES} bytes long") from None


async def _send_items(writer: asyncio.StreamWriter, generator: AsyncGenerator[Any, None]) -> None:
    async with aclosing(generator) as items:
        async for item in items:
            await _send(writer, item=encode_result(item))
    await _send(writer, done=True)


async def _run_while_connected(reader: asyncio.StreamReader, sending: Coroutine[Any, Any, None]) -> None:
    """Send until the caller disconnects: while nothing changes its end would go unnoticed, and hold a connection."""
    sender, disconnect = asyncio.create_task(sending), asyncio.create_task(reader.read(1))
    try:
        await asyncio.wait({sender, disconnect}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sender, disconnect):
            task.cancel()
        await asyncio.gather(sender, disconnect, return_exceptions=True)
    if not sender.cancelled():
        sender.result()


async def _send(writer: asyncio.StreamWriter, **message: Any) -> None:
    writer.write(encode_line(message))
    async with asyncio.timeout(CALL_DEADLINE_S):
        await writer.drain()
