"""What a terminal cannot show is replaced, not refused: a path or a frame must not end a run.

Nor is a terminal moved by what others wrote: a pod's output may hold escape codes that clear it or rename it (`Calm`);
of what is printed as lines `master.api.host.log_lines.at_rest` takes care.
"""

from __future__ import annotations

import io
import os
import re
import sys
from typing import Final

from master.api.host.log_lines import at_rest

_COLOUR: Final = re.compile(r"(\x1b\[[0-9;:]*m)")
_BEGUN: Final = re.compile(r"(\x1b(\[[0-9;:]{0,32})?|\r)\Z")
_NO_COLOUR: Final = "\x1b[0m"


def reopen_closed_streams() -> None:
    """A closed output or error stream, as cron may leave it, is there afterwards; what it gets is gone."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))


def replace_unencodable_characters() -> None:
    """From now on output never raises UnicodeEncodeError; a character that the encoding lacks becomes `?`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


class EscapeFilter:
    """What a pod writes, piece by piece, for a terminal: colours stay, all else that moves it is shown as its escape.

    A carriage return begins a new line: a progress bar stays readable, and nothing that was shown is overwritten.
    """

    def __init__(self) -> None:
        self._begun = ""  # of an escape whose rest is in the next piece

    def filter(self, piece: str) -> str:
        """What to write now."""
        text = self._begun + piece
        begun = _BEGUN.search(text)
        self._begun = begun.group() if begun else ""
        text = text[: len(text) - len(self._begun)].replace("\r\n", "\n").replace("\r", "\n")
        parts = _COLOUR.split(text)
        return "".join(part if number % 2 else at_rest(part) for number, part in enumerate(parts))

    def flush(self) -> str:
        """What is left at the end, and the terminal's own colours again."""
        return at_rest(self._begun) + _NO_COLOUR
