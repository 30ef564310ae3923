"""What a terminal cannot show is replaced, not refused: a path or a frame must not end a run.

Nor is a terminal moved by what others wrote: an event's note may hold escape codes that clear it or rename it.
"""

from __future__ import annotations

import io
import os
import re
import sys
from typing import Final

_MOVING: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def open_what_was_closed() -> None:
    """A closed output or error stream, as cron may leave it, is there afterwards; what it gets is gone."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))


def replace_what_cannot_be_shown() -> None:
    """From now on output never raises UnicodeEncodeError; a character that the encoding lacks becomes `?`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def at_rest(text: str) -> str:
    """The text with each character that moves a terminal shown as its escape; lines and tabs stay.  Logs stay raw."""
    return _MOVING.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), text)
