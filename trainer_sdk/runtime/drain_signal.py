"""SIGTERM handler of a session: finish the batch and leave (M7), then call the handler from before.

It is installed while the session is open.  In a process that the script forks, SIGTERM keeps its earlier meaning: a
pool ends its workers with it, and waits for them.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class DrainSignal:
    """Calls `drain` at SIGTERM, then the handler from before.  Outside the main thread it does nothing.

    `drain` runs between two byte codes of the script and must take no lock.
    """

    def __init__(self, drain: Callable[[], None]) -> None:
        self._drain = drain
        self._pid = os.getpid()
        self._before: Any = None
        self._is_installed = False

    def install(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self._before = signal.signal(signal.SIGTERM, self._handle)
        self._is_installed = True

    def restore(self) -> None:
        if not self._is_installed or threading.current_thread() is not threading.main_thread():
            return
        self._is_installed = False
        if signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, self._before if self._before is not None else signal.SIG_DFL)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() == self._pid:
            self._drain()
        elif not callable(self._before):
            self.restore()
            os.kill(os.getpid(), number)
            return
        if callable(self._before):
            self._before(number, frame)
