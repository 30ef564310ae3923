"""Keeps room in EDL's own etcd: one job that fills it stops the commits of all, until it is found (ADR 0165, A11).

While etcd has room nothing is done but to ask for its size and the number of keys.  Once it fills, or there are more
keys than masters write, each job's prefix is looked at, history is compacted, and what jobs write is watched until
the next round.  Who took more than its due is barred: its user has no rights any more, what no master writes is
deleted, its job is given up.  Then files are defragmented and the alarm ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import Final, Protocol

from autoscaler.bounded_gather import gather_bounded
from autoscaler.errors import ClusterError
from autoscaler.operator.etcd.job_accounts import JobAccounts
from autoscaler.operator.etcd.size_limits import (
    FREE_KEYS,
    MOST_KEYS,
    WINDOW_S,
    are_many,
    is_defragmentation_due,
    is_pressed,
    may_disarm,
    most_bytes,
    most_written,
    over_standing,
    over_written,
)
from autoscaler.operator.metrics import Metrics
from master.errors import MasterError
from master.store.etcd.etcd_upkeep import EtcdSize, EtcdUpkeep

LOOK_EVERY_S: Final = 2.0
_AT_ONCE: Final = 16
"""Jobs that are looked at: one after the other a thousand of them take half a minute where etcd is flooded."""

log = logging.getLogger(__name__)


class JobGivingUp(Protocol):
    """Where jobs that took too much are given up."""

    def give_up_over_etcd(self, name_in_etcd: str, excess: str) -> None:
        """Have the job of this name in etcd fail.  Must neither block nor raise."""
        ...


class EtcdSpaceKeeper:
    """Watches how full etcd is, and makes room in it."""

    def __init__(self, accounts: JobAccounts, jobs: JobGivingUp, metrics: Metrics) -> None:
        self._accounts = accounts
        self._jobs = jobs
        self._metrics = metrics
        self._is_pressed = False

    async def run(self) -> None:
        """Until cancelled."""
        upkeep = EtcdUpkeep(self._accounts.settings.config)
        try:
            while True:
                try:
                    if await self.look(upkeep):
                        continue  # `look` has watched for as long as a round takes
                except (ClusterError, MasterError) as error:
                    log.warning("how full etcd is, and of what, could not be looked at: %s", error)
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            await upkeep.close()

    async def look(self, upkeep: EtcdUpkeep) -> bool:
        """One round.  Whether etcd fills; then it took `WINDOW_S`, or less where somebody was found.

        Raises ClusterError, MasterError.
        """
        size = await self._size(upkeep)
        if not self._accounts.settings.keeps_room:
            return False
        keys = await upkeep.keys()
        names = await self._accounts.names() if is_pressed(size) or keys > FREE_KEYS else ()
        was_pressed, self._is_pressed = self._is_pressed, is_pressed(size) or are_many(keys, jobs=len(names))
        if not self._is_pressed:
            return False
        if not was_pressed:
            used = (keys, size.used_bytes, size.file_bytes, size.quota_bytes)
            log.warning("etcd fills: %d keys, %d bytes are used, its file has %d, its quota is %d", *used)
        most = most_bytes(size, len(names))
        look = partial(upkeep.standing, most_keys=MOST_KEYS, most_bytes=most)
        found = await gather_bounded((partial(look, name) for name in names), at_once=_AT_ONCE)
        standing = dict(zip(names, found, strict=True))
        await self._bar(upkeep, over_standing(standing, most_bytes=most), most)
        await self._make_room(upkeep)
        written = await upkeep.written(window_s=WINDOW_S, most_bytes=most_written(size))
        ours = {name: count for name, count in written.items() if name in names}
        over = over_written(ours, most_bytes=most_written(size))
        await self._bar(upkeep, over, most)
        if over:
            await self._make_room(upkeep)
        return True

    async def _bar(self, upkeep: EtcdUpkeep, over: Mapping[str, str], most: int) -> None:
        """It is told before anything is deleted: the next round may find nothing more to bar the job for."""
        for name, words in over.items():
            await self._accounts.bar(name)
            log.warning("job %s has lost its rights in etcd: %s", name, words)
            self._jobs.give_up_over_etcd(name, words)
        for name in over:
            try:
                await upkeep.trim(name, most_bytes=most)
            except MasterError as error:
                log.warning("what job %s has too much of in etcd could not be deleted: %s", name, error)

    async def _make_room(self, upkeep: EtcdUpkeep) -> None:
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
        self._metrics.show_etcd(
            used_bytes=size.used_bytes, file_bytes=size.file_bytes, quota_bytes=size.quota_bytes, is_full=size.is_full
        )
        return size
