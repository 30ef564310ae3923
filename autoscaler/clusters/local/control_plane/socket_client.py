"""Client of a run's API socket: the port `Api` for commands in another terminal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from autoscaler.clusters.kubernetes.api.api_port import (
    ANY,
    EVERYWHERE,
    REQUEST_TIMEOUT_S,
    Listing,
    Preconditions,
    Propagation,
    Raw,
    Scope,
    Subresource,
    WatchEvent,
)
from autoscaler.clusters.kubernetes.api.errors import ForbiddenError, MalformedError, RefusedBy, UnavailableError
from autoscaler.clusters.kubernetes.api.kinds import Kind
from autoscaler.clusters.local.control_plane.api_wire import (
    LONGEST_MESSAGE_BYTES,
    decode_chunk,
    decode_error,
    decode_event,
    decode_listing,
    encode_call,
)
from master.api.host.file_ownership import ForeignUserError
from master.api.host.unix_sockets import check_peer

_READS: Final = frozenset({"check_create", "get", "list", "log", "watch"})


class SocketApi:
    """`api_port.Api` over the socket at this path; each call has a connection of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def list(self, kind: Kind, scope: Scope = EVERYWHERE) -> Listing:
        """See `Api.list`."""
        return decode_listing(await self._call("list", kind, scope=scope))

    async def watch(
        self, kind: Kind, scope: Scope = EVERYWHERE, *, since: str, timeout_s: float, silence_s: float
    ) -> AsyncGenerator[WatchEvent, None]:
        """See `Api.watch`."""
        bounds = {"since": since, "timeout_s": timeout_s, "silence_s": silence_s}
        async with self._stream("watch", kind, scope=scope, **bounds) as items:
            async for item in items:
                yield decode_event(item)

    async def get(
        self, kind: Kind, name: str, *, namespace: str | None = None, subresource: Subresource | None = None
    ) -> Raw:
        """See `Api.get`."""
        return await self._object("get", kind, name=name, namespace=namespace, subresource=subresource)

    async def create(self, kind: Kind, body: Raw) -> Raw:
        """See `Api.create`."""
        return await self._object("create", kind, body=body)

    async def check_create(self, kind: Kind, body: Raw) -> None:
        """See `Api.check_create`."""
        await self._call("check_create", kind, body=body)

    async def apply(
        self, kind: Kind, body: Raw, *, subresource: Subresource | None = None, is_forced: bool = True
    ) -> Raw:
        """See `Api.apply`."""
        return await self._object("apply", kind, body=body, subresource=subresource, is_forced=is_forced)

    async def patch(
        self,
        kind: Kind,
        name: str,
        change: Raw,
        *,
        namespace: str | None = None,
        only: Preconditions = ANY,
        subresource: Subresource | None = None,
    ) -> Raw:
        """See `Api.patch`."""
        where = {"name": name, "namespace": namespace, "only": only, "subresource": subresource}
        return await self._object("patch", kind, change=change, **where)

    async def delete(
        self,
        kind: Kind,
        name: str,
        *,
        namespace: str | None = None,
        only: Preconditions = ANY,
        grace_s: int | None = None,
        propagation: Propagation | None = None,
    ) -> None:
        """See `Api.delete`."""
        where = {"name": name, "namespace": namespace, "only": only}
        await self._call("delete", kind, grace_s=grace_s, propagation=propagation, **where)

    async def log(
        self,
        pod: str,
        *,
        namespace: str,
        container: str | None = None,
        tail_lines: int | None = None,
        is_followed: bool = False,
        is_previous: bool = False,
    ) -> AsyncGenerator[bytes, None]:
        """See `Api.log`."""
        options = {"container": container, "tail_lines": tail_lines}
        options |= {"is_followed": is_followed, "is_previous": is_previous}
        async with self._stream("log", None, pod=pod, namespace=namespace, **options) as items:
            async for item in items:
                yield decode_chunk(item)

    async def close(self) -> None:
        """See `Api.close`: nothing is held open."""

    async def _object(self, call: str, kind: Kind, **arguments: Any) -> Raw:
        found: Raw = await self._call(call, kind, **arguments)
        return found

    async def _call(self, call: str, kind: Kind, **arguments: Any) -> Any:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S), self._connection(call, kind, arguments) as reader:
                return (await self._next(reader, call))["result"]
        except TimeoutError:
            message = f"{call} {kind.plural}: no answer within {REQUEST_TIMEOUT_S:g} s"
            raise UnavailableError(message, may_have_happened=call not in _READS) from None

    @asynccontextmanager
    async def _stream(self, call: str, kind: Kind | None, **arguments: Any) -> AsyncIterator[AsyncIterator[Any]]:
        async with self._connection(call, kind, arguments) as reader:

            async def items() -> AsyncIterator[Any]:
                while "done" not in (message := await self._next(reader, call)):
                    yield message["item"]

            yield items()

    @asynccontextmanager
    async def _connection(
        self, call: str, kind: Kind | None, arguments: dict[str, Any]
    ) -> AsyncIterator[asyncio.StreamReader]:
        """A connection over which the call has been sent."""
        try:
            reader, writer = await asyncio.open_unix_connection(str(self._path), limit=LONGEST_MESSAGE_BYTES)
        except OSError as error:
            raise UnavailableError(f"the run does not answer: {error}", may_have_happened=False) from None
        try:
            check_peer(writer.get_extra_info("socket"))
            writer.write(encode_call(call, kind, arguments))
            await writer.drain()
            yield reader
        except ForeignUserError as error:
            raise ForbiddenError(f"this is the run of another user: {error}", RefusedBy.RBAC) from None
        except OSError as error:
            raise UnavailableError(f"{call}: connection lost: {error}", may_have_happened=call not in _READS) from None
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _next(self, reader: asyncio.StreamReader, call: str) -> dict[str, Any]:
        try:
            line = await reader.readline()  # ValueError: longer than the limit
            if not line:
                raise UnavailableError(
                    f"{call}: the run has ended, or has closed the connection", may_have_happened=call not in _READS
                )
            message: dict[str, Any] = json.loads(line)
        except ValueError as error:
            raise MalformedError(f"{call}: the answer cannot be read: {error}") from None
        if "error" in message:
            raise decode_error(message["error"])
        return message
