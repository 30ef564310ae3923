"""Upkeep of etcd: its size, the space of each job's keys, and compaction (ADR 0165, A11).

etcd has one quota for all users.  It counts the file of its database: history before a compaction and freed pages
count as well.  Once a write would pass the quota an alarm is set, no member accepts writes, and only disarming the
alarm ends that.  A job's part is measured in two ways, both bounded whatever the job does: the keys under its prefix
(`standing`), and its writes during a sampling window (`written`), which shows jobs that overwrite or delete.

Not here: how much is too much (the operator), who may use etcd (`etcd_accounts`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import grpc.aio
from google.protobuf.unknown_fields import UnknownFieldSet

from master.errors import MasterError, PermanentError, StoreUnavailableError
from master.store.etcd.etcd_channel import EtcdChannel
from master.store.etcd.etcd_config import EtcdConfig
from master.store.etcd.etcd_requests import prefix_end
from master.store.etcd.stubs import rpc, stubs
from master.store.job_keys import JobKeys, Key

JOBS: Final = Key("/edl/v1/jobs/")
DEFAULT_QUOTA_BYTES: Final = 2 * 1024**3  # etcd's own, of a version that does not say it
STATUS_S: Final = 2.0
UPKEEP_S: Final = 30.0
"""To compact or defragment 2 GiB takes seconds."""
PAGE_KEYS: Final = 16
"""Of at most 1.5 MiB each, etcd's limit of a request: a page is never more than a channel takes."""
EVENT_BYTES: Final = 512  # what one write costs history beside its key and value, rounded up
USED_FIELD: Final = 9
QUOTA_FIELD: Final = 12  # numbers in etcd's StatusResponse of fields that are younger than the stubs
NO_SPACE: Final = 1  # of etcd's alarms; the other says that a member's data is corrupt, and is nothing to disarm
COMPACTED: Final = "required revision has been compacted"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdSize:
    """The size of the fullest member.  `used_bytes` of its file hold something; `is_full`: etcd takes no writes."""

    used_bytes: int
    file_bytes: int
    quota_bytes: int
    is_full: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFootprint:
    """The keys under a job's prefix; the bytes of keys and values were counted up to a bound."""

    keys: int
    stored_bytes: int


class EtcdUpkeep:
    """Measures and frees space as a user with the role root.  Every call raises MasterError.

    Made inside a running loop.
    """

    def __init__(self, config: EtcdConfig) -> None:
        slow = replace(config, call_deadline_s=UPKEEP_S)
        self._channel = EtcdChannel(slow)
        self._members = [EtcdChannel(replace(slow, endpoints=(endpoint,))) for endpoint in config.endpoints]

    async def size(self) -> EtcdSize:
        """The size, of the members that answer within `STATUS_S`.  Raises StoreUnavailableError where none does."""
        answers = await asyncio.gather(*map(self._status, self._members))
        statuses = [status for status in answers if status is not None]
        if not statuses:
            raise StoreUnavailableError("no etcd member reports its size")
        younger = [_unknown_fields(one) for one in statuses]
        return EtcdSize(
            used_bytes=max(int(more.get(USED_FIELD, one.dbSize)) for one, more in zip(statuses, younger, strict=True)),
            file_bytes=max(one.dbSize for one in statuses),
            quota_bytes=min(int(more.get(QUOTA_FIELD) or DEFAULT_QUOTA_BYTES) for more in younger),
            is_full=bool(await self._alarms()),
        )

    async def keys(self) -> int:
        """The number of keys of all jobs together."""
        request = rpc.RangeRequest(key=JOBS.encode(), range_end=prefix_end(JOBS), count_only=True)
        return int((await self._keys("Range", request)).count)

    async def standing(self, job: str, *, most_keys: int, most_bytes: int) -> JobFootprint:
        """The job's footprint; of more keys than `most_keys` one page is read, of others a page beyond `most_bytes`."""
        prefix = JobKeys(job).prefix
        start, keys, stored_bytes = prefix.encode(), 0, 0
        while True:
            request = rpc.RangeRequest(key=start, range_end=prefix_end(prefix), limit=PAGE_KEYS)
            answer = await self._keys("Range", request)
            keys = max(keys, answer.count)  # of the first page: all of them
            stored_bytes += sum(len(kv.key) + len(kv.value) for kv in answer.kvs)
            if not answer.more or keys > most_keys or stored_bytes > most_bytes:
                return JobFootprint(keys=keys, stored_bytes=stored_bytes)
            start = answer.kvs[-1].key + b"\0"

    async def written(self, *, window_s: float, most_bytes: int) -> Mapping[str, int]:
        """Bytes by job that come into history within `window_s`, or until one of them wrote more than `most_bytes`."""
        counted: Counter[str] = Counter()
        member = self._channel.current
        stream = await self._channel.open_stream(member, lambda channel: stubs.WatchStub(channel).Watch)
        create = rpc.WatchCreateRequest(key=JOBS.encode(), range_end=prefix_end(JOBS))
        try:
            async with asyncio.timeout(window_s):
                await stream.write(rpc.WatchRequest(create_request=create))
                while (answer := await stream.read()) is not grpc.aio.EOF and not answer.canceled:
                    for event in answer.events:
                        job = event.kv.key[len(JOBS) :].partition(b"/")[0].decode(errors="replace")
                        counted[job] += len(event.kv.key) + len(event.kv.value) + EVENT_BYTES
                    if max(counted.values(), default=0) > most_bytes:
                        return counted
                self._channel.forget_token()
                raise StoreUnavailableError("etcd ended the watch of what jobs write")
        except TimeoutError:
            return counted
        except grpc.aio.AioRpcError as error:
            raise self._channel.failed(member, error) from error
        finally:
            stream.cancel()

    async def trim(self, job: str, *, most_bytes: int) -> None:
        """Delete all keys of the job except those that a master writes, limited to `most_bytes` together.

        Each key has an equal share of `most_bytes`, and a longer value is deleted; head, which is short, always stays.
        """
        keys = JobKeys(job)
        known = [key.encode() for key in keys.known]
        for start, end in pairwise([keys.prefix.encode(), *known, prefix_end(keys.prefix)]):
            after = start + b"\0" if start in known else start
            await self._keys("DeleteRange", rpc.DeleteRangeRequest(key=after, range_end=end))
        for key in known:
            found = (await self._keys("Range", rpc.RangeRequest(key=key))).kvs
            if found and len(found[0].value) > most_bytes // len(known):
                await self._keys("DeleteRange", rpc.DeleteRangeRequest(key=key))

    async def compact(self) -> None:
        """Delete history up to now.  A running watch continues; one that was disconnected reads again (`Resync`)."""
        revision = (await self._keys("Range", rpc.RangeRequest(key=JOBS.encode(), keys_only=True))).header.revision
        try:
            await self._keys("Compact", rpc.CompactionRequest(revision=revision, physical=True))
        except PermanentError as error:
            if COMPACTED not in str(error):
                raise

    async def defragment(self) -> None:
        """Return free pages to the file system, one member after the other: each answers no request meanwhile."""
        for member in self._members:
            try:
                await _maintain(member, "Defragment", rpc.DefragmentRequest())
            except MasterError as error:
                log.warning("etcd at %s could not be defragmented: %s", *member.config.endpoints, error)

    async def disarm(self) -> None:
        """Clear etcd's NOSPACE alarm: writes are accepted until one would pass the quota."""
        for alarm in await self._alarms():
            request = rpc.AlarmRequest(action=rpc.AlarmRequest.DEACTIVATE, memberID=alarm.memberID, alarm=alarm.alarm)
            await _maintain(self._channel, "Alarm", request)

    async def close(self) -> None:
        """Close connections."""
        for channel in (self._channel, *self._members):
            await channel.close()

    async def _status(self, member: EtcdChannel) -> Any | None:
        try:
            async with asyncio.timeout(STATUS_S):
                return await _maintain(member, "Status", rpc.StatusRequest())
        except (TimeoutError, MasterError) as error:
            log.debug("etcd at %s does not report its size: %s", *member.config.endpoints, error)
            return None

    async def _alarms(self) -> list[Any]:
        request = rpc.AlarmRequest(action=rpc.AlarmRequest.GET, alarm=NO_SPACE)
        return [one for one in (await _maintain(self._channel, "Alarm", request)).alarms if one.alarm == NO_SPACE]

    async def _keys(self, name: str, request: Any) -> Any:
        return await self._channel.call(lambda channel: getattr(stubs.KVStub(channel), name), request)


async def _maintain(channel: EtcdChannel, name: str, request: Any) -> Any:
    return await channel.call(lambda channel: getattr(stubs.MaintenanceStub(channel), name), request)


def _unknown_fields(message: Any) -> dict[int, Any]:
    """Fields by number that the stubs have no name for."""
    fields: Any = UnknownFieldSet(message)
    return {field.field_number: field.data for field in fields}
