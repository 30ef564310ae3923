"""Calls to etcd: which member, with what token, for how long, and what its errors mean.

One gRPC channel a member, one in use until it fails, then the next.  Not one channel with round robin: a member that
hangs would keep taking its share of the calls, and a certificate is checked against the name of its own member.
gRPC's own retries are off: a transaction sent twice would find its own first attempt and call it a conflict.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import grpc
import grpc.aio

from master.errors import LeaseLostError, MasterError, PermanentError, StoreAccessError, StoreUnavailableError
from master.store.etcd.etcd_config import EtcdConfig, Tls, grpc_target
from master.store.etcd.stubs import rpc, stubs

OPTIONS: Final = (
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),  # do not share back-off with other channels
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),  # also the time for one connection attempt
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.keepalive_time_ms", 6_000),  # etcd answers faster pings than 5 s with GOAWAY
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
)
HAS_LEADER: Final = ("hasleader", "true")  # a member without a leader ends our streams instead of leaving them silent

TEMPORARY: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)
EXPIRED: Final = "invalid auth token"
OLD_REVISION: Final = "revision of auth store is old"
"""Somebody's user or role was changed while the request was under way: nothing happened, and it may be sent again."""
STALE_ATTEMPTS: Final = 8
STALE_PAUSE_S: Final = 0.01
"""At most, at random: where users change one after another, half of the requests meet a change (ADR 0165)."""
JWT_DOTS: Final = 2
REFUSED: Final = ("authentication failed", "permission denied", "user name is empty")

Method: TypeAlias = Callable[[grpc.aio.Channel], Any]
Response = TypeVar("Response")


class StaleTokenError(StoreUnavailableError):
    """The request was refused for its token, or since users changed meanwhile: nothing happened, send it again."""


@dataclass(frozen=True, slots=True, eq=False)
class EtcdEndpoint:
    """One etcd process and the connection to it."""

    endpoint: str
    channel: grpc.aio.Channel


class EtcdChannel:
    """The members, one of them in use."""

    def __init__(self, config: EtcdConfig) -> None:
        self.config = config
        self._members = tuple(_open(endpoint, config.tls) for endpoint in config.endpoints)
        self._current = 0
        self._token: str | None = None
        self._authenticating = asyncio.Lock()

    @property
    def current(self) -> EtcdEndpoint:
        return self._members[self._current]

    def switch_from(self, member: EtcdEndpoint) -> None:
        """The member failed: the next one is in use, unless another call has moved on already."""
        if member is self.current:
            self._current = (self._current + 1) % len(self._members)

    def forget_token(self) -> None:
        self._token = None

    def handle_stale_token(self, details: str) -> None:
        """Forgets the token unless it is still good.

        A simple token outlives changes of other users; a JWT is bound to the revision at which it was made.  A new
        one costs etcd a password hash, which it starts again with every change of a user: under many changes it never
        ends.
        """
        is_bound = self._token is not None and self._token.count(".") == JWT_DOTS
        if OLD_REVISION not in details or is_bound:
            self.forget_token()

    async def call(self, method: Method, request: Any) -> Any:
        """One attempt at one member within the call deadline, and again at once where only the token was refused.

        Raises StoreUnavailableError (the next call goes to the next member), StoreAccessError, LeaseLostError.
        """
        return await retry_stale(lambda: self._attempt(method, request))

    async def open_stream(self, member: EtcdEndpoint, method: Method) -> Any:
        """A stream to that member.  Its errors go through `failed`."""
        try:
            return method(member.channel)(metadata=[*await self._metadata(member), HAS_LEADER])
        except grpc.aio.AioRpcError as error:
            raise self.failed(member, error) from error

    def failed(self, member: EtcdEndpoint, error: grpc.aio.AioRpcError) -> MasterError:
        """The master's error for etcd's; the next call uses another member, or another token."""
        details = error.details() or ""
        if self._token is not None and is_stale_token(details):
            self.handle_stale_token(details)
            return StaleTokenError(f"etcd refused a token: {details}", retry_after_s=0.0)
        failure = translate(error)
        if isinstance(failure, StoreUnavailableError):
            self.switch_from(member)
        return failure

    async def authenticate(self) -> None:
        """Gets a token: etcd knows our user and password.  Raises StoreAccessError, StoreUnavailableError."""
        member = self.current
        try:
            await self._metadata(member)
        except grpc.aio.AioRpcError as error:
            raise self.failed(member, error) from error

    async def close(self) -> None:
        for member in self._members:
            await member.channel.close()

    async def _attempt(self, method: Method, request: Any) -> Any:
        member = self.current
        try:
            metadata = await self._metadata(member)
            call: Awaitable[Any] = method(member.channel)(
                request, timeout=self.config.call_deadline_s, metadata=metadata
            )
            return await call
        except grpc.aio.AioRpcError as error:
            raise self.failed(member, error) from error

    async def _metadata(self, member: EtcdEndpoint) -> Sequence[tuple[str, str]]:
        credentials = self.config.credentials
        if credentials is None:
            return ()
        async with self._authenticating:
            if self._token is None:
                request = rpc.AuthenticateRequest(name=credentials.user, password=credentials.password)
                authenticate = stubs.AuthStub(member.channel).Authenticate
                self._token = str((await authenticate(request, timeout=self.config.call_deadline_s)).token)
            return (("token", self._token),)


def translate(error: grpc.aio.AioRpcError) -> MasterError:
    code, details = error.code(), error.details() or ""
    if code in {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED} or is_refusal(details):
        return StoreAccessError(f"etcd refused the master: {details}. Check EDL_ETCD_USER and its role.")
    if "lease not found" in details:
        return LeaseLostError("etcd no longer knows the lease")
    if code in TEMPORARY:
        return StoreUnavailableError(f"etcd does not answer: {code.name}, {details}")
    return PermanentError(f"etcd refused a request: {code.name}, {details}")


async def retry_stale(attempt: Callable[[], Awaitable[Response]]) -> Response:
    """The attempt's answer; repeated while etcd refuses it for its token alone.  Raises the last one's error."""
    for _ in range(STALE_ATTEMPTS - 1):
        try:
            return await attempt()
        except StaleTokenError:
            await asyncio.sleep(random.uniform(0, STALE_PAUSE_S))  # noqa: S311  not a secret
    return await attempt()


def is_stale_token(details: str) -> bool:
    return EXPIRED in details or OLD_REVISION in details


def is_refusal(details: str) -> bool:
    """True if etcd does not accept the user; a watch reports an expired token in the same words."""
    return is_stale_token(details) or any(sign in details for sign in REFUSED)


def _open(endpoint: str, tls: Tls | None) -> EtcdEndpoint:
    target = grpc_target(endpoint)
    if tls is None:
        return EtcdEndpoint(endpoint, grpc.aio.insecure_channel(target, options=OPTIONS))
    credentials = grpc.ssl_channel_credentials(
        root_certificates=tls.ca, private_key=tls.key, certificate_chain=tls.certificate
    )
    return EtcdEndpoint(endpoint, grpc.aio.secure_channel(target, credentials, options=OPTIONS))
