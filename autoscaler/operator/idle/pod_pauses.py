"""Pauses of pods that are let be: those that were told to leave, and those that may not now, for longer each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

DONE_S: Final = 3600.0  # a pod that was told to leave
REFUSED_S: Final = 600.0  # one whose removal the API server or its owner refused; twice as long each time
LONGEST_S: Final = 4800.0
MOST_REFUSED: Final = 10_000  # pods whose pauses are remembered beyond their ends


class PodPauses:
    """Pauses of one term, by the pods' UIDs.  `clock` runs evenly."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until_s: dict[str, float] = {}
        self._refused_s: dict[str, float] = {}  # the last pause of those that were refused

    def add_done(self, uid: str) -> None:
        """Let a pod be that was told to leave."""
        self._until_s[uid] = self._clock() + DONE_S

    def add_refused(self, uid: str) -> None:
        """Let a pod be for twice as long as the last time, `LONGEST_S` at most."""
        pause_s = min(2 * self._refused_s.get(uid, REFUSED_S / 2), LONGEST_S)
        self._refused_s[uid] = pause_s
        self._until_s[uid] = self._clock() + pause_s

    def __contains__(self, uid: object) -> bool:
        return uid in self._until_s

    def drop_ended(self) -> None:
        """Forget the pauses that are over."""
        now_s = self._clock()
        self._until_s = {uid: until_s for uid, until_s in self._until_s.items() if now_s < until_s}
        if len(self._refused_s) > MOST_REFUSED:
            self._refused_s = {uid: pause_s for uid, pause_s in self._refused_s.items() if uid in self._until_s}
