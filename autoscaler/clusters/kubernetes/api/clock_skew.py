"""Clock skew: how far the API server's clock is ahead, by the dates of its responses.  Pure.

A date is a whole second, and the server wrote it at some time between request and response.  So the skew lies in a
range, and the smallest skew of that range is reported: a slow machine widens the range and invents no skew.
"""

from __future__ import annotations

from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Final

RESOLUTION_S: Final = 1.0  # of the header `Date` (RFC 9110)


def clock_ahead_s(date: str, *, sent_s: float, received_s: float) -> float | None:
    """Return the smallest possible skew in seconds, negative for a clock that is behind; None for an invalid date.

    `sent_s`, `received_s`: Unix time here before the request was sent and after the response came.
    """
    try:
        date_s = parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    least_s, most_s = date_s - received_s, date_s + RESOLUTION_S - sent_s
    return max(0.0, least_s) + min(0.0, most_s)


class ServerClock:
    """The API server's Unix time, for instants that are compared with its clock.

    Before any response it is that of `unix_clock`.  From a response on it runs with `steady_clock`: a step of the clock
    here moves it no further, and the next response measures the skew anew.
    """

    def __init__(self, unix_clock: Callable[[], float], *, steady_clock: Callable[[], float]) -> None:
        self._unix_clock = unix_clock
        self._steady_clock = steady_clock
        self._offset_s: float | None = None  # from the steady clock to the server's Unix time, once it is known

    def set_ahead(self, ahead_s: float) -> None:
        """Take the skew of the newest response (`report_skew` of `http_client.connect`)."""
        self._offset_s = self._unix_clock() + ahead_s - self._steady_clock()

    def now_s(self) -> float:
        """Unix time of the server, seconds."""
        return self._unix_clock() if self._offset_s is None else self._steady_clock() + self._offset_s
