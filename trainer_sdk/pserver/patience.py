"""How long a process waits for parameter servers: until another thread ends it, for all connections at once.

A call waits in the kernel, seconds long where a server is stopped, and who has to leave has no such seconds (M7).
`end` shuts its sockets down under it: the call ends as if the server had gone, and no other begins.  Why not a shorter
time-out: every large transfer would pay for it, and one that is known when the call begins is too late.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from trainer_sdk.errors import ServerUnavailableError


class Patience:
    """Of one process with all parameter servers that it talks to.  Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()  # a socket that is being closed is not shut down: its number may be another's

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def end(self) -> None:
        """Whoever waits is woken with an OSError, or finds the connection closed; whoever would wait is refused."""
        with self._lock:
            self._over.set()
            for sock in self._sockets:
                _shut(sock)

    def shut(self, sock: socket.socket) -> None:
        """Whoever waits at this socket is woken with an OSError."""
        with self._lock:
            if sock in self._sockets:
                _shut(sock)

    def open(self, sock: socket.socket) -> None:
        """From now on waiting at this socket has an end.  Raises ServerUnavailableError when that was reached."""
        with self._lock:
            if self.is_over:
                sock.close()
                raise ServerUnavailableError("this process has to leave and waits no longer")
            self._sockets.add(sock)

    def close(self, sock: socket.socket) -> None:
        with self._lock:
            self._sockets.discard(sock)
            sock.close()

    def pause(self, pause_s: float) -> None:
        """So long, or until the end."""
        self._over.wait(pause_s)


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):  # not connected yet, or no longer
        # of an SSLSocket too: its own shutdown() would let what is being sent go on without encryption
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
