"""The gRPC server of the master: members' streams, and the cluster side's Status and SetServers.

A stream is a generator that sends what has gathered, with a reader task beside it.  A caller must prove the job's
secret where there is one (`auth_interceptor`), with TLS have a certificate of the job's authority, and say its wire
version first.  While this master does not lead, callers get UNAVAILABLE and try again.

Not here: any decision (`term.term_runtime`, `job`), the form of messages (`api.wire.message_codec`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NoReturn, TypeAlias

import grpc
import grpc.aio

from master.api.document import encode_document
from master.api.edl.master.v1 import master_pb2, master_pb2_grpc
from master.api.errors import MessageError
from master.api.host.fd_limits import most_connections
from master.api.host.file_ownership import ForeignUserError, check_private
from master.api.host.unix_sockets import has_listener
from master.api.master_status import JobStatus
from master.api.wire.calls import CONNECT, SET_SERVERS, STATUS
from master.api.wire.grpc_options import MOST_CONNECTIONS, SERVER_OPTIONS
from master.api.wire.hello import ANSWERED_METADATA_KEY, Hello, agreed_version
from master.api.wire.message_codec import decode_hello, decode_member_envelope, encode_hello, encode_master_envelope
from master.errors import InvalidSettingError, PortInUseError, TermEndedError
from master.process.auth_interceptor import AuthInterceptor
from master.process.master_config import ListenAddress, SocketAddress, TlsIdentity
from master.term.member_streams import MemberStream
from master.term.term_runtime import TermRuntime

log: Final = logging.getLogger(__name__)

HELLO_TIMEOUT_S: Final = 10.0
_AWAY: Final = "this master does not lead: try again, or try another master"

_Requests: TypeAlias = AsyncIterator[master_pb2.MemberEnvelope]
_Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class MasterServer(master_pb2_grpc.MasterServicer):
    """Serves the term that `serve_term` names; between terms it refuses members."""

    def __init__(self, *, hello: Hello, token: str) -> None:
        self._hello = hello
        self._gate = AuthInterceptor(token=token.encode(), job=hello.job) if token else None
        self._term: TermRuntime | None = None
        self._status_between_terms: JobStatus | None = None
        self._server: grpc.aio.Server | None = None

    def serve_term(self, term: TermRuntime | None) -> None:
        """Members are served by this term from now on; None: they are turned away."""
        self._term = term

    def publish_status(self, status: JobStatus | None) -> None:
        """The answer to Status while no term is served; None: no master leads."""
        self._status_between_terms = status

    @property
    def term(self) -> TermRuntime | None:
        return self._term

    async def start(
        self, listen: ListenAddress | SocketAddress, tls: TlsIdentity | None
    ) -> ListenAddress | SocketAddress:
        """Listens.  The answer has the port that was taken.  Raises PortInUseError, InvalidSettingError."""
        if isinstance(listen, SocketAddress):
            _check_socket(listen)
        interceptors = [self._gate] if self._gate else []
        bound = ("grpc.max_allowed_incoming_connections", most_connections(MOST_CONNECTIONS))  # more are cut at once
        server = grpc.aio.server(interceptors=interceptors, options=(*SERVER_OPTIONS, bound))
        master_pb2_grpc.add_MasterServicer_to_server(self, server)
        try:
            port = server.add_insecure_port(str(listen)) if tls is None else _add_secure_port(server, listen, tls)
        except RuntimeError as error:
            raise PortInUseError(str(listen)) from error
        await server.start()
        self._server = server
        return replace(listen, port=port) if isinstance(listen, ListenAddress) else listen

    async def stop(self, *, grace_s: float) -> None:
        """Ends every stream."""
        if self._server is not None:
            await self._server.stop(grace_s)

    # ---- Connect ----------------------------------------------------------------------------------------------------

    async def Connect(  # noqa: N802  the service's own name
        self, request_iterator: _Requests, context: _Context
    ) -> AsyncIterator[master_pb2.MasterEnvelope]:
        """A member's stream, until either side ends it."""
        term = await self._admit(context, CONNECT)
        first = await self._receive_hello(request_iterator, context)
        if first is None:
            return
        if term.is_over:  # it ended while the hello was awaited; a member without a stream retries
            await _refuse(context, grpc.StatusCode.UNAVAILABLE, _AWAY)
        stream = MemberStream(context.peer())
        term.open(stream)
        reader = asyncio.create_task(self._read(term, stream, first, request_iterator))
        try:
            yield encode_master_envelope((), hello=self._hello)
            while (messages := await stream.take()) and term.may_answer():
                yield encode_master_envelope(messages)
        finally:
            term.close(stream)
            reader.cancel()
            with suppress(asyncio.CancelledError):
                await reader
        who = stream.member.name if stream.member else stream.peer
        log.info("stream of %s ended: %s", who, stream.end_reason)
        if stream.wrong:
            await _refuse(context, grpc.StatusCode.INVALID_ARGUMENT, stream.wrong)

    async def _receive_hello(self, requests: _Requests, context: _Context) -> master_pb2.MemberEnvelope | None:
        """The first envelope, whose hello fits; None: the member left without one."""
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                first = await anext(requests, None)
            if first is not None:
                agreed_version(self._hello, decode_hello(first))
        except TimeoutError:
            await _refuse(context, grpc.StatusCode.DEADLINE_EXCEEDED, f"no hello within {HELLO_TIMEOUT_S:.0f} s")
        except MessageError as error:
            await _refuse(context, grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return first

    async def _read(
        self, term: TermRuntime, stream: MemberStream, first: master_pb2.MemberEnvelope, requests: _Requests
    ) -> None:
        try:
            await term.receive(stream, decode_member_envelope(first))
            async for envelope in requests:
                await term.receive(stream, decode_member_envelope(envelope))
        except MessageError as error:
            log.warning("%s: %s", stream.peer, error)
            stream.wrong = str(error)
            stream.finish("a message was refused")
        except grpc.aio.AbortError:
            stream.finish("the stream broke")
        except Exception:
            log.exception("reading the stream of %s failed: a bug of this master", stream.peer)
            stream.finish("a bug of this master")
        else:
            stream.finish("the member closed it")

    # ---- Status -----------------------------------------------------------------------------------------------------

    async def Status(  # noqa: N802  the service's own name
        self, request: master_pb2.StatusRequest, context: _Context
    ) -> master_pb2.StatusReply:
        """The job as of now; the call may set its backoffLimit.

        UNAVAILABLE, marked as an answer: another master leads, or none.
        """
        await self._prove(context, STATUS)
        await self._check_hello(request, context)
        if self._term is None and self._status_between_terms:
            status = self._status_between_terms
        else:
            term = await self._leading(context)
            if request.HasField("backoff_limit"):
                term.set_backoff_limit(request.backoff_limit)
            if request.comparison:
                term.compare_replicas(request.comparison)
            status = term.status()
        return master_pb2.StatusReply(hello=encode_hello(self._hello), job_status_json=encode_document(status))

    # ---- SetServers -------------------------------------------------------------------------------------------------

    async def SetServers(  # noqa: N802  the service's own name
        self, request: master_pb2.SetServersRequest, context: _Context
    ) -> master_pb2.SetServersReply:
        """The number of servers that holds afterwards.  UNAVAILABLE, marked as an answer: another master leads."""
        term = await self._admit(context, SET_SERVERS)
        await self._check_hello(request, context)
        try:
            answer = await term.set_servers(request.count)
        except TermEndedError as error:
            await _refuse(context, grpc.StatusCode.UNAVAILABLE, str(error))
        return master_pb2.SetServersReply(hello=encode_hello(self._hello), answer_json=encode_document(answer))

    # ---- access control ---------------------------------------------------------------------------------------------

    async def _check_hello(
        self, request: master_pb2.StatusRequest | master_pb2.SetServersRequest, context: _Context
    ) -> None:
        if request.HasField("hello"):
            try:
                agreed_version(self._hello, decode_hello(request))
            except MessageError as error:
                await _refuse(context, grpc.StatusCode.FAILED_PRECONDITION, str(error))

    async def _admit(self, context: _Context, method: str) -> TermRuntime:
        await self._prove(context, method)
        return await self._leading(context)

    async def _prove(self, context: _Context, method: str) -> None:
        """Sends the master's own proof for a call that the interceptor has let through."""
        if self._gate is not None:
            await context.send_initial_metadata(self._gate.answer(method, context.invocation_metadata()))

    async def _leading(self, context: _Context) -> TermRuntime:
        if self._term is None or not self._term.may_answer():
            await _refuse(context, grpc.StatusCode.UNAVAILABLE, _AWAY)
        return self._term


async def _refuse(context: _Context, code: grpc.StatusCode, text: str) -> NoReturn:
    await context.abort(code, text, trailing_metadata=((ANSWERED_METADATA_KEY, "1"),))
    raise AssertionError("abort raises")


def _check_socket(listen: SocketAddress) -> None:
    """Raises InvalidSettingError if other users could reach the socket, PortInUseError if it is listened at.

    gRPC would take the place of a process that serves there.
    """
    try:
        check_private(listen.path.parent)
    except (ForeignUserError, OSError) as error:
        raise InvalidSettingError("EDL_LISTEN", str(error), hint="Name a socket in a folder of mode 0700") from error
    if has_listener(listen.path):
        raise PortInUseError(str(listen))


def _add_secure_port(server: grpc.aio.Server, listen: ListenAddress | SocketAddress, tls: TlsIdentity) -> int:
    credentials = grpc.ssl_server_credentials(
        [(tls.key, tls.certificate)], root_certificates=tls.ca, require_client_auth=True
    )
    return server.add_secure_port(str(listen), credentials)
