"""Data port of a parameter server: pushes, pulls and copies, answered by the thread of their connection.

A job has tens of trainers, each with one connection to each server, and servers that hand buckets over.
"""

from __future__ import annotations

import logging
import socket
from typing import Final

from trainer_sdk.errors import TableError, WireError
from trainer_sdk.pserver.process.parameter_server import ParameterServer
from trainer_sdk.pserver.wire.bodies import BufferPool
from trainer_sdk.pserver.wire.heads import decode_pull, decode_push, encode_pull_answer, encode_push_answer
from trainer_sdk.pserver.wire.peer_heads import decode_backup_push, decode_copy, encode_copy_answer
from trainer_sdk.transport.connection_listener import ConnectionListener
from trainer_sdk.transport.frames import Frame, FrameChannel, FrameKind, WireLimits
from trainer_sdk.transport.handshake import PROBE, PeerRole
from trainer_sdk.transport.security import Security

log = logging.getLogger(__name__)

_BODY_SLOT: Final = -1


class DataListener(ConnectionListener):
    """Serves on a listening socket, which it owns, until `close`."""

    def __init__(
        self, service: ParameterServer, security: Security, listening: socket.socket, limits: WireLimits
    ) -> None:
        self._service = service
        super().__init__(security, listening, limits, service.incarnation)

    def serve_member(self, channel: FrameChannel, name: str, role: PeerRole) -> bool:
        """Answers requests until the peer closes."""
        if role is PeerRole.MEMBER:
            raise WireError("a member of a group at the data port of a parameter server")
        log.log(logging.DEBUG if name == PROBE else logging.INFO, "%s connected", name)
        pool = BufferPool()
        while (frame := channel.wait_for_frame()) is not None:
            arriving = _Arriving(channel, frame.body_bytes)
            try:
                if frame.kind is FrameKind.COPY:
                    self._receive_copy(arriving, frame, role)
                else:
                    self._answer(arriving, frame, pool, role)
            except (WireError, TableError) as error:
                arriving.skip()  # a peer that still sends does not read the refusal
                channel.send(FrameKind.REFUSED, str(error).encode())
                raise WireError(str(error)) from error
        return False

    def _answer(self, arriving: _Arriving, frame: Frame, pool: BufferPool, role: PeerRole) -> None:
        channel, body = arriving.channel, pool.view(_BODY_SLOT, frame.body_bytes)
        match frame.kind:
            case FrameKind.PUSH:
                answer = self._service.push(decode_push(frame.head), body, arriving.receive)
                is_followed = channel.has_input()  # by a pull
                channel.send(FrameKind.PUSH_ANSWER, encode_push_answer(answer), more=is_followed)
            case FrameKind.PULL:
                arriving.receive(body, body.nbytes)
                pulled, pieces = self._service.pull(decode_pull(frame.head), body, pool)
                channel.send(FrameKind.PULL_ANSWER, encode_pull_answer(pulled), pieces)
            case FrameKind.BACKUP_PUSH if role is PeerRole.SERVER:
                arriving.receive(body, body.nbytes)
                answer = self._service.push_as_backup(*decode_backup_push(frame.head), body)
                channel.send(FrameKind.PUSH_ANSWER, encode_push_answer(answer))
            case _:
                raise WireError(f"{frame.kind.name} instead of a request")

    def _receive_copy(self, arriving: _Arriving, frame: Frame, role: PeerRole) -> None:
        """Receives a copy; nothing is allocated for its body before the head is checked."""
        if role is not PeerRole.SERVER:
            raise WireError("a bucket from a peer that is not a parameter server")
        head = decode_copy(frame.head)
        status = self._service.transfer.try_answer(head)
        if status is None:
            body = self._service.transfer.body(frame.body_bytes)
            arriving.receive(body, body.nbytes)
            status = self._service.transfer.stage(head, body)
        else:
            arriving.skip()
        arriving.channel.send(FrameKind.COPY_ANSWER, encode_copy_answer(status))


class _Arriving:
    """Body of a frame while it is received."""

    def __init__(self, channel: FrameChannel, size: int) -> None:
        self.channel = channel
        self._left = size

    def receive(self, view: memoryview, least: int) -> int:
        """Fills the view with the next bytes, at least so many, and returns their number."""
        got = self.channel.receive_some_of(view, least)
        self._left -= got
        return got

    def skip(self) -> None:
        """Receives and drops the rest."""
        self.channel.discard(self._left)
        self._left = 0
