"""The number of parameter servers that a job's master is set to, derived from the existing pods.  Pure.

The planner decides the number of servers, the cluster creates and ends pods, the master moves the buckets.  The
master is set to n servers, with ordinals from 0, again and again until it holds (level-triggered).  A pod that comes
raises n at once.  A pod that is deleted or lost lowers n at once if it was the last, never below the minimum.  For a
server lost in the middle the master waits one reconnect window for its replacement, then continues without it
(ADR 0315; docs/protocol-moves.md).  Not here: polling masters (`master_connections`).
"""

from __future__ import annotations

from collections.abc import Iterable
from signal import SIGTERM
from typing import Final, assert_never

from autoscaler.jobs.progress import JobProgress
from autoscaler.manifests.api_types import AfterServerLoss

SPARE_ORDINALS: Final = 2
"""Beyond its servers' own: one that takes another's place stands beside it for a while (ADR 0118)."""

EXIT_OWNING: Final = 75
"""The exit code of a server that ends with buckets that others do not have (`trainer_sdk.pserver`)."""


def servers_wanted(minimum: int, standing: Iterable[int]) -> int:
    """Number of servers for a job with these active ordinals; never below the minimum.

    A gap counts too: the replacement of a drained server may have a higher ordinal and must stay.
    """
    return max([minimum, *(ordinal + 1 for ordinal in standing)])


def loss_of(code: int | None, exit_description: str, *, was_empty: bool = False) -> str:
    """Loss caused by a deleted server, by its exit code; empty if it handed everything over.

    `was_empty`: its master had reported that it owned nothing, so that a kill at the end of its grace costs nothing.
    What the server itself says with `EXIT_OWNING` is newer.  A server ended by SIGTERM itself was still starting: it
    had no handler yet, and held nothing.
    """
    if code in {0, -SIGTERM} or (was_empty and code != EXIT_OWNING):
        return ""
    if code == EXIT_OWNING:
        return (
            f"{exit_description}: its time was over, and what others do not have of it comes from the last checkpoint"
        )
    return f"{exit_description}, before it had handed over what it held"


def only_copies_of(ordinal: int, progress: JobProgress | None) -> int:
    """Number of buckets whose only copy this server has, by the master's last report; 0 if unknown."""
    if progress is None or not progress.lineage:
        return 0
    owned = dict(progress.buckets)
    has_backups = progress.copies > 1 and progress.single_copy_buckets < sum(owned.values())
    return 0 if has_backups else owned.get(ordinal, 0)


def describe_loss(name: str, buckets: int, after_loss: AfterServerLoss) -> str:
    """Return in words what follows from the end of a server that had the only copy of so many buckets."""
    text = f"{name} has ended with {'a bucket' if buckets == 1 else f'{buckets} buckets'} that nobody else has"
    goes = "it goes" if buckets == 1 else "they go"
    match after_loss:
        case AfterServerLoss.ROLL_BACK:
            return f"{text}: the job goes back to its last checkpoint"
        case AfterServerLoss.KEEP:
            return f"{text}: {goes} back to the last checkpoint, the other servers keep their state"
        case _:
            assert_never(after_loss)
