"""Waking a thread that waits in the kernel: for one connection at a deadline, or for all connections at once.

A call waits in the kernel, for seconds where a server is stopped, and a process that has to leave has no such seconds
(M7).  `Cancellation.cancel` shuts the sockets down under the waiting calls: each ends as if the server had gone, and no
other begins.  A shorter time-out would not do: every large transfer would pay for it, and the deadline may become known
only after the call began.

A `threading.Timer` is a thread for each deadline, and starting one costs more than most of what it guards.  `Watchdog`
keeps one thread for the next deadline; the thread ends by itself when no deadline has come for a while.
"""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from trainer_sdk.errors import ServerUnavailableError

_IDLE_S: Final = 10.0


class Watchdog:
    """For one deadline at a time."""

    def __init__(self, ring: Callable[[], None]) -> None:
        """`ring` is called in a thread of its own; it may not block, nor use this alarm."""
        self._ring = ring
        self._changed = threading.Condition()
        self._due_s = math.inf  # the deadline
        self._wakes_s: float | None = None  # when the thread looks again; None: there is none

    @contextmanager
    def guard(self, due_s: float) -> Iterator[None]:
        """Rings once if the block is not left by then (monotonic clock), and not afterwards."""
        with self._changed:
            self._due_s = due_s
            if self._wakes_s is None:
                threading.Thread(target=self._watch, name="alarm", daemon=True).start()
                self._wakes_s = due_s
            elif due_s < self._wakes_s:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._due_s = math.inf

    def _watch(self) -> None:
        with self._changed:
            idle_until_s = time.monotonic() + _IDLE_S
            while (now_s := time.monotonic()) < idle_until_s or self._due_s < math.inf:
                if self._due_s <= now_s:
                    self._due_s = math.inf
                    self._ring()
                if self._due_s < math.inf:
                    idle_until_s = self._due_s + _IDLE_S
                self._wakes_s = min(self._due_s, idle_until_s)
                self._changed.wait(self._wakes_s - now_s)
            self._wakes_s = None


class Cancellation:
    """Of one process with all parameter servers that it talks to.  Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()  # a socket that is being closed is not shut down: its number may be another's

    @property
    def is_cancelled(self) -> bool:
        return self._over.is_set()

    def cancel(self) -> None:
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

    def add(self, sock: socket.socket) -> None:
        """From now on waiting at this socket has an end.  Raises ServerUnavailableError when that was reached."""
        with self._lock:
            if self.is_cancelled:
                sock.close()
                raise ServerUnavailableError("this process has to leave and waits no longer")
            self._sockets.add(sock)

    def close(self, sock: socket.socket) -> None:
        with self._lock:
            self._sockets.discard(sock)
            sock.close()

    def sleep(self, pause_s: float) -> None:
        """So long, or until the end."""
        self._over.wait(pause_s)


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):  # not connected yet, or no longer
        # of an SSLSocket too: its own shutdown() would let what is being sent go on without encryption
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
