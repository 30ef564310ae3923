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
    """Calls a function when a deadline passes; one deadline at a time."""

    def __init__(self, ring: Callable[[], None]) -> None:
        """`ring` is called in the watchdog's thread; it must not block, nor use this watchdog."""
        self._ring = ring
        self._changed = threading.Condition()
        self._due_s = math.inf  # the deadline
        self._wakes_s: float | None = None  # when the thread checks again; None: there is no thread

    @contextmanager
    def guard(self, due_s: float) -> Iterator[None]:
        """Calls `ring` once if the block is not left by then (monotonic clock)."""
        with self._changed:
            self._due_s = due_s
            if self._wakes_s is None:
                threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
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
    """Cancellation of all waiting of one client with parameter servers.  Methods may be called from any thread."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()  # a closed socket is never shut down: its descriptor may be another's

    @property
    def is_cancelled(self) -> bool:
        return self._over.is_set()

    def cancel(self) -> None:
        """Wakes all waiting calls with an OSError or a closed connection; later calls are refused."""
        with self._lock:
            self._over.set()
            for sock in self._sockets:
                _shut(sock)

    def shut(self, sock: socket.socket) -> None:
        """Wakes a call that waits at this socket with an OSError."""
        with self._lock:
            if sock in self._sockets:
                _shut(sock)

    def add(self, sock: socket.socket) -> None:
        """Makes waiting at this socket cancellable.  Raises ServerUnavailableError if already cancelled."""
        with self._lock:
            if self.is_cancelled:
                sock.close()
                raise ServerUnavailableError("this process is leaving: the call was cancelled")
            self._sockets.add(sock)

    def close(self, sock: socket.socket) -> None:
        with self._lock:
            self._sockets.discard(sock)
            sock.close()

    def sleep(self, pause_s: float) -> None:
        """Sleeps so long, or until cancelled."""
        self._over.wait(pause_s)


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):  # not connected yet, or no longer
        # also for an SSLSocket: its own shutdown() would send the rest without encryption
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
