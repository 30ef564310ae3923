"""Standard streams that never break a command, and logs of pods without dangerous escape sequences.

A character that a terminal cannot show is replaced, since a path must not end a run.  A pod's log may hold escape
sequences that clear or rename the terminal (`EscapeFilter`); lines of EDL's own go through
`master.api.host.log_lines.escape_controls`.
"""

from __future__ import annotations

import io
import os
import re
import sys
from typing import Final

from master.api.host.log_lines import escape_controls

_COLOUR: Final = re.compile(r"(\x1b\[[0-9;:]*m)")
_BEGUN: Final = re.compile(r"(\x1b(\[[0-9;:]{0,32})?|\r)\Z")
_NO_COLOUR: Final = "\x1b[0m"


def reopen_closed_streams() -> None:
    """Replace a closed output or error stream, as cron may leave it, by the null device."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))


def replace_unencodable_characters() -> None:
    """Make output never raise UnicodeEncodeError: a character that the encoding lacks becomes `?`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


class EscapeFilter:
    """Filter of a log, piece by piece, for a terminal: colours stay, other escape sequences are shown as text.

    A carriage return begins a new line, so that a progress bar stays readable and overwrites nothing.
    """

    def __init__(self) -> None:
        self._begun = ""  # an escape sequence whose rest is in the next piece

    def filter(self, piece: str) -> str:
        """The text to write for this piece."""
        text = self._begun + piece
        begun = _BEGUN.search(text)
        self._begun = begun.group() if begun else ""
        text = text[: len(text) - len(self._begun)].replace("\r\n", "\n").replace("\r", "\n")
        parts = _COLOUR.split(text)
        return "".join(part if number % 2 else escape_controls(part) for number, part in enumerate(parts))

    def flush(self) -> str:
        """The text to write at the end, which resets the colours."""
        return escape_controls(self._begun) + _NO_COLOUR
