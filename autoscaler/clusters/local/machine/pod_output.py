"""Output of a pod: a pipe that the pod supervisor copies to the pod's log (ADR 0321).

The problem: a process whose output is a file gets an error from `print` when the disk is full, and ends.  So a pod
writes into a pipe, and what its log cannot take is dropped: the log says how much once it can be written again.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

_READ_BYTES: Final = 1 << 16
MOST_AT_END_BYTES: Final = 1 << 21
"""Of what a pod left in its pipe: twice what an unprivileged process may make of one (pipe(7))."""


class PodOutput:
    """The reading end of a pod's pipe, and its log.  `pod_end` is the writing end, for the pod alone."""

    def __init__(self, log: str) -> None:
        """Raises OSError."""
        self.path: Final = log
        self._log: Final = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._pipe, self.pod_end = os.pipe()
        except OSError:
            os.close(self._log)
            raise
        os.set_blocking(self._pipe, False)
        self._lost_bytes = 0
        self.problem = ""
        self.is_told = False

    def fileno(self) -> int:
        """The reading end."""
        return self._pipe

    def close_pod_end(self) -> None:
        """The pod has the writing end, or will never have it."""
        os.close(self.pod_end)

    def close(self) -> None:
        """Another write to the pipe is a broken pipe."""
        os.close(self._pipe)
        os.close(self._log)

    def copy(self) -> int:
        """Number of bytes that were in the pipe, at most one read; 0: none now.  Raises EOFError: nobody writes more.

        `problem` says why the log cannot be written; empty: it can.
        """
        try:
            data = os.read(self._pipe, _READ_BYTES)
        except BlockingIOError:
            return 0
        if not data:
            raise EOFError
        self._write(data)
        return len(data)

    def copy_rest(self) -> None:
        """Copies what an ended pod has left in its pipe; no more than a pipe holds, whoever still writes to it."""
        rest = MOST_AT_END_BYTES
        with suppress(EOFError):
            while rest > 0 and (count := self.copy()):
                rest -= count

    def _write(self, data: bytes) -> None:
        notice = f"\n[edl: {self._lost_bytes} bytes are missing: {self.problem}]\n" if self._lost_bytes else ""
        rest = notice.encode() + data
        try:
            while rest:
                rest = rest[os.write(self._log, rest) :]
        except OSError as error:
            if len(rest) > len(data):
                self._lost_bytes += len(data)
            else:  # the log has the notice of what was missing before
                self._lost_bytes = len(rest)
            self.problem = error.strerror or str(error)
        else:
            self._lost_bytes, self.problem = 0, ""
