"""What a job's master is set to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from master.job.domain.durable_records import SECOND


class AfterLoss(StrEnum):
    """What the other servers do when one is lost with its buckets (rules 26, 30; ADR 0317)."""

    ROLL_BACK = "RollBack"  # all go back to the last checkpoint
    KEEP = "Keep"  # they stay as they are, and only what is lost comes from there


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConfig:
    """What one job's master is told; fixed for a term.  All times in ns."""

    servers: int  # when the job begins, 0 to servers - 1, and enough after a loss; 0: a job without servers
    max_servers: int = 0  # servers that may come later have ordinals below this; below `servers`: as many as those
    copies: int = 1  # of every bucket, while servers are there for them: 2 is an owner and a backup (rule 61)
    bucket_count: int = 256  # of a new job; an existing checkpoint or route says its own
    checkpoint_every_ns: int = 60 * SECOND  # from one commit's end to the next one's begin
    after_loss: AfterLoss = AfterLoss.ROLL_BACK

    reconnect_window_ns: int = 10 * SECOND  # a broken stream may come back this long (rule 18)
    short_window_ns: int = 2 * SECOND  # ... only so long where others, or a cut, wait for its leases or buckets
    backup_window_ns: int = SECOND // 2  # ... and a server without which nothing is lost (rule 62)
    silence_window_ns: int = 2 * SECOND  # a backup of which its owner says that it is silent has so long to say a word
    apart_after_ns: int = 10 * SECOND  # ... and one that is silent to its owner alone is given up after this
    heirs_window_ns: int = 4 * SECOND  # a new master waits so long, from the first one on, for servers that have heirs
    owners_window_ns: int = 30 * SECOND  # a new master waits so long for servers that others could do without
    lease_floor_ns: int = 10 * SECOND  # a trainer without progress this long loses its leases at the earliest
    lease_first_ns: int = 120 * SECOND  # ... but from its first lease on so long for its first step, if it is heard of
    lease_factor: int = 8  # ... or this many expected batch times, whichever is longer

    target_shard_ns: int = 4 * SECOND  # of work per lease, from the trainer's measured rate (2 to 10 s)
    first_shard_batches: int = 4  # while no rate is known
    wait_retry_ns: int = SECOND // 4  # what Wait tells a trainer
    report_every_ns: int = SECOND  # what members are told

    hold_timeout_ns: int = SECOND  # for all servers' HELD; pushes wait meanwhile (rule 19)
    cut_timeout_ns: int = 300 * SECOND  # for all servers' WRITTEN (rule 21)
    retry_first_ns: int = SECOND // 2  # after a commit that was given up; doubles up to retry_last_ns
    retry_last_ns: int = 30 * SECOND
    answer_timeout_ns: int = 5 * SECOND  # then what a server has not answered is asked again
    moves_at_once: int = 16  # buckets on their way together from or to one server (`pace`)
    moving_bytes: int = 32 << 20  # ... and what they weigh, where servers have said it; these freeze fewer at once
    move_timeout_ns: int = 10 * SECOND  # from each intent on; then it is undone: pushes wait for it (rule 53)
    move_again_ns: int = 5 * SECOND  # after that; twice as long each time, for pushes have waited in vain

    quarantine_after: int = 3  # failures of different incarnations with the same positions in flight (M4)
    unreadable_ns: int = 60 * SECOND  # what of a checkpoint cannot be read is tried so long, then the job fails (M11)
    falls_back: bool = False  # ... or goes back to the checkpoint before (ADR 0189)
    backoff_limit: int = 6  # failures in a row without one batch completed between them fail the job
    high_water_batches: int = 64  # positions are reserved in blocks of at least so many batches (M6)
    high_water_ns: int = 10 * SECOND  # ... and of about so much work: a write every few seconds

    @property
    def most_servers(self) -> int:
        """Servers that there may be at any time; 0: a job without servers."""
        return max(self.servers, self.max_servers) if self.servers else 0
