"""A trainer's connection to one parameter server: made when needed, thrown away when anything goes wrong."""

from __future__ import annotations

import socket
import ssl
import time
from dataclasses import dataclass, field

from master.api.identities import ServerPlace
from trainer_sdk.errors import ServerUnavailableError
from trainer_sdk.pserver.handshake import greet_server
from trainer_sdk.pserver.security import Security
from trainer_sdk.pserver.wire import Channel, WireLimits

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How a trainer talks to parameter servers."""

    name: str = "trainer"  # for the server's log
    limits: WireLimits = field(default_factory=lambda: WireLimits(io_s=10.0))  # of a server that stopped
    budget_s: float = 2.0  # no new attempt after that: the route may have changed meanwhile
    connect_s: float = 2.0  # one attempt


class Connection:
    """To one process of one server: another incarnation at the same address is refused, it holds another model."""

    def __init__(
        self, place: ServerPlace, security: Security, settings: ClientSettings, context: ssl.SSLContext | None
    ) -> None:
        self.place = place
        self._security = security
        self._settings, self._context = settings, context
        self._channel: Channel | None = None

    def channel(self, deadline_s: float) -> Channel:
        """An open channel.  Raises ServerUnavailableError when there is none at the deadline (monotonic clock)."""
        pause_s = _FIRST_PAUSE_S
        while self._channel is None:
            try:
                self._channel = self._connect(deadline_s)
            except OSError as error:
                if time.monotonic() + pause_s > deadline_s:
                    raise ServerUnavailableError(f"{self.place.name} at {self.place.address}: {error}") from error
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return self._channel

    def close(self) -> None:
        """The next use connects again.  What was under way is lost; the same request may be sent again."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _connect(self, deadline_s: float) -> Channel:
        host, _, port = self.place.address.rpartition(":")
        limit_s = max(0.05, min(self._settings.connect_s, deadline_s - time.monotonic()))
        sock = socket.create_connection((host.strip("[]"), int(port)), timeout=limit_s)
        try:
            if self._context is not None:
                sock = self._context.wrap_socket(sock)
            channel = Channel(sock, self._settings.limits)
            incarnation = greet_server(channel, self._security, self._settings.name)
        except BaseException:
            sock.close()
            raise
        if incarnation != self.place.incarnation:
            sock.close()
            raise ServerUnavailableError(
                f"{self.place.name} at {self.place.address} is another process than the route names: it was restarted"
            )
        return channel
