"""Log lines and terminal output that others' text cannot forge: control characters are shown as escapes.

The problem: a script's output, a client's handshake or an event's note may hold escape codes that move or rename the
terminal, and line ends that forge a line of the log.  Nothing is dropped: each such character shows as its escape.
"""

from __future__ import annotations

import logging
import re
import time
from typing import Final

HEAD_WAITS: Final = "HEAD does not name %s yet: %s"
"""A master logs this, with manifest and reason, while its commits wait; a script that runs alone reads it there."""

_CONTROL_CHARACTERS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_CONTINUATION: Final = "\n    "
"""Before each further line of one record: a line that begins at the margin is a record of this process's own."""


def escape_controls(text: str) -> str:
    """The text with terminal control characters shown as escapes; lines and tabs stay."""
    return _CONTROL_CHARACTERS.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), text)


class PlainFormatter(logging.Formatter):
    """`2026-11-21T09:30:00.123Z WARNING master.term: ...`; only the first line of a record begins at the margin."""

    def __init__(self, form: str = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s") -> None:
        super().__init__(form, "%Y-%m-%dT%H:%M:%S")
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        return escape_controls(super().format(record)).replace("\n", _CONTINUATION)
