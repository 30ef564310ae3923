"""How far the API server's clock is ahead of ours, by the dates of its answers.  Pure.

A date is a whole second, and the answer was made at some time between question and hearing: so there is a range, and
what is told is the least difference that explains it.  A slow machine widens the range and makes up no difference.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import Final

RESOLUTION_S: Final = 1.0  # of the header `Date` (RFC 9110)


def clock_ahead_s(date: str, *, asked_s: float, heard_s: float) -> float | None:
    """Return by how much at least, negative where it is behind; 0: no difference shows; None: the date is none.

    `asked_s`, `heard_s`: Unix time here before the question was sent and after the answer came.
    """
    try:
        said_s = parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    least_s, most_s = said_s - heard_s, said_s + RESOLUTION_S - asked_s
    return max(0.0, least_s) + min(0.0, most_s)
