"""Watch that survives reconnects by resuming at the next revision."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

import grpc.aio

from master.errors import StoreAccessError, StoreUnavailableError
from master.store.etcd.etcd_channel import OLD_REVISION, EtcdChannel, StaleTokenError, is_refusal
from master.store.etcd.etcd_requests import parse_change, prefix_end
from master.store.etcd.stubs import rpc, stubs
from master.store.job_keys import Key
from master.store.store_port import KeyEvent, Resync, Revision

RECONNECT_AFTER_S: Final = 0.2
REFUSALS: Final = 2  # in a row: the first may be an expired token


async def watch(channel: EtcdChannel, prefix: Key, after: Revision) -> AsyncGenerator[KeyEvent, None]:
    """See `StateStore.watch`.  Raises StoreAccessError when etcd refuses the user."""
    refusals = 0
    while True:
        try:
            async with aclosing(_watch_once(channel, prefix, after)) as events:
                async for event in events:
                    refusals = 0
                    after = event.revision
                    yield event
                    if isinstance(event, Resync):
                        break
        except StoreUnavailableError as error:
            if isinstance(error, StaleTokenError):
                channel.handle_stale_token(str(error))
            await asyncio.sleep(RECONNECT_AFTER_S)
        except StoreAccessError:
            refusals += 1
            if refusals >= REFUSALS:
                raise
            channel.forget_token()


async def _watch_once(channel: EtcdChannel, prefix: Key, after: Revision) -> AsyncGenerator[KeyEvent, None]:
    """The changes that one stream delivers.  After a Resync it is of no more use."""
    member = channel.current
    stream = await channel.open_stream(member, lambda channel: stubs.WatchStub(channel).Watch)
    try:
        create = rpc.WatchCreateRequest(key=prefix.encode(), range_end=prefix_end(prefix), start_revision=after + 1)
        await stream.write(rpc.WatchRequest(create_request=create))
        while (response := await stream.read()) is not grpc.aio.EOF:
            for event in _parse(response, after):
                yield event
        raise StoreUnavailableError("etcd ended the watch")
    except grpc.aio.AioRpcError as error:
        raise channel.failed(member, error) from error
    finally:
        stream.cancel()


def _parse(response: Any, after: Revision) -> list[KeyEvent]:
    if response.compact_revision:
        return [Resync(revision=response.compact_revision)]
    if response.canceled:
        if OLD_REVISION in response.cancel_reason:
            raise StaleTokenError(f"etcd ended the watch: {response.cancel_reason}")
        if is_refusal(response.cancel_reason):
            raise StoreAccessError(
                f"etcd refused the watch: {response.cancel_reason}. Check EDL_ETCD_USER and its role."
            )
        raise StoreUnavailableError(f"etcd ended the watch: {response.cancel_reason}")
    if response.created and response.header.revision < after:
        return [Resync(revision=response.header.revision)]  # a store that was lost and starts from zero
    return [parse_change(event) for event in response.events]
