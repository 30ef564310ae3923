"""`StateStore` on etcd.  The semantics are etcd's own; added is what becomes of a call without an answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from typing import Any

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from master.errors import InvariantViolationError, LeaseLostError, StoreUnavailableError
from master.store.etcd.etcd_channel import EtcdChannel
from master.store.etcd.etcd_config import EtcdConfig
from master.store.etcd.etcd_leases import Leases
from master.store.etcd.etcd_requests import (
    campaign_request,
    commit_request,
    parse_leadership,
    parse_ranges,
    parse_snapshot,
    read_request,
)
from master.store.etcd.etcd_watch import watch
from master.store.etcd.stubs import stubs
from master.store.job_keys import JobKeys, Key
from master.store.store_port import (
    MAX_TRANSACTION_KEYS,
    CommitOutcome,
    Committed,
    Conflict,
    KeyEvent,
    Leadership,
    Revision,
    StoreSnapshot,
    Transaction,
    Unknown,
    check_writes,
    fenced,
)


class EtcdStore:
    """One job's keys in etcd.  Made inside a running loop; connects at the first call."""

    def __init__(self, config: EtcdConfig, job: str) -> None:
        self._keys = JobKeys(job)
        self._channel = EtcdChannel(config)
        self._leases = Leases(self._channel)

    @property
    def keys(self) -> JobKeys:
        return self._keys

    async def try_lead(self, *, holder: str, ttl_s: int) -> Leadership | None:
        if parse_ranges(await self._txn(read_request((self._keys.leader,)))):  # once: the caller's clock is running
            return None
        lease = await self._leases.grant(ttl_s)
        try:
            response = await self._txn(campaign_request(self._keys.leader, holder, lease))
        except (StoreUnavailableError, LeaseLostError):
            return await self._recall_campaign(lease)
        if response.succeeded:
            return Leadership(term=response.header.revision, lease=lease, holder=holder)
        await self._leases.revoke(lease)
        return None

    async def read_leader(self) -> Leadership | None:
        _, kvs = await self._read((self._keys.leader,))
        return parse_leadership(kvs[0]) if kvs else None

    async def renew(self, leadership: Leadership) -> None:
        await self._leases.renew(leadership.lease)

    async def resign(self, leadership: Leadership) -> None:
        await self._leases.revoke(leadership.lease)

    async def read(self, keys: Iterable[Key]) -> StoreSnapshot:
        names = tuple(dict.fromkeys(keys))
        if len(names) > MAX_TRANSACTION_KEYS:
            raise InvariantViolationError(f"a read names at most {MAX_TRANSACTION_KEYS} keys, not {len(names)}")
        response, kvs = await self._read((*names, self._keys.leader))  # etcd answers a read of nothing from old state
        return parse_snapshot(response, (kv for kv in kvs if kv.key.decode() in names))

    async def commit(self, transaction: Transaction) -> CommitOutcome:
        check_writes(self._keys, transaction)
        try:
            response = await self._txn(commit_request(self._keys.leader, transaction))
        except StoreUnavailableError as error:
            return Unknown(reason=str(error))
        if response.succeeded:
            return Committed(revision=Revision(response.header.revision))
        leader, *others = response.responses
        term = next((parse_leadership(kv).term for kv in leader.response_range.kvs), None)
        if term != transaction.term:
            raise fenced(transaction.term, term)
        return Conflict(current=parse_snapshot(response, (kv for op in others for kv in op.response_range.kvs)))

    def watch(self, prefix: Key, *, after: Revision) -> AsyncGenerator[KeyEvent, None]:
        return watch(self._channel, prefix, after)

    async def close(self) -> None:
        self._leases.close()
        await self._channel.close()

    async def _recall_campaign(self, lease: int) -> Leadership | None:
        """The outcome of a campaign whose answer was lost: rule 23 for the leader key.

        To revoke the lease also stops a campaign that is still under way: a put with a revoked lease fails.
        """
        leader = await self.read_leader()
        if leader is not None and leader.lease == lease:
            return leader
        await self._leases.revoke(lease)
        return None

    async def _read(self, keys: tuple[Key, ...]) -> tuple[Any, list[Any]]:
        """Reads change nothing, so they alone are retried, at the next member, until the budget is spent."""
        config = self._channel.config
        attempts = AsyncRetrying(
            retry=retry_if_exception_type(StoreUnavailableError),
            stop=stop_after_delay(config.read_budget_s - config.call_deadline_s),
            wait=wait_random_exponential(multiplier=0.05, max=0.5),
            reraise=True,
        )
        async for attempt in attempts:
            with attempt:
                response = await self._txn(read_request(keys))
                return response, parse_ranges(response)
        raise InvariantViolationError("a retry ended without an answer or an error")

    async def _txn(self, request: Any) -> Any:
        return await self._channel.call(lambda channel: stubs.KVStub(channel).Txn, request)
