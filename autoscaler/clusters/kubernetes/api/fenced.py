"""Only the leader writes: an `Api` that asks for the right before every write.

The right comes from the Lease's own clock (`autoscaler.operator.lease`), so that a process that was stopped and goes on
has lost it before it can use it.  A write that has begun may still land; it is given up, here and by the server, after
`port.REQUEST_TIMEOUT_S`, and the leader lets go of its right at least that long before anybody may take the Lease.
Reads pass.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

from autoscaler.clusters.kubernetes.api.errors import NotLeadingError
from autoscaler.clusters.kubernetes.api.kinds import Kind
from autoscaler.clusters.kubernetes.api.port import (
    ANY,
    EVERYWHERE,
    Api,
    Listing,
    Preconditions,
    Propagation,
    Raw,
    Scope,
    Subresource,
    WatchEvent,
)


class FencedApi:
    """`port.Api` whose writes raise NotLeadingError, with nothing sent, unless `may_write()` says yes."""

    def __init__(self, inner: Api, may_write: Callable[[], bool]) -> None:
        self._inner = inner
        self._may_write = may_write

    async def list(self, kind: Kind, scope: Scope = EVERYWHERE) -> Listing:
        """See `port.Api.list`."""
        return await self._inner.list(kind, scope)

    def watch(
        self, kind: Kind, scope: Scope = EVERYWHERE, *, since: str, timeout_s: float, silence_s: float
    ) -> AsyncGenerator[WatchEvent, None]:
        """See `port.Api.watch`."""
        return self._inner.watch(kind, scope, since=since, timeout_s=timeout_s, silence_s=silence_s)

    async def get(
        self, kind: Kind, name: str, *, namespace: str | None = None, subresource: Subresource | None = None
    ) -> Raw:
        """See `port.Api.get`."""
        return await self._inner.get(kind, name, namespace=namespace, subresource=subresource)

    async def create(self, kind: Kind, body: Raw) -> Raw:
        """See `port.Api.create`.  Fenced."""
        self._check(f"create {kind.plural}")
        return await self._inner.create(kind, body)

    async def apply(
        self, kind: Kind, body: Raw, *, subresource: Subresource | None = None, is_forced: bool = True
    ) -> Raw:
        """See `port.Api.apply`.  Fenced."""
        self._check(f"apply {kind.plural}")
        return await self._inner.apply(kind, body, subresource=subresource, is_forced=is_forced)

    async def patch(
        self,
        kind: Kind,
        name: str,
        change: Raw,
        *,
        namespace: str | None = None,
        only: Preconditions = ANY,
        subresource: Subresource | None = None,
    ) -> Raw:
        """See `port.Api.patch`.  Fenced."""
        self._check(f"patch {kind.plural}")
        return await self._inner.patch(kind, name, change, namespace=namespace, only=only, subresource=subresource)

    async def delete(
        self,
        kind: Kind,
        name: str,
        *,
        namespace: str | None = None,
        only: Preconditions = ANY,
        grace_s: int | None = None,
        propagation: Propagation | None = None,
    ) -> None:
        """See `port.Api.delete`.  Fenced."""
        self._check(f"delete {kind.plural}")
        await self._inner.delete(kind, name, namespace=namespace, only=only, grace_s=grace_s, propagation=propagation)

    def log(
        self,
        pod: str,
        *,
        namespace: str,
        container: str | None = None,
        tail_lines: int | None = None,
        is_followed: bool = False,
        is_previous: bool = False,
    ) -> AsyncGenerator[bytes, None]:
        """See `port.Api.log`."""
        return self._inner.log(
            pod,
            namespace=namespace,
            container=container,
            tail_lines=tail_lines,
            is_followed=is_followed,
            is_previous=is_previous,
        )

    async def close(self) -> None:
        """See `port.Api.close`."""
        await self._inner.close()

    def _check(self, doing: str) -> None:
        if not self._may_write():
            raise NotLeadingError(f"{doing}: this process does not lead")
