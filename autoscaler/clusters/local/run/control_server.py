"""Control socket of a run, on which other terminals of the same user send requests.

One connection carries one request and one answer, or a stream of items for what is watched.  The socket is its owner's
alone; lines, connections and the time to speak are bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Coroutine, Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from autoscaler.clusters.local.run.control_requests import ControlRequests, objects_of, parse_type
from autoscaler.clusters.local.run.local_run import LocalRun
from autoscaler.clusters.local.run_files.control_wire import (
    LONGEST_REQUEST_BYTES,
    WIRE_VERSION,
    RequestError,
    RequestProblem,
    decode,
    encode,
)
from autoscaler.clusters.local.run_files.run_journal import RunEvent
from master.api.host.file_ownership import ForeignUserError
from master.api.host.unix_sockets import check_peer

log = logging.getLogger(__name__)

_SPEAK_DEADLINE_S: Final = 10.0
_MOST_CONNECTIONS: Final = 64
_WATCH_EVERY_S: Final = 0.25
_EVENT_BACKLOG: Final = 10_000  # more than a recorder has at hand


class ControlServer:
    """Control socket of one run.  An async context: the socket exists inside it."""

    def __init__(self, run: LocalRun) -> None:
        self._run = run
        self._requests = ControlRequests(run)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._path = run.folder.control_socket()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(
            self._accept, sock=_bind_for_owner(self._path), limit=LONGEST_REQUEST_BYTES
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
            pass  # the asker has gone; there is nobody to tell
        except asyncio.CancelledError:
            pass  # the run is over; asyncio's own caller would print this as an error
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            _check_user(writer)
            self._check_load()
            request = await _read_request(reader)
            if request.get("watch"):
                await _while_heard(reader, self._watch(request, writer))
            else:
                await _say(writer, {"ok": True, "result": self._requests.do(request)})
        except RequestError as error:
            await _say(writer, {"ok": False, "error": error.problem, "message": str(error)})
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            raise
        except Exception as error:  # the outermost shell of a request: the asker is told, the run goes on
            log.exception("a request failed")
            await _say(writer, {"ok": False, "error": RequestProblem.INTERNAL, "message": f"a bug of EDL: {error!r}"})

    def _check_load(self) -> None:
        if len(self._connections) > _MOST_CONNECTIONS:
            raise RequestError(RequestProblem.REFUSED, f"more than {_MOST_CONNECTIONS} terminals are asking")

    async def _watch(self, request: Mapping[str, Any], writer: asyncio.StreamWriter) -> None:
        if request.get("do") == "events":
            await self._watch_events(writer)
        elif request.get("do") == "get":
            await self._watch_objects(request, writer)
        else:
            raise RequestError(RequestProblem.USAGE, f"{request.get('do')} cannot be watched; get and events can")

    async def _watch_events(self, writer: asyncio.StreamWriter) -> None:
        queue: asyncio.Queue[RunEvent] = asyncio.Queue(_EVENT_BACKLOG)

        def put(event: RunEvent) -> None:
            with contextlib.suppress(asyncio.QueueFull):  # a reader that sleeps loses news, never the run
                queue.put_nowait(event)

        for event in self._run.recorder.events:
            put(event)
        self._run.recorder.on_event.append(put)
        try:
            while True:
                await _say(writer, {"ok": True, "item": asdict(await queue.get())})
        finally:
            self._run.recorder.on_event.remove(put)

    async def _watch_objects(self, request: Mapping[str, Any], writer: asyncio.StreamWriter) -> None:
        """Send each object when it first exists and whenever it changes, ages apart."""
        self._requests.do({**request, "do": "get"})  # refuses what is not there
        kind, name = parse_type(str(request.get("type"))), request.get("name")
        shown: dict[str, bytes] = {}
        while True:
            for found in objects_of(self._run.snapshot(), kind):
                key = str(found["metadata"]["name"])
                gist = encode({**found, "status": {k: v for k, v in found["status"].items() if k != "ageSeconds"}})
                if (not name or key == name) and shown.get(key) != gist:
                    shown[key] = gist
                    await _say(writer, {"ok": True, "item": found})
            await asyncio.sleep(_WATCH_EVERY_S)


def _check_user(writer: asyncio.StreamWriter) -> None:
    """A second line behind the socket's mode: the kernel says whose process asks.  Raises RequestError."""
    try:
        check_peer(writer.get_extra_info("socket"))
    except ForeignUserError as error:
        raise RequestError(RequestProblem.REFUSED, str(error)) from error


def _bind_for_owner(path: Path) -> socket.socket:
    """The socket, which is never there for others, not even for a moment.

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


async def _while_heard(reader: asyncio.StreamReader, telling: Coroutine[Any, Any, None]) -> None:
    """Send news until the caller has gone: without news its end would not be noticed, and its place stay taken."""
    told, gone = asyncio.create_task(telling), asyncio.create_task(reader.read(1))
    try:
        await asyncio.wait({told, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (told, gone):
            task.cancel()
        await asyncio.gather(told, gone, return_exceptions=True)
    if not told.cancelled():
        told.result()


async def _read_request(reader: asyncio.StreamReader) -> Mapping[str, Any]:
    try:
        async with asyncio.timeout(_SPEAK_DEADLINE_S):
            request = decode(await reader.readuntil(b"\n"))
    except asyncio.LimitOverrunError:
        raise RequestError(RequestProblem.USAGE, f"a request is at most {LONGEST_REQUEST_BYTES} bytes long") from None
    if request.get("v") != WIRE_VERSION:
        raise RequestError(
            RequestProblem.USAGE,
            f"this run speaks version {WIRE_VERSION}, the request {request.get('v')}: use the same edl",
        )
    return request


async def _say(writer: asyncio.StreamWriter, message: Mapping[str, Any]) -> None:
    writer.write(encode(message))
    async with asyncio.timeout(_SPEAK_DEADLINE_S):
        await writer.drain()
