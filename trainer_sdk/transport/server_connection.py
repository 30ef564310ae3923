"""Connection of a trainer, or of another server, to one parameter server: opened on use, closed on any error."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from master.api.host.file_ownership import ForeignUserError
from master.api.host.unix_sockets import check_peer, is_socket_address, socket_path
from master.api.identities import ServerPlace
from trainer_sdk.errors import AuthenticationError, ServerUnavailableError
from trainer_sdk.transport.cancellation import Cancellation, Watchdog
from trainer_sdk.transport.frames import FrameChannel, WireLimits
from trainer_sdk.transport.handshake import PeerRole, connect_handshake
from trainer_sdk.transport.security import Security

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.1  # a server that left is known to have left by the next one


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """Settings of a connection to a parameter server."""

    name: str = "trainer"  # for the server's log
    role: PeerRole = PeerRole.TRAINER
    limits: WireLimits = field(default_factory=lambda: WireLimits(io_s=10.0))  # before a server counts as stopped
    budget_s: float = 2.0  # no new attempt after that: the route may have changed
    connect_s: float = 2.0  # one attempt
    buffer_bytes: int = 0  # SO_SNDBUF, bytes on their way; 0: the system's default


class ServerConnection:
    """Connection to one process of one server; another incarnation at the address is refused: it has another model."""

    def __init__(
        self,
        place: ServerPlace,
        security: Security,
        settings: ConnectionSettings,
        context: ssl.SSLContext | None,
        cancellation: Cancellation,
        *,
        is_outdated: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_outdated`: a newer route may name another process; then there is one attempt and no wait."""
        self.place = place
        self._is_outdated = is_outdated
        self._security = security
        self._settings, self._context = settings, context
        self._cancellation = cancellation
        self._watchdog = Watchdog(self._break_off)
        self._socket: socket.socket | None = None
        self._channel: FrameChannel | None = None
        self.has_unread_answers = False
        """A request was begun and its answers were not all read: the next request needs a new connection."""

    def channel(self, deadline_s: float) -> FrameChannel:
        """An open channel.  Raises ServerUnavailableError if there is none at the deadline (monotonic clock)."""
        pause_s = _FIRST_PAUSE_S
        while self._channel is None:
            try:
                self._channel = self._connect(deadline_s)
            except OSError as error:
                if time.monotonic() + pause_s > deadline_s or self._is_outdated():
                    raise ServerUnavailableError(f"{self.place.name} at {self.place.address}: {error}") from error
                self._cancellation.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return self._channel

    def wake_at(self, deadline_s: float) -> AbstractContextManager[None]:
        """Inside the block, waiting ends with an OSError at the deadline (monotonic clock).

        A channel's own limits are for single socket operations, which a peer that reads a little now and then keeps.
        """
        return self._watchdog.guard(deadline_s)

    def _break_off(self) -> None:
        """Called in the watchdog's thread; an attempt to connect has the same deadline."""
        if (sock := self._socket) is not None:
            self._cancellation.shut(sock)

    def close(self) -> None:
        """Closes the socket; the next use connects again.  A lost request may be sent again."""
        self._channel = None
        self.has_unread_answers = False
        if self._socket is not None:
            self._cancellation.close(self._socket)
            self._socket = None

    def _connect(self, deadline_s: float) -> FrameChannel:
        try:
            channel = FrameChannel(self._dial(deadline_s), self._settings.limits)
            incarnation = connect_handshake(channel, self._security, self._settings.name, self._settings.role)
        except BaseException:
            self.close()
            raise
        if incarnation != self.place.incarnation:
            self.close()
            raise ServerUnavailableError(
                f"{self.place.name} at {self.place.address} is another process than the route names: it was restarted"
            )
        return channel

    def _dial(self, deadline_s: float) -> socket.socket:
        """As `socket.create_connection`, with each socket known to `Cancellation` before it waits."""
        if is_socket_address(self.place.address):
            return self._dial_socket(deadline_s)
        host, _, port = self.place.address.rpartition(":")
        limit_s = max(0.05, min(self._settings.connect_s, deadline_s - time.monotonic()))
        problem = OSError("its name has no address")
        for family, kind, protocol, _, address in socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM):
            try:
                sock = self._hold(self._new_socket(family, kind, protocol))
                sock.settimeout(limit_s)
                sock.connect(address)
                return sock if self._context is None else self._encrypt(sock, self._context)
            except OSError as error:
                self.close()
                problem = error
        raise problem

    def _dial_socket(self, deadline_s: float) -> socket.socket:
        sock = self._hold(self._new_socket(socket.AF_UNIX, socket.SOCK_STREAM, 0))
        try:
            sock.settimeout(max(0.05, min(self._settings.connect_s, deadline_s - time.monotonic())))
            sock.connect(str(socket_path(self.place.address)))
            check_peer(sock)
        except ValueError as error:
            raise OSError(str(error)) from error
        except ForeignUserError as error:
            raise AuthenticationError(f"{self.place.name} at {self.place.address}: {error}") from error
        return sock if self._context is None else self._encrypt(sock, self._context)

    def _encrypt(self, sock: socket.socket, context: ssl.SSLContext) -> socket.socket:
        encrypted = context.wrap_socket(sock, do_handshake_on_connect=False)  # takes over the descriptor
        self.close()
        self._hold(encrypted)
        encrypted.do_handshake()
        return encrypted

    def _new_socket(self, family: int, kind: int, protocol: int) -> socket.socket:
        sock = socket.socket(family, kind, protocol)
        if self._settings.buffer_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._settings.buffer_bytes)
        return sock

    def _hold(self, sock: socket.socket) -> socket.socket:
        self._cancellation.add(sock)
        self._socket = sock
        return sock
