"""HTTP connections to an API server: deadlines, credentials, retries, typed errors.  Nothing else imports `kubernetes`.

Of the client library EDL uses the configuration (kubeconfig, service account, proxies, exec plug-ins) and the
connections; its typed objects cost five times the time and memory (ADR 0150).  Every request has:

- a deadline.  A write has one for all attempts together, and the server knows it: a fenced write has happened or never
  will by then, also if this process was stopped between two attempts;
- credentials that are read again once after a 401; a write is sent again within its deadline;
- retries where they are safe: of reads, and of writes that the server has not begun.  A write without an answer is
  never repeated; `UnavailableError.may_have_happened` leaves that to the caller;
- TCP keepalive probes, so that a peer that vanished is noticed within seconds;
- a check of the server's clock (`clock_skew`).

The requests themselves are built in `http_client`.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

import aiohttp
from aiohttp.connector import NEEDS_CLEANUP_CLOSED
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import load_incluster_config, load_kube_config
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    stop_after_delay,
    stop_before_delay,
    wait_random_exponential,
)
from tenacity.wait import wait_base

from autoscaler.clusters.kubernetes.api.api_port import REQUEST_TIMEOUT_S, Raw
from autoscaler.clusters.kubernetes.api.clock_skew import clock_ahead_s
from autoscaler.clusters.kubernetes.api.errors import ThrottledError, TooLongError, UnavailableError
from autoscaler.clusters.kubernetes.api.responses import decode_json, error_of_status
from autoscaler.errors import PermanentError

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"  # JSON is YAML

_OF_THE_SERVER: Final = (
    "host",
    "ssl_ca_cert",
    "ca_cert_data",
    "verify_ssl",
    "disable_strict_ssl_verification",
    "tls_server_name",
    "proxy",
    "proxy_headers",
)
"""Attributes of the library's configuration that find and check the server; all others identify the client."""

ReportSkew: TypeAlias = Callable[[float], None]
LoadCredentials: TypeAlias = Callable[[Configuration], Awaitable[None]]
NextAttempt: TypeAlias = Callable[[], tuple["ApiRequest", aiohttp.ClientTimeout]]
"""Returns the request to send now and its time limit; raises UnavailableError past the deadline."""


def ignore_skew(_ahead_s: float) -> None:
    """Drop the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionPolicy:
    """Time limits and retries of a connection."""

    request_timeout_s: float = REQUEST_TIMEOUT_S
    page_timeout_s: float = 30.0  # of one page of a listing: 500 pods take 0.1 s on an idle server
    attempts: int = 4  # none begins later than `budget_s`; those of a write end with its deadline
    budget_s: float = 10.0
    longest_wait_s: float = 5.0  # between two attempts; a longer Retry-After is left to the caller
    keepalive_idle_s: int = 5  # then a probe every 2 s, twice: a peer that vanished is noticed after 9 s


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """One request; `description` opens every error message ("create pods default/x")."""

    description: str
    path: str
    method: str = "GET"
    query: Mapping[str, str] = field(default_factory=dict)
    body: Raw | None = None
    content_type: str = JSON
    is_secret: bool = False

    @property
    def is_write(self) -> bool:
        """True if the request can change something."""
        return self.method != "GET"


async def open_connection(
    kubeconfig: Path | None, context: str | None, policy: ConnectionPolicy, *, report_skew: ReportSkew = ignore_skew
) -> ApiConnection:
    """Return a connection by a kubeconfig, or by the service account of the pod that this process runs in.

    Nothing is sent yet.  `report_skew` is called with the server's clock skew at each new date.  Raises PermanentError
    if neither is usable.
    """
    configuration, load = await _load_configuration(kubeconfig, context)
    return ApiConnection(configuration, load, policy, report_skew)


async def open_connection_as(token: str, kubeconfig: Path | None, policy: ConnectionPolicy) -> ApiConnection:
    """Return a connection to the same API server as `open_connection`, under this bearer token and nothing else.

    A client certificate of the kubeconfig would count before the token, and a write would be its owner's: of the
    configuration only what finds and checks the server is taken.  A 401 is final: no other token takes its place.
    Raises PermanentError if the configuration is not usable.
    """
    configured, _ = await _load_configuration(kubeconfig, None)
    alone = Configuration()
    for name in _OF_THE_SERVER:
        setattr(alone, name, getattr(configured, name))
    alone.api_key = {"BearerToken": f"Bearer {token}"}

    async def keep(_into: Configuration) -> None:
        pass

    return ApiConnection(alone, keep, policy)


async def _load_configuration(kubeconfig: Path | None, context: str | None) -> tuple[Configuration, LoadCredentials]:
    """Return the configuration, and what loads it again.  Raises PermanentError."""

    async def load(into: Configuration) -> None:
        try:
            if kubeconfig is None:
                load_incluster_config(into)
            else:
                await load_kube_config(
                    str(kubeconfig), context=context, client_configuration=into, persist_config=False
                )
        except Exception as error:  # whatever the library raises on a broken document
            raise PermanentError(f"cannot configure access to the API server: {error}; give a kubeconfig") from error

    configuration = Configuration()
    await load(configuration)
    if not configuration.host.startswith(("http://", "https://")):
        problem = f"{configuration.host[:100]!r} is no address of a server: write https://HOST:PORT"
        raise PermanentError(f"cannot configure access to the API server: {problem}")
    return configuration, load


class ApiConnection:
    """Connections to one API server under one identity.  Raises PermanentError for a certificate that is none."""

    def __init__(
        self,
        configuration: Configuration,
        load: LoadCredentials,
        policy: ConnectionPolicy,
        report_skew: ReportSkew = ignore_skew,
    ) -> None:
        self.policy: Final = policy
        self._report_skew = report_skew
        self._date = ""  # header of the last response
        self._configuration = configuration
        self._load = load
        try:
            self._pool = _Pool(configuration, policy)
        except OSError as error:  # ssl's are: no certificate, or a key of another one
            problem = f"a certificate or its key cannot be used: {error}"
            raise PermanentError(f"cannot configure access to the API server: {problem}; give a kubeconfig") from error

    async def send(self, request: ApiRequest, *, timeout_s: float | None = None, most_bytes: int | None = None) -> Any:
        """Return the decoded response; retries, deadlines and errors as the module says.

        Raises TooLongError once more than `most_bytes` have come; the rest is not read.
        """
        limit_s = timeout_s or self.policy.request_timeout_s
        ends_s = time.monotonic() + limit_s
        last = stop_before_delay(limit_s) if request.is_write else stop_after_delay(self.policy.budget_s)
        retrying = AsyncRetrying(
            retry=retry_if_exception(self._is_retryable),
            stop=stop_after_attempt(self.policy.attempts) | last,
            wait=_RetryWait(self.policy.longest_wait_s),
            reraise=True,
        )
        whole = (request, aiohttp.ClientTimeout(total=limit_s))
        sending = partial(_within, request, ends_s) if request.is_write else lambda: whole
        return await retrying(self._send_once, request, sending, most_bytes)

    @asynccontextmanager
    async def stream(
        self, request: ApiRequest, *, total_s: float | None, silence_s: float | None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open the body as a stream.  UnavailableError after `total_s`, or after `silence_s` without a byte."""
        connect_s = self.policy.request_timeout_s
        limits = aiohttp.ClientTimeout(total=total_s, connect=connect_s, sock_read=silence_s)
        async with self._answer(lambda: (request, limits)) as answer:
            try:
                yield answer.content.iter_any()
            finally:  # a stream closed early aborts its connection without a TLS shutdown
                if not answer.content.at_eof() and answer.connection and answer.connection.transport:
                    answer.connection.transport.abort()

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.close()

    async def _send_once(self, request: ApiRequest, sending: NextAttempt, most_bytes: int | None) -> Any:
        async with self._answer(sending) as answer:
            body = bytearray()
            async for chunk in answer.content.iter_any():
                body += chunk
                if most_bytes is not None and len(body) > most_bytes:
                    raise TooLongError(f"{request.description}: more than {most_bytes:,} bytes")
        try:
            return decode_json(body)
        except (ValueError, RecursionError) as error:  # a proxy's page
            raise UnavailableError(f"{request.description}: {error}", may_have_happened=request.is_write) from error

    def _is_retryable(self, error: BaseException) -> bool:
        match error:
            case ThrottledError():
                return error.retry_after_s <= self.policy.longest_wait_s
            case UnavailableError():
                return not error.may_have_happened
            case _:
                return False

    @asynccontextmanager
    async def _answer(self, sending: NextAttempt) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield a 2xx response with its body unread; failures within the block are raised as `errors`."""
        request, limits = sending()
        sent_s = time.time()
        try:
            answer = await self._send(request, limits)
            if answer.status == 401:  # not carried out; the token file may hold a newer token
                answer.release()
                async with asyncio.timeout(limits.total):
                    await self._load(self._configuration)
                answer = await self._send(*sending())
            self._observe_clock(answer, sent_s)
            async with answer:
                if answer.status >= 300:
                    await _raise_refusal(request, answer)
                yield answer
        except aiohttp.ClientConnectorError as error:  # before a byte was sent
            raise UnavailableError(f"{request.description}: {error}", may_have_happened=False) from error
        except (aiohttp.ClientError, OSError) as error:  # a TimeoutError is an OSError
            message = str(error) or type(error).__name__
            raise UnavailableError(f"{request.description}: {message}", may_have_happened=request.is_write) from error

    def _observe_clock(self, answer: aiohttp.ClientResponse, sent_s: float) -> None:
        date = answer.headers.get("Date", "")
        if date == self._date:
            return
        self._date = date
        if (ahead_s := clock_ahead_s(date, sent_s=sent_s, received_s=time.time())) is not None:
            self._report_skew(ahead_s)

    async def _send(self, request: ApiRequest, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        token = await self._configuration.get_api_key_with_prefix("BearerToken")
        if token and not token.isprintable():
            raise PermanentError(
                "the token for the API server has a line break, or another sign that no header may have"
            )
        headers = {"Accept": JSON, "Content-Type": request.content_type, "User-Agent": "edl"}
        query = f"?{urlencode(request.query)}" if request.query else ""
        return await self._pool.send(
            request.method,
            f"{self._configuration.host}{request.path}{query}",
            headers=headers | ({"Authorization": token} if token else {}),
            body=request.body,
            limits=limits,
        )


def _within(request: ApiRequest, ends_s: float) -> tuple[ApiRequest, aiohttp.ClientTimeout]:
    """Return the write with the deadline `ends_s` for this process and for the server."""
    left_s = round(ends_s - time.monotonic(), 2)
    if left_s <= 0:
        raise UnavailableError(f"{request.description}: its deadline has passed", may_have_happened=False)
    limited = replace(request, query={**request.query, "timeout": f"{left_s:g}s"})
    return limited, aiohttp.ClientTimeout(total=left_s)


async def _raise_refusal(request: ApiRequest, answer: aiohttp.ClientResponse) -> None:
    raw = await answer.read()
    try:
        status = decode_json(raw)
    except (ValueError, RecursionError):
        status = None  # a proxy's page, or plain text: the HTTP code has to do
    raise error_of_status(
        answer.status,
        status,
        description=request.description,
        is_write=request.is_write,
        is_secret=request.is_secret,
        retry_after=answer.headers.get("Retry-After"),
    )


class _Pool(RESTClientObject):
    """The library's connection pool, with keepalive probes."""

    def __init__(self, configuration: Configuration, policy: ConnectionPolicy) -> None:
        super().__init__(configuration)
        self._policy = policy

    async def send(
        self, method: str, url: str, *, headers: Mapping[str, str], body: Raw | None, limits: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        """Return the response with its body unread."""
        pending = super().request(  # type: ignore[no-untyped-call]
            method, url, headers=dict(headers), body=body, _request_timeout=limits
        )
        answer = await pending
        response: aiohttp.ClientResponse = answer.response
        return response

    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(
            limit=self.maxsize,
            ssl=self.ssl_context,
            socket_factory=self._socket,
            enable_cleanup_closed=NEEDS_CLEANUP_CLOSED,  # a peer that hangs answers no TLS shutdown
        )

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        family, type_, proto, _, _ = address
        opened = socket.socket(family=family, type=type_, proto=proto)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option, value in (
            ("TCP_KEEPIDLE", self._policy.keepalive_idle_s),
            ("TCP_KEEPINTVL", 2),
            ("TCP_KEEPCNT", 2),
        ):
            if hasattr(socket, option):  # Linux has them all
                opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        return opened


class _RetryWait(wait_base):
    """Wait between attempts: the server's Retry-After, and at least a random, growing pause."""

    def __init__(self, longest_s: float) -> None:
        self._pause = wait_random_exponential(multiplier=0.1, max=longest_s)

    def __call__(self, retry_state: RetryCallState) -> float:
        error = retry_state.outcome.exception() if retry_state.outcome else None
        retry_after_s = error.retry_after_s if isinstance(error, ThrottledError) else 0.0
        return max(retry_after_s, self._pause(retry_state))
