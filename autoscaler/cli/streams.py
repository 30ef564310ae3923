"""What a terminal cannot show is replaced, not refused: a path or a frame must not end a run."""

from __future__ import annotations

import io
import sys


def replace_what_cannot_be_shown() -> None:
    """From now on output never raises UnicodeEncodeError; a character that the encoding lacks becomes `?`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
