"""Keeper of space in EDL's own etcd: one job that fills it would stop the commits of all jobs (ADR 0165).

Normally only the size and the number of keys are polled.  When etcd fills, or has more keys than masters write, each
job's prefix is measured, history is compacted, and write rates are sampled until the next round.  A job above its
limits is barred: its user loses all rights, keys that no master writes are deleted, and the job is failed.  Then
files are defragmented and the alarm ends.

The bounds.  A master keeps twelve keys, mostly a few kilobytes.  The largest is the list of moves under way, 190
bytes for each of at most 4,096 buckets and never above 512 KiB, written anew as each move ends: megabytes a second
while servers change.  The bounds lie above that, and apply only once etcd fills.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from autoscaler.bounded_gather import gather_bounded
from autoscaler.errors import ClusterError
from autoscaler.operator.etcd.job_accounts import JobAccounts
from autoscaler.operator.metrics import Metrics
from master.errors import MasterError
from master.store.etcd.etcd_upkeep import EtcdSize, EtcdUpkeep

if TYPE_CHECKING:
    from master.store.etcd.etcd_upkeep import EtcdSize, JobFootprint

CHECK_EVERY_S: Final = 2.0
_CONCURRENT_MEASUREMENTS: Final = 16
"""Jobs measured concurrently; one by one, a thousand would take half a minute on a loaded etcd."""

log = logging.getLogger(__name__)


class JobFailer(Protocol):
    """Port by which a job that took too much space is failed."""

    def fail_over_etcd(self, name_in_etcd: str, excess: str) -> None:
        """Have the job of this name in etcd fail.  Must neither block nor raise."""
        ...


class EtcdSpaceKeeper:
    """Monitors etcd's size and frees space."""

    def __init__(self, accounts: JobAccounts, jobs: JobFailer, metrics: Metrics) -> None:
        self._accounts = accounts
        self._jobs = jobs
        self._metrics = metrics
        self._is_filling = False

    async def run(self) -> None:
        """Watch etcd until cancelled."""
        upkeep = EtcdUpkeep(self._accounts.settings.config)
        try:
            while True:
                try:
                    if await self.check(upkeep):
                        continue  # `check` has watched for as long as a round takes
                except (ClusterError, MasterError) as error:
                    log.warning("etcd's use of space could not be measured: %s", error)
                await asyncio.sleep(CHECK_EVERY_S)
        finally:
            await upkeep.close()

    async def check(self, upkeep: EtcdUpkeep) -> bool:
        """Check once; True if etcd fills up.  The check then takes up to `WINDOW_S`.

        Raises ClusterError, MasterError.
        """
        size = await self._size(upkeep)
        if not self._accounts.settings.manages_space:
            return False
        keys = await upkeep.keys()
        names = await self._accounts.names() if is_filling(size) or keys > FREE_KEYS else ()
        was_pressed, self._is_filling = self._is_filling, is_filling(size) or are_many(keys, jobs=len(names))
        if not self._is_filling:
            return False
        if not was_pressed:
            used = (keys, size.used_bytes, size.file_bytes, size.quota_bytes)
            log.warning("etcd is filling up: %d keys, %d bytes used, file size %d, quota %d", *used)
        most = most_bytes(size, len(names))
        measure = partial(upkeep.standing, most_keys=MOST_KEYS, most_bytes=most)
        found = await gather_bounded((partial(measure, name) for name in names), at_once=_CONCURRENT_MEASUREMENTS)
        stored = dict(zip(names, found, strict=True))
        await self._bar(upkeep, jobs_above_size(stored, most_bytes=most), most)
        await self._free_space(upkeep)
        written = await upkeep.written(window_s=WINDOW_S, most_bytes=most_written(size))
        ours = {name: count for name, count in written.items() if name in names}
        over = jobs_above_rate(ours, most_bytes=most_written(size))
        await self._bar(upkeep, over, most)
        if over:
            await self._free_space(upkeep)
        return True

    async def _bar(self, upkeep: EtcdUpkeep, over: Mapping[str, str], most: int) -> None:
        """Bar jobs and give them up before anything is deleted, or the next round would find nothing to bar."""
        for name, excess in over.items():
            await self._accounts.bar(name)
            log.warning("job %s is barred from etcd: %s", name, excess)
            self._jobs.fail_over_etcd(name, excess)
        for name in over:
            try:
                await upkeep.trim(name, most_bytes=most)
            except MasterError as error:
                log.warning("surplus keys of job %s could not be deleted from etcd: %s", name, error)

    async def _free_space(self, upkeep: EtcdUpkeep) -> None:
        await upkeep.compact()
        size = await self._size(upkeep)
        if is_defragmentation_due(size):
            await upkeep.defragment()
            size = await self._size(upkeep)
        if may_disarm(size):
            await upkeep.disarm()
            log.warning("etcd takes writes again: %d of %d bytes are used", size.used_bytes, size.quota_bytes)

    async def _size(self, upkeep: EtcdUpkeep) -> EtcdSize:
        size = await upkeep.size()
        self._metrics.set_etcd(
            used_bytes=size.used_bytes, file_bytes=size.file_bytes, quota_bytes=size.quota_bytes, is_full=size.is_full
        )
        return size


MOST_KEYS: Final = 64
MOST_BYTES: Final = 8 * 1024**2
LEAST_BYTES: Final = 1024**2
WINDOW_S: Final = 2.0
FREE_KEYS: Final = 10_000
KEYS_OF_A_JOB: Final = 16
"""Average number of keys per job above which jobs are measured: an empty key takes 86 bytes of etcd's file and some
480 of its memory, which ends long before the quota does.
"""


def is_filling(size: EtcdSize) -> bool:
    """True if a quarter of the quota is used; the rest leaves time to find the job that fills it."""
    return size.is_full or size.used_bytes >= size.quota_bytes // 4 or size.file_bytes >= size.quota_bytes // 2


def are_many(keys: int, *, jobs: int) -> bool:
    """True if there are more keys than the masters of `jobs` jobs write."""
    return keys > max(FREE_KEYS, KEYS_OF_A_JOB * jobs)


def is_defragmentation_due(size: EtcdSize) -> bool:
    """True if half of a large file is free, or enough to end the alarm of a full etcd: free pages count as well."""
    is_half_free = size.used_bytes <= size.file_bytes // 2
    ends_alarm = size.is_full and _has_space(size.used_bytes, size) and not _has_space(size.file_bytes, size)
    return size.file_bytes >= size.quota_bytes // 2 and (is_half_free or ends_alarm)


def may_disarm(size: EtcdSize) -> bool:
    """True if the alarm would not come back with the next write."""
    return size.is_full and _has_space(size.file_bytes, size)


def _has_space(file_bytes: int, size: EtcdSize) -> bool:
    return file_bytes < size.quota_bytes // 10 * 9


def most_bytes(size: EtcdSize, jobs: int) -> int:
    """Most bytes of each job: together half of the quota, but never less than a master needs."""
    return min(MOST_BYTES, max(LEAST_BYTES, size.quota_bytes // 2 // max(1, jobs)))


def jobs_above_size(stored: Mapping[str, JobFootprint], *, most_bytes: int) -> Mapping[str, str]:
    """Return the jobs that store too much, each with a text of how much."""
    return {
        job: f"{one.keys:,} keys with {one.stored_bytes:,} bytes or more (at most {MOST_KEYS} with {most_bytes:,})"
        for job, one in stored.items()
        if one.keys > MOST_KEYS or one.stored_bytes > most_bytes
    }


def most_written(size: EtcdSize) -> int:
    """Return how many bytes one job may write within `WINDOW_S`: 32 MiB of 2 GiB.  History is compacted as often."""
    return size.quota_bytes // 64


def jobs_above_rate(written: Mapping[str, int], *, most_bytes: int) -> Mapping[str, str]:
    """Return the jobs that write too much, each with a text of how much."""
    return {
        job: f"{count:,} bytes written within {WINDOW_S:g} s (at most {most_bytes:,})"
        for job, count in written.items()
        if count > most_bytes
    }
