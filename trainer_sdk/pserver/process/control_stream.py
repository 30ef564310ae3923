"""Control stream of a parameter server: its registration at the master and the master's orders.

On each new stream the server registers with the lineage that it holds, so a restarted master learns the lineage and
requests again whatever it missed.  The server keeps its model whatever happens to the stream.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from master.api.identities import Incarnation, MemberName
from master.api.messages.from_members import RegisterServer, ServerLeaving, ServerMessage
from master.api.messages.to_members import (
    Activate,
    AskMarks,
    Cut,
    Drop,
    Fenced,
    Forget,
    Freeze,
    Hold,
    MasterMessage,
    Refused,
    Released,
    Restore,
    ServerWelcome,
    Skip,
    ToServer,
)
from trainer_sdk.master_stream import MasterAddress, MasterStream
from trainer_sdk.pserver.core.shutdown import MasterJoined, MasterLost, RefusedByMaster, ReleasedByMaster, ShutdownEvent
from trainer_sdk.pserver.process.parameter_server import ParameterServer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerIdentity:
    """Identity under which this server registers."""

    name: MemberName
    ordinal: int
    incarnation: Incarnation
    address: str  # host:port of its data path


class ControlStream:
    """Registers, hands orders to the server and sends its answers; `happened` gets events that may end the process."""

    def __init__(self, identity: ServerIdentity, happened: Callable[[ShutdownEvent], None]) -> None:
        self._identity = identity
        self._on_event = happened
        self._service: ParameterServer | None = None
        self._is_leaving = False
        self._stream = MasterStream(self)

    def serve(self, service: ParameterServer, address: MasterAddress) -> None:
        """Connects to the master and serves its orders."""
        self._service = service
        self._stream.connect(address)

    def send(self, message: ServerMessage) -> None:
        """Sends the message if there is a stream; a master that missed it requests it again.  Never blocks."""
        self._stream.send((message,))

    def leave(self, reason: str) -> None:
        """Tells the master, now and on every later stream, that this server has to go."""
        self._is_leaving = True
        self.send(ServerLeaving(reason=reason))

    def close(self) -> None:
        self._stream.close()

    # ---- what happens on the stream, in the channel's thread --------------------------------------------------------

    def stream_opened(self) -> None:
        self._register()

    def stream_broken(self, reason: str) -> None:
        log.warning("the stream to the master is broken (%s); the model is kept", reason)
        self._on_event(MasterLost())

    def refused(self, reason: str) -> None:
        self._on_event(RefusedByMaster(reason=reason))

    def received(self, messages: tuple[MasterMessage, ...]) -> None:
        for message in messages:
            self._handle(message)

    def _handle(self, message: MasterMessage) -> None:
        if not isinstance(message, ToServer):
            log.error("a message for trainers arrived: %s", type(message).__name__)
            return
        match message:
            case Restore() | AskMarks() | Hold() | Cut() | Drop() | Skip() | Freeze() | Activate() | Forget():
                if self._service is not None:
                    log.debug("%s", message)
                    self._service.control(message)
            case ServerWelcome():
                log.info("registered, term %d, lineage %d", message.term, message.lineage)
                self._on_event(MasterJoined())
            case Fenced():
                log.warning("fenced: %s; registering again", message.reason)
                self._register()
            case Released():
                is_owning = self._service is not None and self._service.has_buckets
                log.info("released%s", ": no server is left to take its buckets" if is_owning else ", with no buckets")
                self._on_event(ReleasedByMaster())
            case Refused():
                self._on_event(RefusedByMaster(reason=f"{message.field} {message.message}"))
            case _:
                assert_never(message)

    def _register(self) -> None:
        if self._service is None:
            return
        me = self._identity
        self.send(
            RegisterServer(
                name=me.name,
                ordinal=me.ordinal,
                incarnation=me.incarnation,
                address=me.address,
                lineage=self._service.lineage,
                is_leaving=self._is_leaving,
            )
        )
