"""The state store in memory: for a script that runs alone, and for tests.

`MemoryCluster` is what etcd is to `EtcdStore`: revisions, leases, a history to watch.  Any number of `MemoryStore`s,
one a master, share one.  Nothing survives the process, and no outcome is Unknown.  Leases expire by the injected
clock, at the next call.  The cluster's methods await nothing, so each is one atomic step.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType
from typing import Final, assert_never

from master.api.identities import Term
from master.errors import LeaseLostError
from master.store.job_keys import JobKeys, Key
from master.store.store_port import (
    Changed,
    CommitOutcome,
    Committed,
    Conflict,
    Delete,
    Entry,
    KeyEvent,
    Leadership,
    Put,
    Resync,
    Revision,
    StoreSnapshot,
    StoreWrite,
    Transaction,
    check_writes,
    fenced,
    is_met,
)

HISTORY_LENGTH: Final = 256  # changes that a watch may lag behind before it gets a Resync


@dataclass(slots=True, kw_only=True)
class _Lease:
    ttl_s: float
    expires_s: float


class MemoryCluster:
    """Entries, leases and history of all jobs, in this process."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._revision = Revision(1)
        self._compacted = Revision(1)
        self._entries: dict[Key, Entry] = {}
        self._leaders: dict[Key, Leadership] = {}
        self._leases: dict[int, _Lease] = {}
        self._lease_numbers = count(1)
        self._history: deque[Changed] = deque()
        self._changed = asyncio.Event()  # a new one for each change

    def store(self, job: str) -> MemoryStore:
        return MemoryStore(self, JobKeys(job))

    # ---- leases -----------------------------------------------------------------------------------------------------

    def expire_leases(self) -> None:
        """Drops leases past their time, and the leader keys bound to them."""
        now_s = self._clock_s()
        for number in [number for number, lease in self._leases.items() if lease.expires_s <= now_s]:
            self.revoke(number)

    def campaign(self, key: Key, holder: str, ttl_s: float) -> Leadership | None:
        self.expire_leases()
        if key in self._leaders:
            return None
        lease = next(self._lease_numbers)
        self._leases[lease] = _Lease(ttl_s=ttl_s, expires_s=self._clock_s() + ttl_s)
        revision = self._apply((Put(key, holder.encode()),))
        self._leaders[key] = Leadership(term=Term(revision), lease=lease, holder=holder)
        return self._leaders[key]

    def leader(self, key: Key) -> Leadership | None:
        self.expire_leases()
        return self._leaders.get(key)

    def renew(self, number: int) -> None:
        self.expire_leases()
        if number not in self._leases:
            raise LeaseLostError(f"lease {number} has expired")
        lease = self._leases[number]
        lease.expires_s = self._clock_s() + lease.ttl_s

    def revoke(self, number: int) -> None:
        self._leases.pop(number, None)
        for key in [key for key, leadership in self._leaders.items() if leadership.lease == number]:
            del self._leaders[key]
            self._apply((Delete(key),))

    # ---- entries ----------------------------------------------------------------------------------------------------

    def snapshot(self, keys: Iterable[Key]) -> StoreSnapshot:
        self.expire_leases()
        entries = {key: self._entries[key] for key in keys if key in self._entries}
        return StoreSnapshot(revision=self._revision, entries=MappingProxyType(entries))

    def commit(self, leader_key: Key, transaction: Transaction) -> CommitOutcome:
        self.expire_leases()
        leader = self._leaders.get(leader_key)
        if leader is None or leader.term != transaction.term:
            raise fenced(transaction.term, leader.term if leader else None)
        if all(is_met(comparison, self._entries) for comparison in transaction.require):
            return Committed(revision=self._apply(transaction.writes))
        return Conflict(current=self.snapshot(transaction.keys))

    def _apply(self, writes: Iterable[StoreWrite]) -> Revision:
        """Applies all writes at one new revision."""
        revision = Revision(self._revision + 1)
        changes = [change for write in writes if (change := self._apply_one(write, revision))]
        if not changes:
            return self._revision
        self._revision = revision
        self._history.extend(changes)
        while len(self._history) > HISTORY_LENGTH:
            self._compacted = self._history.popleft().revision
        self._changed.set()
        self._changed = asyncio.Event()
        return revision

    def _apply_one(self, write: StoreWrite, revision: Revision) -> Changed | None:
        match write:
            case Put(key, value):
                self._entries[key] = Entry(value=value, mod_revision=revision)
            case Delete(key):
                if self._entries.pop(key, None) is None:
                    return None
            case _:
                assert_never(write)
        return Changed(key=key, entry=self._entries.get(key), revision=revision)

    # ---- history ----------------------------------------------------------------------------------------------------

    def compact(self, revision: Revision) -> None:
        """Forgets the changes up to `revision`, as etcd does from time to time; values stay."""
        self._compacted = max(self._compacted, revision)
        while self._history and self._history[0].revision <= revision:
            self._history.popleft()

    async def changes(self, prefix: Key, after: Revision) -> AsyncGenerator[KeyEvent, None]:
        while True:
            self.expire_leases()
            if after < self._compacted:
                after = self._compacted
                yield Resync(revision=after)
            seen = self._revision
            for change in [change for change in self._history if change.revision > after]:
                if change.key.startswith(prefix):
                    yield change
            after = max(after, seen)
            if self._revision <= after:
                await self._wait_for_change()

    async def _wait_for_change(self) -> None:
        """Returns when something is written or a lease may have expired."""
        next_expiry_s = min((lease.expires_s for lease in self._leases.values()), default=None)
        timeout_s = None if next_expiry_s is None else max(0.01, next_expiry_s - self._clock_s())
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):  # wait_for may swallow a cancellation that comes with the change
                await self._changed.wait()


class MemoryStore:
    """`StateStore` on a MemoryCluster."""

    def __init__(self, cluster: MemoryCluster, keys: JobKeys) -> None:
        self._cluster = cluster
        self._keys = keys

    @property
    def keys(self) -> JobKeys:
        return self._keys

    async def try_lead(self, *, holder: str, ttl_s: int) -> Leadership | None:
        return self._cluster.campaign(self._keys.leader, holder, ttl_s)

    async def read_leader(self) -> Leadership | None:
        return self._cluster.leader(self._keys.leader)

    async def renew(self, leadership: Leadership) -> None:
        self._cluster.renew(leadership.lease)

    async def resign(self, leadership: Leadership) -> None:
        self._cluster.revoke(leadership.lease)

    async def read(self, keys: Iterable[Key]) -> StoreSnapshot:
        return self._cluster.snapshot(keys)

    async def commit(self, transaction: Transaction) -> CommitOutcome:
        check_writes(self._keys, transaction)
        return self._cluster.commit(self._keys.leader, transaction)

    def watch(self, prefix: Key, *, after: Revision) -> AsyncGenerator[KeyEvent, None]:
        return self._cluster.changes(prefix, after)

    async def close(self) -> None:
        """Does nothing: no connection is open."""
