"""The last words of a process, for the people who ask why it ended."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

_LINES: Final = 8
_READ_BYTES: Final = 8192
_LONGEST_LINE: Final = 300


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

    A log that is shorter than `offset` was shortened meanwhile (`logbound`): all of it is this process'.
    """
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(offset if offset <= size else 0, size - _READ_BYTES))
            text = file.read(_READ_BYTES).decode(errors="replace")
    except OSError as error:
        return f"; its log cannot be read: {error}"
    lines = [line.rstrip()[:_LONGEST_LINE] for line in text.splitlines() if line.strip()][-_LINES:]
    return (
        "; the last lines of its log:\n" + "\n".join(f"  | {line}" for line in lines) if lines else "; it wrote nothing"
    )
