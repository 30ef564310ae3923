"""Connections to the masters of jobs: ask for progress, set the number of parameter servers."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import grpc
import grpc.aio

from autoscaler.jobs.progress import JobProgress, MalformedAnswer, MissingAnswer, WhyNoAnswer, progress_of, shortened
from master.api.edl.master.v1 import master_pb2
from master.api.edl.master.v1.master_pb2_grpc import MasterStub
from master.api.errors import ContractError
from master.api.master_status import decode_status
from master.api.servers_answer import ServersAnswer, decode_answer
from master.api.wire.call_proof import Prover
from master.api.wire.calls import SET_SERVERS, STATUS, call_master
from master.api.wire.grpc_options import CLIENT_OPTIONS
from master.api.wire.hello import ANSWERED_METADATA_KEY, Hello
from master.api.wire.message_codec import encode_hello

if TYPE_CHECKING:
    from master.api.edl.master.v1.master_pb2_grpc import MasterAsyncStub  # exists for type checkers alone

_DEADLINE_S: Final = 1.0
_MOST_BYTES: Final = 4 << 20
"""Size limit of one answer; a job of 10,000 members needs this much.

A master may be any program of the job's owner (A11).
"""
_LONGEST_DECODE_S: Final = 4e-6
"""Upper bound of decode time per byte of an answer, four times the slowest measured; time beyond it (a garbage
collection, say) is not charged to the master.
"""
_LONG_BYTES: Final = 64 << 10  # longer ones are decoded in a thread, for they keep the loop waiting
_OPTIONS: Final = tuple((dict(CLIENT_OPTIONS) | {"grpc.max_receive_message_length": _MOST_BYTES}).items())

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterTls:
    """TLS identity for a master, in PEM: the authority of its certificate, and our certificate.

    `host`: the name in its certificate.
    """

    authority: bytes
    certificate: bytes
    key: bytes = field(repr=False)
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterEndpoint:
    """Endpoint of a master: its address and credentials.  `job` is its EDL_JOB, `address` host:port."""

    job: str
    address: str
    token: str = field(repr=False)
    tls: MasterTls | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _MasterConnection:
    """Connection to a master with its mutual proof of the job's token."""

    endpoint: MasterEndpoint
    channel: grpc.aio.Channel
    prover: Prover


class MasterConnections:
    """A channel to each master.  An async context: they are closed behind it.

    A channel to an address where nobody listens is closed at once: its reconnects, every second to hundreds of
    masters, would take a part of a core.  Decoding time is measured, because an oversized answer takes seconds (A11);
    long answers are decoded one at a time, in a thread.
    """

    def __init__(self) -> None:
        self._connections: dict[str, dict[str, _MasterConnection]] = {}  # by job, then by address
        self._malformed: dict[str, str] = {}  # by job, as it was logged last
        self._decode_s: dict[str, float] = {}  # by job: decode time of its last answer
        self._long = asyncio.Lock()  # while a long answer is read

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for job in tuple(self._connections):
            await self.keep_only(job, frozenset())

    async def try_poll(self, endpoint: MasterEndpoint) -> JobProgress | None:
        """Do as `poll`; return None if there is no progress."""
        answer = await self.poll(endpoint)
        return answer if isinstance(answer, JobProgress) else None

    async def poll(
        self, endpoint: MasterEndpoint, *, backoff_limit: int | None = None, comparison: str = ""
    ) -> JobProgress | MissingAnswer:
        """Return the master's status within a second.  Its numbers are checked for their ranges, its texts cut.

        `backoff_limit` is set at a master that leads, so that an edit of the job reaches it; `comparison` names a
        request for a comparison of its replicas.
        """
        line = await self._connection(endpoint)
        stub: MasterAsyncStub = MasterStub(line.channel)
        request = master_pb2.StatusRequest(
            hello=encode_hello(Hello(job=endpoint.job, software="edl")),
            backoff_limit=backoff_limit,
            comparison=comparison,
        )
        try:
            reply = await call_master(line.prover, stub.Status, STATUS, request, limit_s=_DEADLINE_S)
            return await self._decode(endpoint.job, reply.job_status_json)
        except grpc.aio.AioRpcError as error:
            if _has_answered(error):
                return WhyNoAnswer.NOT_LEADING
            if error.code() is grpc.StatusCode.UNAVAILABLE:  # no connection; one that is slow may stand the next time
                await self._close(endpoint.job, endpoint.address)
            return WhyNoAnswer.SILENT
        except ContractError as error:
            return self._log_malformed(endpoint.job, error)

    async def set_servers(self, endpoint: MasterEndpoint, count: int) -> ServersAnswer | MissingAnswer:
        """Set the job's number of servers; the answer has the number that is stored durably.

        Idempotent: the newest number counts.  An impossible number is `refused` with field and reason.
        """
        line = await self._connection(endpoint)
        stub: MasterAsyncStub = MasterStub(line.channel)
        hello = encode_hello(Hello(job=endpoint.job, software="edl"))
        request = master_pb2.SetServersRequest(hello=hello, count=count)
        try:
            reply = await call_master(line.prover, stub.SetServers, SET_SERVERS, request, limit_s=_DEADLINE_S)
            return decode_answer(reply.answer_json)
        except grpc.aio.AioRpcError as error:
            return WhyNoAnswer.NOT_LEADING if _has_answered(error) else WhyNoAnswer.SILENT
        except ContractError as error:
            return self._log_malformed(endpoint.job, error)

    def decode_s(self, job: str) -> float:
        """Return how many seconds of a core it took to read the last answer of the job's master."""
        return self._decode_s.get(job, 0.0)

    async def keep_only(self, job: str, addresses: frozenset[str]) -> None:
        """Close the channels to masters of the job that are no more."""
        for address in [address for address in self._connections.get(job, ()) if address not in addresses]:
            await self._close(job, address)

    async def _decode(self, job: str, answer: bytes) -> JobProgress:
        read = partial(self._decode_now, job, answer)
        if len(answer) <= _LONG_BYTES:
            return read()
        async with self._long:
            return await asyncio.to_thread(read)

    def _decode_now(self, job: str, answer: bytes) -> JobProgress:
        began_s = time.thread_time()
        try:
            return progress_of(decode_status(answer))
        finally:
            self._decode_s[job] = min(time.thread_time() - began_s, len(answer) * _LONGEST_DECODE_S)

    def _log_malformed(self, job: str, error: ContractError) -> MalformedAnswer:
        """Logged when it is another one than before, however often it is asked."""
        problem = shortened(str(error))
        if self._malformed.get(job) != problem:
            log.warning("the master of %s sent an invalid status: %s", job, problem)
        self._malformed[job] = problem
        return MalformedAnswer(problem=problem)

    async def _close(self, job: str, address: str) -> None:
        known = self._connections.get(job, {})
        if (found := known.pop(address, None)) is not None:
            if not known:
                del self._connections[job]
                self._malformed.pop(job, None)
                self._decode_s.pop(job, None)
            await found.channel.close(_DEADLINE_S)  # requests in flight finish first

    async def _connection(self, endpoint: MasterEndpoint) -> _MasterConnection:
        known = self._connections.get(endpoint.job, {}).get(endpoint.address)
        if known is not None and known.endpoint == endpoint:
            return known
        line = _MasterConnection(
            endpoint=endpoint, channel=_open(endpoint), prover=Prover(token=endpoint.token, job=endpoint.job)
        )
        self._connections.setdefault(endpoint.job, {})[endpoint.address] = line
        if known is not None:  # its certificates have been renewed
            await known.channel.close()
        return line


def _has_answered(error: grpc.aio.AioRpcError) -> bool:
    return any(key == ANSWERED_METADATA_KEY for key, _ in error.trailing_metadata() or ())


def _open(endpoint: MasterEndpoint) -> grpc.aio.Channel:
    if endpoint.tls is None:
        return grpc.aio.insecure_channel(endpoint.address, options=_OPTIONS)
    credentials = grpc.ssl_channel_credentials(
        root_certificates=endpoint.tls.authority,
        private_key=endpoint.tls.key,
        certificate_chain=endpoint.tls.certificate,
    )
    name = ("grpc.ssl_target_name_override", endpoint.tls.host)
    return grpc.aio.secure_channel(endpoint.address, credentials, options=(*_OPTIONS, name))
