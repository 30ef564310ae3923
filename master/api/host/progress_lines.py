"""Progress of long work with bytes, as lines on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

_PRINTED_EVERY_S: Final = 2.0


class ProgressLines:
    """Called with the bytes done and all: prints a line every two seconds, so none for short work."""

    def __init__(self, verb: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._verb, self._clock = verb, clock
        self._printed_s = clock()

    def __call__(self, done_bytes: int, of_bytes: int) -> None:
        now_s = self._clock()
        if now_s - self._printed_s >= _PRINTED_EVERY_S:
            self._printed_s = now_s
            percent = 100 * done_bytes // of_bytes if of_bytes else 100
            print(f"{self._verb} {done_bytes:,} of {of_bytes:,} bytes ({percent} %)", file=sys.stderr, flush=True)  # noqa: T201
