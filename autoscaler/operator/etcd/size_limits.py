"""How much of etcd a job may take, and when somebody has to look (ADR 0165).  Pure.

A master keeps twelve keys, mostly a few kilobytes.  The largest is the list of moves under way, 190 bytes for each of
at most 4,096 buckets and never above 512 KiB, written anew as each move ends: megabytes a second while servers change.
The bounds lie above that.  They are asked only once etcd fills: nobody is barred from an etcd with room for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from master.store.etcd.etcd_upkeep import EtcdSize, JobFootprint

MOST_KEYS: Final = 64
MOST_BYTES: Final = 8 * 1024**2
LEAST_BYTES: Final = 1024**2
WINDOW_S: Final = 2.0
FREE_KEYS: Final = 10_000
KEYS_OF_A_JOB: Final = 16
"""Of all jobs on average, before somebody looks: an empty key takes 86 bytes of etcd's file and some 480 of its memory,
which ends long before the quota does.
"""


def is_pressed(size: EtcdSize) -> bool:
    """Whether etcd fills: three quarters of its quota are what is left to find out who fills it."""
    return size.is_full or size.used_bytes >= size.quota_bytes // 4 or size.file_bytes >= size.quota_bytes // 2


def are_many(keys: int, *, jobs: int) -> bool:
    """Whether there are more keys than the masters of so many jobs write."""
    return keys > max(FREE_KEYS, KEYS_OF_A_JOB * jobs)


def is_defragmentation_due(size: EtcdSize) -> bool:
    """Whether half of a large file is free, or so much that a full etcd has room again: free pages count as well."""
    is_half_free = size.used_bytes <= size.file_bytes // 2
    ends_alarm = size.is_full and _has_room(size.used_bytes, size) and not _has_room(size.file_bytes, size)
    return size.file_bytes >= size.quota_bytes // 2 and (is_half_free or ends_alarm)


def may_disarm(size: EtcdSize) -> bool:
    """Whether the alarm would not stand again with the next write."""
    return size.is_full and _has_room(size.file_bytes, size)


def _has_room(file_bytes: int, size: EtcdSize) -> bool:
    return file_bytes < size.quota_bytes // 10 * 9


def most_bytes(size: EtcdSize, jobs: int) -> int:
    """What may stand of each of so many jobs: together half of the quota, as long as that is enough for a master."""
    return min(MOST_BYTES, max(LEAST_BYTES, size.quota_bytes // 2 // max(1, jobs)))


def over_standing(standing: Mapping[str, JobFootprint], *, most_bytes: int) -> Mapping[str, str]:
    """The jobs of which too much stands, each with what it has, in words."""
    return {
        job: f"{one.keys:,} keys with {one.stored_bytes:,} bytes or more (at most {MOST_KEYS} with {most_bytes:,})"
        for job, one in standing.items()
        if one.keys > MOST_KEYS or one.stored_bytes > most_bytes
    }


def most_written(size: EtcdSize) -> int:
    """What one job may write within `WINDOW_S`: 32 MiB of 2 GiB.  History is compacted as often."""
    return size.quota_bytes // 64


def over_written(written: Mapping[str, int], *, most_bytes: int) -> Mapping[str, str]:
    """The jobs that write too much, each with how much, in words."""
    return {
        job: f"{count:,} bytes written within {WINDOW_S:g} s (at most {most_bytes:,})"
        for job, count in written.items()
        if count > most_bytes
    }
