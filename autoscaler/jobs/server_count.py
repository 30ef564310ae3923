"""The number of parameter servers that a job's master is set to, read from the pods that stand.  Pure.

The planner decides the number of servers, the cluster creates and ends pods, the master moves the buckets.  The master
is set to one number n, again and again until it holds (level-triggered): n servers, with the ordinals 0 to n - 1.  A
pod that comes raises n at once.  A pod that is deleted or lost lowers n at once if it was the last, never below the
minimum.  A server that is lost in the middle is missed: the master gives the one in its place a reconnect window to
come, and goes on with those that are there (ADR 0315; docs/protocol-moves.md).  Not here: asking masters
(`master_connections`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from signal import SIGTERM
from typing import Final, assert_never

from autoscaler.jobs.progress import JobProgress
from autoscaler.manifests.api_types import AfterServerLoss

SPARE_ORDINALS: Final = 2
"""Beyond its servers' own: one that takes another's place stands beside it for a while (ADR 0118)."""

EXIT_OWNING: Final = 75
"""The exit code of a server that ends with buckets that others do not have (`trainer_sdk.pserver`)."""


def servers_wanted(minimum: int, standing: Iterable[int]) -> int:
    """Return the n of a job whose servers with these ordinals stand and are not leaving; never below the minimum.

    A gap counts: where one in the middle was drained, the one in its place may stand beyond, and must not be sent away.
    """
    return max([minimum, *(ordinal + 1 for ordinal in standing)])


def describe_servers(wanted: int, standing: Iterable[int]) -> str:
    """So many servers, as the cluster side wants them: where a number below `wanted` is nobody's, people are told."""
    held = sorted(ordinal for ordinal in standing if ordinal < wanted)
    vacant = sorted(set(range(wanted)) - set(held))
    if not vacant:
        return f"{wanted} server{'' if wanted == 1 else 's'}"
    numbers = f"number{'' if len(held) == 1 else 's'} {_listed(held)}"
    is_vacant = f"{_listed(vacant)} {'is' if len(vacant) == 1 else 'are'} vacant"
    return f"{len(held)} server{'' if len(held) == 1 else 's'} ({numbers}; {is_vacant})"


def _listed(numbers: Sequence[int]) -> str:
    *first, last = map(str, numbers)
    return f"{', '.join(first)} and {last}" if first else last


def loss_of(code: int | None, exit_description: str) -> str:
    """Return what was lost with a deleted server that ended with this code; empty: nothing, it left in order.

    One that SIGTERM itself has ended was still starting: a server hears it before it knows its master.
    """
    if code in {0, -SIGTERM}:
        return ""
    if code == EXIT_OWNING:
        return (
            f"{exit_description}: its time was over, and what others do not have of it comes from the last checkpoint"
        )
    return f"{exit_description}, before it had handed over what it held"


def only_copies_of(ordinal: int, progress: JobProgress | None) -> int:
    """Return how many buckets only this server has, as its master said last; 0 also if that is not known."""
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
            return f"{text}: {goes} back to the last checkpoint, the other servers keep what they have"
        case _:
            assert_never(after_loss)
