"""Leases in etcd: grant, revoke, and renewals over one open stream (three times as fast as a stream each)."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Final

import grpc.aio

from master.errors import LeaseLostError, StoreUnavailableError
from master.store.etcd.etcd_channel import EtcdChannel, EtcdEndpoint, retry_stale
from master.store.etcd.stubs import rpc, stubs

LARGEST_LEASE: Final = 2**63 - 1  # etcd's are signed; 0 lets it choose


class Leases:
    def __init__(self, channel: EtcdChannel) -> None:
        self._channel = channel
        self._stream: Any = None
        self._member = channel.current  # of the stream
        self._renewing = asyncio.Lock()

    async def grant(self, ttl_s: int) -> int:
        """A new lease of at least that time; it begins before the answer arrives.

        Its number cannot be guessed: etcd asks for no permission on a lease without keys, and its own numbers follow
        one another, so a stranger could revoke a lease between its grant and its campaign (ADR 0165).
        """
        request = rpc.LeaseGrantRequest(TTL=ttl_s, ID=secrets.randbelow(LARGEST_LEASE) + 1)
        answer = await self._channel.call(lambda channel: stubs.LeaseStub(channel).LeaseGrant, request)
        return int(answer.ID)

    async def revoke(self, lease: int) -> None:
        """Revoke the lease, which deletes its keys; idempotent."""
        try:
            await self._channel.call(
                lambda channel: stubs.LeaseStub(channel).LeaseRevoke, rpc.LeaseRevokeRequest(ID=lease)
            )
        except LeaseLostError:
            return

    async def renew(self, lease: int) -> None:
        """One attempt, and again where only the token was refused.  Raises LeaseLostError, StoreUnavailableError."""
        async with self._renewing:
            answer = await retry_stale(lambda: self._attempt(lease))
        if answer.TTL <= 0:
            raise LeaseLostError("etcd no longer knows the lease")

    async def _attempt(self, lease: int) -> Any:
        member = self._member if self._stream is not None else self._channel.current
        try:
            async with asyncio.timeout(self._channel.config.call_deadline_s):
                return await self._exchange(member, lease)
        except BaseException as error:  # also when cancelled: the next renewal must not read this one's answer
            self.close()
            match error:
                case grpc.aio.AioRpcError():
                    raise self._channel.failed(member, error) from error
                case TimeoutError() | asyncio.InvalidStateError():  # no answer; or the stream was over already
                    self._channel.switch_from(member)
                    raise StoreUnavailableError(f"etcd at {member.endpoint} does not answer lease renewals") from error
                case _:
                    raise

    def close(self) -> None:
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None

    async def _exchange(self, member: EtcdEndpoint, lease: int) -> Any:
        if self._stream is None:
            self._member = member
            self._stream = await self._channel.open_stream(
                member, lambda channel: stubs.LeaseStub(channel).LeaseKeepAlive
            )
        await self._stream.write(rpc.LeaseKeepAliveRequest(ID=lease))
        answer = await self._stream.read()
        if answer is grpc.aio.EOF:
            raise StoreUnavailableError("etcd ended the stream of renewals")
        return answer
