"""Unix socket behind which other terminals of the same user find the API of a run.

One connection carries one call.  The socket file is its owner's alone, the kernel names the user of each connection,
and number, length and time of calls are bounded, so that a terminal that hangs keeps no other one waiting: a call has a
deadline, a watch a longest time, and a caller that does not read what it is sent is disconnected.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from autoscaler.clusters.kubernetes.api.api_port import Api
from autoscaler.clusters.kubernetes.api.errors import (
    BadRequestError,
    ForbiddenError,
    RefusedBy,
    ThrottledError,
    UnavailableError,
)
from autoscaler.clusters.kubernetes.api.kinds import Kind
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
"""To send a call; and from then on to the end of its answer, unless it is a watch."""

WRITE_DEADLINE_S: Final = 10.0
"""For the caller to read what it has been sent, message by message."""

LONGEST_WATCH_S: Final = 1_800.0
"""A watch ends then, whatever it asked for, as on an API server (`--min-request-timeout`): its caller watches again."""

MOST_CONNECTIONS: Final = 64
_WRITES: Final = frozenset({"apply", "create", "delete", "patch"})
_CALLS: Final = _WRITES | {"check_create", "get", "list"}
_WATCH_BOUNDS: Final = ("timeout_s", "silence_s")


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
            writer.transport.abort()  # the run is over; asyncio's own caller would print this as an error
        finally:
            await _close(writer)
            self._connections.discard(task)

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
        if call == "watch":
            events = getattr(self._api, call)(*kinds, **_with_bounds(arguments))
            await _run_while_connected(reader, _send_items(writer, events))
            return
        try:
            async with asyncio.timeout(CALL_DEADLINE_S):
                await self._answer_once(call, kinds, arguments, reader, writer)
        except TimeoutError:
            message = f"{call}: not done within {CALL_DEADLINE_S:g} s"
            raise UnavailableError(message, may_have_happened=call in _WRITES) from None

    async def _answer_once(
        self,
        call: str,
        kinds: tuple[Kind, ...],
        arguments: dict[str, Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Answer a call that is no watch."""
        if call == "log":
            await _run_while_connected(reader, _send_items(writer, self._api.log(**arguments)))
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


def _with_bounds(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a watch, which lasts no longer than `LONGEST_WATCH_S`.  Raises BadRequestError."""
    bounds = {}
    for name in _WATCH_BOUNDS:
        seconds = arguments.get(name)
        if not isinstance(seconds, int | float) or not seconds >= 0:  # NaN is not
            raise BadRequestError(f"{name} of a watch: a number of seconds from 0 on, not {seconds!r}")
        bounds[name] = min(seconds, LONGEST_WATCH_S)
    return {**arguments, **bounds}


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
    """Send one message.  Raises OSError if the caller has gone, or has not read what it was sent before."""
    writer.write(encode_line(message))
    try:
        async with asyncio.timeout(WRITE_DEADLINE_S):
            await writer.drain()
    except TimeoutError:
        writer.transport.abort()
        raise ConnectionAbortedError(f"the caller has read nothing for {WRITE_DEADLINE_S:g} s") from None


async def _close(writer: asyncio.StreamWriter) -> None:
    """Close the connection; what its caller has not read by the deadline is dropped."""
    writer.close()
    try:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(WRITE_DEADLINE_S):
                await writer.wait_closed()
    finally:
        writer.transport.abort()
