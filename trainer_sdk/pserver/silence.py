"""How long a backup has not taken what is passed on to it, as its owner sees it (rule 61, ADR 0318).

Silence is what was tried and failed.  Where nothing was tried, nobody was silent: trainers may compute for minutes, and
two failures so far apart are two silences.  Pure.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

TELL_EVERY_S: Final = 1.0
"""The master is told of a backup's silence at most so often."""

LONGEST_PAUSE_S: Final = 2.0
"""Between the end of a failure and the next attempt: trainers send again at once what is NOT_YET."""


class Silence(NamedTuple):
    """Of one backup, until something is taken by it; times of the monotonic clock."""

    since_s: float
    failed_s: float  # the last time
    told_s: float = -math.inf

    @property
    def is_due(self) -> bool:
        """Whether the master is to be told, now that an attempt has failed."""
        return self.failed_s - self.told_s >= TELL_EVERY_S

    def told(self) -> Silence:
        """The master has been told of all of it."""
        return self._replace(told_s=self.failed_s)


def failed(before: Silence | None, begun_s: float, now_s: float) -> Silence:
    """An attempt that began then has just failed."""
    if before is None:
        return Silence(begun_s, now_s)
    since_s = before.since_s if begun_s <= before.failed_s + LONGEST_PAUSE_S else begun_s
    return Silence(since_s, max(now_s, before.failed_s), before.told_s)
