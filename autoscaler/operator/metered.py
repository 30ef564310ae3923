"""An `Api` that counts what it is asked, by verb, kind and outcome; it changes nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from autoscaler.clusters.kubernetes.api.kinds import PODS, Kind
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
from autoscaler.errors import ClusterError

Count: TypeAlias = Callable[[str, str, str], None]


class MeteredApi:
    """`port.Api`.  `count(verb, kind, outcome)` is called at the end of each call; of streams at their beginning."""

    def __init__(self, inner: Api, count: Count) -> None:
        self._inner = inner
        self._count = count

    async def list(self, kind: Kind, scope: Scope = EVERYWHERE) -> Listing:
        """See `port.Api.list`."""
        with self._counted("list", kind):
            return await self._inner.list(kind, scope)

    def watch(
        self, kind: Kind, scope: Scope = EVERYWHERE, *, since: str, timeout_s: float, silence_s: float
    ) -> AsyncGenerator[WatchEvent, None]:
        """See `port.Api.watch`."""
        self._count("watch", kind.plural, "begun")
        return self._inner.watch(kind, scope, since=since, timeout_s=timeout_s, silence_s=silence_s)

    async def get(
        self, kind: Kind, name: str, *, namespace: str | None = None, subresource: Subresource | None = None
    ) -> Raw:
        """See `port.Api.get`."""
        with self._counted("get", kind):
            return await self._inner.get(kind, name, namespace=namespace, subresource=subresource)

    async def create(self, kind: Kind, body: Raw) -> Raw:
        """See `port.Api.create`."""
        with self._counted("create", kind):
            return await self._inner.create(kind, body)

    async def apply(
        self, kind: Kind, body: Raw, *, subresource: Subresource | None = None, is_forced: bool = True
    ) -> Raw:
        """See `port.Api.apply`."""
        with self._counted("apply", kind):
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
        """See `port.Api.patch`."""
        with self._counted("patch", kind):
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
        """See `port.Api.delete`."""
        with self._counted("delete", kind):
            await self._inner.delete(
                kind, name, namespace=namespace, only=only, grace_s=grace_s, propagation=propagation
            )

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
        self._count("log", PODS.plural, "begun")
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

    @contextmanager
    def _counted(self, verb: str, kind: Kind) -> Iterator[None]:
        try:
            yield
        except ClusterError as error:
            self._count(verb, kind.plural, type(error).__name__)
            raise
        self._count(verb, kind.plural, "ok")
