"""Data port of a parameter server: one thread for each connection, blocking sockets.

A job has tens of trainers, each with one connection to each server, and servers that hand buckets over.  A blocked
thread costs nothing and holds no lock, and large copies, hashes and socket calls release the interpreter.  Invalid
bytes end their own connection, never the server.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from master.api.host.file_ownership import ForeignUserError
from master.api.host.unix_sockets import check_peer
from trainer_sdk.errors import AuthenticationError, TableError, WireError
from trainer_sdk.pserver.process.parameter_server import ParameterServer
from trainer_sdk.pserver.transport.frames import Frame, FrameChannel, FrameKind, WireLimits
from trainer_sdk.pserver.transport.handshake import PROBE, PeerRole, welcome_client
from trainer_sdk.pserver.transport.security import Security
from trainer_sdk.pserver.wire.bodies import BufferPool
from trainer_sdk.pserver.wire.heads import decode_pull, decode_push, encode_pull_answer, encode_push_answer
from trainer_sdk.pserver.wire.peer_heads import decode_backup_push, decode_copy, encode_copy_answer

log = logging.getLogger(__name__)

_MAX_CONNECTIONS: Final = 1024  # of members
_MAX_HANDSHAKES: Final = 256
"""Most connections in the handshake; beyond it the oldest is cut.  A member needs milliseconds, so it is not cut."""
_BODY_SLOT: Final = -1
_ACCEPT_PAUSE_S: Final = 0.1


class DataListener:
    """Serves on a listening socket, which it owns, until `close`."""

    def __init__(
        self, service: ParameterServer, security: Security, listening: socket.socket, limits: WireLimits
    ) -> None:
        self._service, self._security, self._limits = service, security, limits
        self._context = security.server_context()
        self._socket = listening
        self._handshaking: dict[socket.socket, None] = {}  # oldest first
        self._open: set[socket.socket] = set()  # of members
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._accept, name="accept", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        """Stops serving and cuts all connections."""
        with self._lock:
            self._is_closed = True
            for sock in (self._socket, *self._handshaking, *self._open):
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
        is_named = self._socket.family == socket.AF_UNIX
        path = str(self._socket.getsockname()) if is_named else ""
        self._socket.close()
        self._thread.join()
        if is_named:
            Path(path).unlink(missing_ok=True)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._socket.accept()
            except OSError as error:
                if self._is_closed:
                    return
                log.warning("accept failed: %s", error)  # out of descriptors, for example: open connections stay
                time.sleep(_ACCEPT_PAUSE_S)
                continue
            if not self._admit(sock):
                sock.close()
                continue
            self._begin(sock)

    def _begin(self, sock: socket.socket) -> None:
        """Starts the connection's thread; without a thread the connection is closed, and others are still accepted."""
        try:
            threading.Thread(target=self._serve, args=(sock,), name="connection", daemon=True).start()
        except RuntimeError as error:  # no memory, or a limit on tasks, of which strangers may hold many
            log.warning("a connection was cut: %s", error)
            with self._lock:
                self._handshaking.pop(sock, None)
            sock.close()
            time.sleep(_ACCEPT_PAUSE_S)

    def _admit(self, sock: socket.socket) -> bool:
        """Registers a new connection; False if the listener is closed."""
        with self._lock:
            if self._is_closed:
                return False
            if len(self._handshaking) >= _MAX_HANDSHAKES:
                oldest = next(iter(self._handshaking))
                del self._handshaking[oldest]
                with suppress(OSError):
                    socket.socket.shutdown(oldest, socket.SHUT_RDWR)  # its thread ends and closes it
            self._handshaking[sock] = None
            return True

    def _admit_encrypted(self, raw: socket.socket, encrypted: socket.socket) -> None:
        """Registers the TLS socket, which has the descriptor now.  Raises WireError if it was cut meanwhile."""
        with self._lock:
            if raw not in self._handshaking:
                raise WireError("closed: too many unfinished handshakes")
            del self._handshaking[raw]
            self._handshaking[encrypted] = None

    def _admit_member(self, sock: socket.socket) -> None:
        """Counts the connection as a member's.  Raises WireError: too many members, or it was cut meanwhile."""
        with self._lock:
            if sock not in self._handshaking:
                raise WireError("closed: too many unfinished handshakes")
            if len(self._open) >= _MAX_CONNECTIONS:
                raise WireError(f"more than {_MAX_CONNECTIONS} connections of members")
            del self._handshaking[sock]
            self._open.add(sock)

    def _serve(self, sock: socket.socket) -> None:
        """Serves one connection to its end; any error ends it and is logged once."""
        raw = sock
        try:
            sock.settimeout(self._limits.hello_s)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            check_peer(sock)
            if self._context is not None:
                sock = self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
                self._admit_encrypted(raw, sock)
                sock.do_handshake()
            channel = FrameChannel(sock, self._limits)
            name, role = welcome_client(channel, self._security, self._service.incarnation)
            self._admit_member(sock)
            log.log(logging.DEBUG if name == PROBE else logging.INFO, "%s connected", name)
            self._serve_frames(channel, role)
        except (WireError, AuthenticationError, ForeignUserError, OSError) as error:
            log.info("connection ended: %s", error)
        except Exception:
            log.exception("connection ended by an error of this server")
        finally:
            with self._lock:
                self._open.discard(sock)
                for one in (raw, sock):
                    self._handshaking.pop(one, None)
            sock.close()

    def _serve_frames(self, channel: FrameChannel, role: PeerRole) -> None:
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

    def _answer(self, arriving: _Arriving, frame: Frame, pool: BufferPool, role: PeerRole) -> None:
        channel, body = arriving.channel, pool.view(_BODY_SLOT, frame.body_bytes)
        match frame.kind:
            case FrameKind.PUSH:
                answer = self._service.push(decode_push(frame.head), body, arriving.receive)
                channel.send(
                    FrameKind.PUSH_ANSWER, encode_push_answer(answer), more=channel.has_input()
                )  # a pull follows
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
