"""Listening for members of the job: one thread for each connection, blocking sockets, bounded numbers.

A blocked thread costs nothing and holds no lock, and large copies, hashes and socket calls release the interpreter.
Strangers push out one another, never a member; invalid bytes end their own connection, never the process.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Final

from master.api.host.file_ownership import ForeignUserError
from master.api.host.unix_sockets import check_peer
from trainer_sdk.errors import AuthenticationError, WireError
from trainer_sdk.transport.forked_children import close_in_children
from trainer_sdk.transport.frames import FrameChannel, WireLimits
from trainer_sdk.transport.handshake import PeerRole, welcome_client
from trainer_sdk.transport.security import Security

log = logging.getLogger(__name__)

_MAX_CONNECTIONS: Final = 1024  # of members
_MAX_HANDSHAKES: Final = 256
"""Most connections in the handshake; beyond it the oldest is cut.  A member needs milliseconds, so it is not cut."""
_ACCEPT_PAUSE_S: Final = 0.1


class ConnectionListener(ABC):
    """Accepts and authenticates connections on a listening socket, which it owns, until `close`."""

    def __init__(self, security: Security, listening: socket.socket, limits: WireLimits, incarnation: str) -> None:
        """`incarnation`: of this process, told to each client."""
        self._security, self._limits, self._incarnation = security, limits, incarnation
        self._context = security.server_context()
        self._socket = listening
        close_in_children(listening)
        self._handshaking: dict[socket.socket, None] = {}  # oldest first
        self._open: set[socket.socket] = set()  # of members
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._accept, name="accept", daemon=True)
        self._thread.start()

    @abstractmethod
    def serve_member(self, channel: FrameChannel, name: str, role: PeerRole) -> bool:
        """Serves a member's connection, in its own thread; an error ends the connection.

        True: the socket was handed over (`FrameChannel.release`), and whoever has it closes it.
        """

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
        raw, is_handed_over = sock, False
        try:
            sock.settimeout(self._limits.hello_s)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            check_peer(sock)
            if self._context is not None:
                sock = self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
                self._admit_encrypted(raw, sock)
                sock.do_handshake()
            channel = FrameChannel(sock, self._limits)
            name, role = welcome_client(channel, self._security, self._incarnation)
            self._admit_member(sock)
            is_handed_over = self.serve_member(channel, name, role)
        except (WireError, AuthenticationError, ForeignUserError, OSError) as error:
            log.info("connection ended: %s", error)
        except Exception:
            log.exception("connection ended by an error of this process")
        finally:
            with self._lock:
                self._open.discard(sock)
                for one in (raw, sock):
                    self._handshaking.pop(one, None)
            if not is_handed_over:
                sock.close()
