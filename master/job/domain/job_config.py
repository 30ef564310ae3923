"""Settings of a job's master core."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from master.job.domain.durable_records import SECOND


class AfterLoss(StrEnum):
    """Policy after the loss of a server with its buckets (rules 26, 30; ADR 0317)."""

    ROLL_BACK = "RollBack"  # all go back to the last checkpoint
    KEEP = "Keep"  # they stay as they are, and only what is lost comes from there


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConfig:
    """Settings of one job's core, fixed for a term; all times in ns."""

    servers: int  # when the job begins, 0 to servers - 1, and enough after a loss; 0: a job without servers
    max_servers: int = 0  # servers that may come later have ordinals below this; below `servers`: as many as those
    copies: int = 1  # of every bucket, while servers are there for them: 2 is an owner and a backup (rule 61)
    bucket_count: int = 256  # of a new job; an existing checkpoint or route says its own
    checkpoint_every_ns: int = 60 * SECOND  # from the end of a commit to the start of the next
    after_loss: AfterLoss = AfterLoss.ROLL_BACK

    reconnect_window_ns: int = 10 * SECOND  # a member may reconnect within this (rule 18)
    short_window_ns: int = 2 * SECOND  # ... this where others, or a cut, wait for its leases or buckets
    backup_window_ns: int = SECOND // 2  # ... and a server without which nothing is lost (rule 62)
    silence_window_ns: int = 2 * SECOND  # a backup that its owner reports silent must answer the master within this
    unreachable_after_ns: int = 10 * SECOND  # ... and one that is silent to its owner alone is left out after this
    backup_owners_window_ns: int = 4 * SECOND  # a new master waits, from the first server on, for owners with backups
    owners_window_ns: int = 30 * SECOND  # a new master waits this long for owners that the job can do without
    lease_floor_ns: int = 10 * SECOND  # a trainer without progress this long loses its leases at the earliest
    lease_first_ns: int = 120 * SECOND  # ... but from its first lease on this long for its first step, if it reports
    lease_factor: int = 8  # ... or this many expected batch times, whichever is longer

    target_shard_ns: int = 4 * SECOND  # of work per lease, from the trainer's measured rate (2 to 10 s)
    first_shard_batches: int = 4  # while no rate is known
    wait_retry_ns: int = SECOND // 4  # the pause that Wait gives a trainer
    report_every_ns: int = SECOND  # how often members report

    hold_timeout_ns: int = SECOND  # for all servers' HELD; pushes wait meanwhile (rule 19)
    cut_timeout_ns: int = 300 * SECOND  # for all servers' WRITTEN (rule 21)
    retry_first_ns: int = SECOND // 2  # after a commit that was given up; doubles up to retry_last_ns
    retry_last_ns: int = 30 * SECOND
    answer_timeout_ns: int = 5 * SECOND  # what a server has not answered is resent after this
    moves_at_once: int = 16  # buckets on the way at once from or to one server (`move_admission`)
    moving_bytes: int = 32 << 20  # ... and their size, where servers have reported it; they freeze fewer at once
    move_timeout_ns: int = 10 * SECOND  # from each intent on; then the move is undone: pushes wait for it (rule 53)
    move_again_ns: int = 5 * SECOND  # until late moves are retried; doubles each time, since pushes waited in vain

    measures_shares: bool = False  # of a group: members' shares of a step follow their measured speed (ADR 0296)

    quarantine_after: int = 3  # failures of different incarnations with the same positions in flight (M4)
    unreadable_ns: int = 60 * SECOND  # a checkpoint that cannot be read is retried this long, then the job fails (M11)
    falls_back: bool = False  # ... or goes back to the checkpoint before (ADR 0189)
    backoff_limit: int = 6  # failures in a row without one batch completed between them fail the job
    high_water_batches: int = 64  # positions are reserved in blocks of at least so many batches (M6)
    high_water_ns: int = 10 * SECOND  # ... and of about so much work: a write every few seconds

    @property
    def most_servers(self) -> int:
        """Servers that there may be at any time; 0: a job without servers."""
        return max(self.servers, self.max_servers) if self.servers else 0
