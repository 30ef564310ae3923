"""Base class for `Api` decorators, and the decorator that fences writes.

A subclass overrides one hook to act on every call: fencing here, metrics in `autoscaler.operator.metrics`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, nullcontext

from autoscaler.clusters.kubernetes.api.api_port import (
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
from autoscaler.clusters.kubernetes.api.errors import NotLeadingError
from autoscaler.clusters.kubernetes.api.kinds import PODS, Kind


class ApiDecorator:
    """`Api` that passes every call on.  A hook that raises prevents the call."""

    def __init__(self, inner: Api) -> None:
        self._inner = inner

    def around_read(self, verb: str, kind: Kind) -> AbstractContextManager[None]:  # noqa: ARG002 - for subclasses
        """Return the context of a list, get or check_create."""
        return nullcontext()

    def around_write(self, verb: str, kind: Kind) -> AbstractContextManager[None]:  # noqa: ARG002 - for subclasses
        """Return the context of a create, apply, patch or delete."""
        return nullcontext()

    def before_stream(self, verb: str, kind: Kind) -> None:
        """Called before a watch or a log begins."""

    async def list(self, kind: Kind, scope: Scope = EVERYWHERE) -> Listing:
        """See `Api.list`."""
        with self.around_read("list", kind):
            return await self._inner.list(kind, scope)

    def watch(
        self, kind: Kind, scope: Scope = EVERYWHERE, *, since: str, timeout_s: float, silence_s: float
    ) -> AsyncGenerator[WatchEvent, None]:
        """See `Api.watch`."""
        self.before_stream("watch", kind)
        return self._inner.watch(kind, scope, since=since, timeout_s=timeout_s, silence_s=silence_s)

    async def get(
        self, kind: Kind, name: str, *, namespace: str | None = None, subresource: Subresource | None = None
    ) -> Raw:
        """See `Api.get`."""
        with self.around_read("get", kind):
            return await self._inner.get(kind, name, namespace=namespace, subresource=subresource)

    async def create(self, kind: Kind, body: Raw) -> Raw:
        """See `Api.create`."""
        with self.around_write("create", kind):
            return await self._inner.create(kind, body)

    async def check_create(self, kind: Kind, body: Raw) -> None:
        """See `Api.check_create`."""
        with self.around_read("check", kind):
            await self._inner.check_create(kind, body)

    async def apply(
        self, kind: Kind, body: Raw, *, subresource: Subresource | None = None, is_forced: bool = True
    ) -> Raw:
        """See `Api.apply`."""
        with self.around_write("apply", kind):
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
        """See `Api.patch`."""
        with self.around_write("patch", kind):
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
        """See `Api.delete`."""
        with self.around_write("delete", kind):
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
        """See `Api.log`."""
        self.before_stream("log", PODS)
        return self._inner.log(
            pod,
            namespace=namespace,
            container=container,
            tail_lines=tail_lines,
            is_followed=is_followed,
            is_previous=is_previous,
        )

    async def close(self) -> None:
        """See `Api.close`."""
        await self._inner.close()


class FencedApi(ApiDecorator):
    """Fencing: `Api` whose writes raise NotLeadingError, with nothing sent, unless `may_write()` holds."""

    def __init__(self, inner: Api, may_write: Callable[[], bool]) -> None:
        super().__init__(inner)
        self._may_write = may_write

    def around_write(self, verb: str, kind: Kind) -> AbstractContextManager[None]:
        """See `ApiDecorator.around_write`."""
        self._check(f"{verb} {kind.plural}")
        return nullcontext()

    def _check(self, description: str) -> None:
        if not self._may_write():
            raise NotLeadingError(f"{description}: this process does not lead")
