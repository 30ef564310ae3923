"""Keeps the logs of a run from filling the disk: of one that has grown too long, the newest part stays.

Pods write their logs themselves, appending, so a file may be shortened under them; what they write in that instant may
be lost.  A log is longer than its bound for at most `_LOOK_EVERY_S`.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

LONGEST_LOG_BYTES: Final = 64 << 20
_KEPT_BYTES: Final = 8 << 20
_LOOK_EVERY_S: Final = 1.0

log = logging.getLogger(__name__)


async def keep_logs_short(folder: Path) -> None:
    """Shorten the logs in `folder` whenever they need it; never ends."""
    while True:
        await asyncio.to_thread(shorten_long_ones, folder)
        await asyncio.sleep(_LOOK_EVERY_S)


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
