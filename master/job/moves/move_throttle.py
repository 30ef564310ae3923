"""How many buckets are on their way together: enough that a server always has one to send.

A server sends the rows of one bucket after another ahead, and freezes each when they have arrived and no more at once
than a batch may wait for (ADR 0314); so here it is bounded what a target keeps beside its model, and what is undone if
it is lost.  Servers do not stand in each other's way, so the pace is that of each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from master.job.domain import Intent
from master.job.placement.owner_placement import Move
from master.job.state.job_state import JobState

AT_ONCE_UNWEIGHED: Final = 2
"""On their way together from or to one server, while nobody has said what they weigh."""


class Pace:
    """What each server has on its way, in bytes, by ordinal."""

    def __init__(self, state: JobState, intents: Iterable[Intent]) -> None:
        self._weights, self._most = state.weights, state.config.moving_bytes
        self._most_buckets = state.config.moves_at_once
        self._bytes: dict[int, int] = {}
        self._buckets: dict[int, int] = {}
        ordinals = {server.key: ordinal for ordinal, server in state.members.servers.items()}
        for intent in intents:
            ends = (ordinals[key] for key in (intent.source, intent.target) if key in ordinals)
            self._add(intent.bucket, ends)

    def allows(self, move: Move) -> bool:
        """Neither end has more on its way than it should; a bucket that is heavier than that goes alone."""
        size_bytes = self._size_bytes(move.bucket)
        return all(
            self._bytes.get(end, 0) + size_bytes <= self._most and self._buckets[end] < self._most_buckets
            for end in (move.source, move.target)
            if self._buckets.get(end)
        )

    def begin(self, move: Move) -> None:
        self._add(move.bucket, (move.source, move.target))

    def _add(self, bucket: int, ends: Iterable[int]) -> None:
        for end in ends:
            self._bytes[end] = self._bytes.get(end, 0) + self._size_bytes(bucket)
            self._buckets[end] = self._buckets.get(end, 0) + 1

    def _size_bytes(self, bucket: int) -> int:
        weight = self._weights.get(bucket)
        return weight.size_bytes if weight else self._most // AT_ONCE_UNWEIGHED
