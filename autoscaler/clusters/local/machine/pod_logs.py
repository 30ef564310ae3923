"""Logs of a run's processes: the last lines of one that ended, and a bound on the length of all.

The pod supervisor appends what pods write (`pod_output`), so a file may be shortened under it; what comes in that
instant may be lost.  A log is longer than `LONGEST_LOG_BYTES` for at most `_CHECK_EVERY_S`.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path
from typing import Final

LOG_HEADING: Final = "; the last lines of its log:"
LONGEST_LOG_BYTES: Final = 64 << 20
_KEPT_BYTES: Final = 8 << 20
_CHECK_EVERY_S: Final = 1.0
_LINES: Final = 8
_READ_BYTES: Final = 8192
_LONGEST_LINE: Final = 300

log = logging.getLogger(__name__)


def describe_exit(code: int) -> str:
    """`exited with 1`, `was killed by SIGKILL`."""
    if code >= 0:
        return f"exited with {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def read_tail(log: Path, offset: int = 0) -> str:
    """The last lines that were written behind `offset`, indented, with a heading that says when there are none.

    A log that is shorter than `offset` was shortened meanwhile (`shorten`): all of it is this process'.
    """
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(offset if offset <= size else 0, size - _READ_BYTES))
            text = file.read(_READ_BYTES).decode(errors="replace")
    except OSError as error:
        return f"; its log cannot be read: {error}"
    lines = [line.rstrip()[:_LONGEST_LINE] for line in text.splitlines() if line.strip()][-_LINES:]
    return f"{LOG_HEADING}\n" + "\n".join(f"  | {line}" for line in lines) if lines else "; it wrote nothing"


async def keep_logs_short(folder: Path) -> None:
    """Shorten the logs in `folder` whenever they need it; never ends."""
    while True:
        await asyncio.to_thread(shorten_long_ones, folder)
        await asyncio.sleep(_CHECK_EVERY_S)


def shorten_long_ones(folder: Path) -> None:
    """Afterwards no log in `folder` is longer than its bound, unless the disk refuses, which is logged."""
    for path in folder.glob("*.log"):
        try:
            if path.stat().st_size > LONGEST_LOG_BYTES:
                shorten(path)
        except OSError as error:
            log.warning("%s cannot be shortened: %s", path, error)


def shorten(path: Path) -> None:
    """Drop the beginning.  The file says how much is gone and then goes on with a whole line.  Raises OSError."""
    with path.open("r+b") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _KEPT_BYTES))
        kept = file.read(_KEPT_BYTES)
        kept = kept[kept.find(b"\n") + 1 :]
        file.truncate(0)
    with path.open("ab") as file:
        file.write(f"[edl: the first {size - len(kept)} bytes of this log were dropped]\n".encode() + kept)
