"""Counters of a master process for its metrics, the clock of its commits, and the log of promotions (rule 62).

The core counts promotions by server and term for the job's status (`job.moves.promotion`).  This module adds what only
a process knows: how long after its stream broke a server's buckets were promoted.  A server that stood still has no
broken stream, so its line has no time.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from master import job
from master.job.domain.durable_records import ChangeTable, Instant, MemberKey
from master.job.domain.job_events import CoreEvent, Persisted, StreamBroken
from master.job.state.job_state import MasterState

log: Final = logging.getLogger(__name__)

MOST_BROKEN: Final = 64  # streams whose end is remembered
MS: Final = 1_000_000  # in nanoseconds


@dataclass(slots=True, kw_only=True)
class Counters:
    """Since this process began, over all its terms.  Written by the event loop's thread only."""

    events: int = 0
    received: int = 0
    sent: int = 0
    commits: int = 0
    commits_timed: int = 0  # of these, begun under the term that made them
    commit_ns: int = 0  # that these took in all
    terms: int = 0
    taken_over: int = 0  # buckets of lost servers


class CommitClock:
    """Measures commits, from the begin of an attempt to the swap of the head.

    `observe` must be called whenever the state of the commit changes.  In a group an attempt begins with the first file
    that a member offers.
    """

    def __init__(self, counts: Counters) -> None:
        self._counts = counts
        self._began_at: Instant | None = None

    def observe(self, *, is_under_way: bool, now: Instant) -> None:
        """Take note of an attempt that begins, or that has ended."""
        if not is_under_way:
            self._began_at = None
        elif self._began_at is None:
            self._began_at = now

    def count(self, now: Instant) -> None:
        """Count the commit that this attempt has led to."""
        self._counts.commits += 1
        if self._began_at is not None:
            self._counts.commits_timed += 1
            self._counts.commit_ns += now - self._began_at


class PromotionLog:
    """Log of promotions in one term; `observe` must be called with every event and the state before it."""

    def __init__(self, counts: Counters) -> None:
        self._counts = counts
        self._broken_at: dict[MemberKey, Instant] = {}

    def observe(self, before: MasterState, event: CoreEvent, now: Instant) -> None:
        """Log the promotions that this event made durable."""
        match event:
            case StreamBroken() if before.members.try_server(event.member):
                self._broken_at[event.member] = now
                if len(self._broken_at) > MOST_BROKEN:
                    del self._broken_at[next(iter(self._broken_at))]
            case Persisted(write=ChangeTable() as write) if before.moves.writing == write:
                for one in job.promotions(before, write.old, write.new):
                    self._counts.taken_over += one.buckets
                    log.warning(
                        "%s is lost: %d buckets are promoted at %s%s",
                        one.lost.name,
                        one.buckets,
                        one.new_owner.name,
                        self._delay_text(one.lost, now),
                    )
            case _:
                pass

    def _delay_text(self, lost: MemberKey, now: Instant) -> str:
        broken_at = self._broken_at.get(lost)
        return "" if broken_at is None else f", {(now - broken_at) // MS} ms after its stream broke"
