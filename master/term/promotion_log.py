"""What the log and the metrics say of promotions (rule 62): who was lost, who goes on with what it held, how soon.

The core counts them too, by server and term, for the status (`job.succession`); here is what only a clock and a process
know.  A server that stood still has no end of its stream: then there is no time to tell.
"""

from __future__ import annotations

import logging
from typing import Final

from master import job
from master.job.domain import ChangeTable, Event, Instant, MemberKey, Persisted, StreamBroken
from master.job.state.job_state import JobState
from master.process.metrics import Counts

log: Final = logging.getLogger(__name__)

MOST_BROKEN: Final = 64  # streams whose end is remembered
MS: Final = 1_000_000  # in nanoseconds


class Promotions:
    """Of one term.  To be shown every event, with the state before it, once the core has taken it."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._broken_at: dict[MemberKey, Instant] = {}

    def watch(self, before: JobState, event: Event, now: Instant) -> None:
        """Tell of the promotions that this event has made durable."""
        match event:
            case StreamBroken() if before.members.try_server(event.member):
                self._broken_at[event.member] = now
                if len(self._broken_at) > MOST_BROKEN:
                    del self._broken_at[next(iter(self._broken_at))]
            case Persisted(write=ChangeTable() as write) if before.moves.writing == write:
                for one in job.promotions(before, write.old, write.new):
                    self._counts.taken_over += one.buckets
                    log.warning(
                        "%s is lost: %d buckets go on on %s, which had second copies%s",
                        one.lost.name,
                        one.buckets,
                        one.heir.name,
                        self._told_when(one.lost, now),
                    )
            case _:
                pass

    def _told_when(self, lost: MemberKey, now: Instant) -> str:
        broken_at = self._broken_at.get(lost)
        return "" if broken_at is None else f", {(now - broken_at) // MS} ms after its stream broke"
