"""`Api` on an in-memory API server, for one field manager."""

from __future__ import annotations

import asyncio
import marshal
import math
from collections.abc import AsyncGenerator
from typing import Any, Final

from autoscaler.clusters.kubernetes.api.api_port import (
    ANY,
    EVERYWHERE,
    FIELD_MANAGER,
    EventType,
    Listing,
    Preconditions,
    Propagation,
    Raw,
    Scope,
    Subresource,
    WatchEvent,
    with_preconditions,
)
from autoscaler.clusters.kubernetes.api.errors import (
    ConflictError,
    NotFoundError,
    UnavailableError,
)
from autoscaler.clusters.kubernetes.api.kinds import EVICTIONS, PODS, Kind
from autoscaler.clusters.kubernetes.memory_api.field_ownership import FieldOwner, apply_fields, merge_patch
from autoscaler.clusters.kubernetes.memory_api.memory_server import MemoryServer, check_preconditions
from autoscaler.clusters.kubernetes.memory_api.object_rules import check_known_fields, has_status
from autoscaler.clusters.kubernetes.memory_api.selectors import parse_scope

_FINAL_BOOKMARK_S: Final = 2.0  # before its end a watch gets a bookmark, as from a real server
_SHORTEST_WAIT_S: Final = 1e-6  # below the resolution of an event loop's clock


class MemoryApi:
    """`Api` on a `MemoryServer`."""

    def __init__(self, server: MemoryServer, *, field_manager: str = FIELD_MANAGER) -> None:
        self._server = server
        self._manager = field_manager

    async def list(self, kind: Kind, scope: Scope = EVERYWHERE) -> Listing:
        """See `Api.list`."""
        matches = parse_scope(scope)
        items = tuple(_copy(obj) for obj in self._server.all(kind) if matches(obj))
        return Listing(items=items, resource_version=str(self._server.history.version))

    async def watch(
        self, kind: Kind, scope: Scope = EVERYWHERE, *, since: str, timeout_s: float, silence_s: float
    ) -> AsyncGenerator[WatchEvent, None]:
        """See `Api.watch`."""
        history, matches, version = self._server.history, parse_scope(scope), int(since)
        disconnects, bookmarks = history.disconnects, history.bookmarks
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + timeout_s
        signs_at = ends_at - min(_FINAL_BOOKMARK_S, timeout_s / 2)
        with history.waiting() as woken:
            while True:
                woken.clear()
                if history.disconnects != disconnects:
                    raise UnavailableError(f"watch {kind.plural}: connection lost", may_have_happened=False)
                changes = history.since(version)
                for change in changes:
                    version = change.version
                    event = change.seen_by(matches) if change.kind == kind else None
                    if event is not None:
                        yield WatchEvent(type=event.type, object=_copy(event.object))
                if changes:
                    continue  # more events may have come while these were yielded
                version = history.version
                if (
                    history.bookmarks != bookmarks
                    or signs_at - _SHORTEST_WAIT_S <= loop.time() < ends_at - _SHORTEST_WAIT_S
                ):
                    bookmarks, signs_at = history.bookmarks, math.inf
                    yield _bookmark(kind, version)
                if loop.time() >= ends_at - _SHORTEST_WAIT_S:
                    return
                left_s = min(signs_at, ends_at) - loop.time()
                try:
                    async with asyncio.timeout(max(0.0, min(left_s, silence_s))):  # wait_for loses cancellations
                        await woken.wait()
                except TimeoutError:
                    if silence_s < left_s:
                        message = f"watch {kind.plural}: nothing for {silence_s:g} s"
                        raise UnavailableError(message, may_have_happened=False) from None

    async def get(
        self, kind: Kind, name: str, *, namespace: str | None = None, subresource: Subresource | None = None
    ) -> Raw:
        """See `Api.get`."""
        obj = self._server.get(kind, namespace, name)
        return _copy(self._scale_of(kind, obj) if subresource is Subresource.SCALE else obj)

    async def create(self, kind: Kind, body: Raw) -> Raw:
        """See `Api.create`."""
        if kind.is_review:
            return _copy(self._server.review(kind, _copy(body)))
        if kind == EVICTIONS:  # no budgets are kept here
            metadata, options = body["metadata"], body.get("deleteOptions") or {}
            wanted = options.get("preconditions", {})
            only = Preconditions(uid=wanted.get("uid"), resource_version=wanted.get("resourceVersion"))
            await self.delete(PODS, metadata["name"], namespace=metadata["namespace"], only=only)
            return _copy(body)
        return _copy(self._server.create(kind, body, FieldOwner(self._manager, is_apply=False)))

    async def check_create(self, kind: Kind, body: Raw) -> None:
        """See `Api.check_create`."""
        check_known_fields(kind, body)
        self._server.check_new(kind, body)

    async def apply(
        self, kind: Kind, body: Raw, *, subresource: Subresource | None = None, is_forced: bool = True
    ) -> Raw:
        """See `Api.apply`."""
        namespace, name = body["metadata"].get("namespace"), body["metadata"]["name"]
        owner = FieldOwner(self._manager, is_apply=True, subresource=subresource or "")
        try:
            current = self._server.get(kind, namespace, name)
        except NotFoundError:
            if body["metadata"].get("uid"):
                raise ConflictError(f'{kind.plural} "{name}": uid mismatch: no existing object was found') from None
            if subresource:
                raise
            obj, owners = apply_fields({}, body, {}, owner, is_forced=is_forced)
            return _copy(self._server.create(kind, obj, owner, owners))
        check_preconditions(kind, current, _preconditions_of(body))
        body = _copy(body)
        wanted, owners = apply_fields(
            current, body, self._server.owners(kind, namespace, name), owner, is_forced=is_forced
        )
        is_status = subresource is Subresource.STATUS
        return _copy(self._server.change(kind, current, wanted, is_status=is_status, owner=owner, owners=owners))

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
        current = self._server.get(kind, namespace, name)
        change = with_preconditions(change, only)
        owner = FieldOwner(self._manager, is_apply=False, subresource=subresource or "")
        if subresource is Subresource.SCALE:
            check_preconditions(kind, current, _preconditions_of(change))
            change = self._scaled(kind, change)
        is_status = subresource is Subresource.STATUS and has_status(kind)
        wanted = merge_patch(current, change)
        obj = self._server.change(kind, current, wanted, is_status=is_status, owner=owner)
        return _copy(self._scale_of(kind, obj) if subresource is Subresource.SCALE else obj)

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
        self._server.delete(kind, namespace, name, only=only, grace_s=grace_s, propagation=propagation)

    async def log(
        self,
        pod: str,
        *,
        namespace: str,
        container: str | None = None,  # noqa: ARG002 - the pods here have one
        tail_lines: int | None = None,
        is_followed: bool = False,  # noqa: ARG002 - and it writes no more
        is_previous: bool = False,  # noqa: ARG002 - nor was it restarted
    ) -> AsyncGenerator[bytes, None]:
        """See `Api.log`: the lines of `server.logs`; containers here have always ended."""
        self._server.get(PODS, namespace, pod)
        lines = self._server.logs.get((namespace, pod), [])
        for line in lines if tail_lines is None else lines[len(lines) - tail_lines :]:
            yield line

    async def close(self) -> None:
        """See `Api.close`: there is no connection."""

    def _scale_of(self, kind: Kind, obj: Raw) -> Raw:
        paths, metadata = self._server.scales[kind], obj["metadata"]
        kept = ("creationTimestamp", "name", "namespace", "resourceVersion", "uid")
        return {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {key: metadata[key] for key in kept if key in metadata},
            "spec": {"replicas": _at(obj, paths.desired)},
            "status": {"replicas": _at(obj, paths.current)},
        }

    def _scaled(self, kind: Kind, change: Raw) -> Raw:
        *outer, last = self._server.scales[kind].desired
        nested: Raw = {last: change.get("spec", {}).get("replicas")}
        for name in reversed(outer):
            nested = {name: nested}
        return {"metadata": change.get("metadata", {})} | nested


def _preconditions_of(body: Raw) -> Preconditions:
    metadata = body.get("metadata", {})
    return Preconditions(uid=metadata.get("uid"), resource_version=metadata.get("resourceVersion"))


def _at(obj: Any, path: tuple[str, ...]) -> int:
    for name in path:
        obj = (obj or {}).get(name)
    return int(obj or 0)


def _bookmark(kind: Kind, version: int) -> WatchEvent:
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"resourceVersion": str(version)}}
    return WatchEvent(type=EventType.BOOKMARK, object=body)


def _copy(obj: Raw) -> Raw:
    """Return a copy; what is stored is JSON already, so marshal, which takes a third of the time, is enough."""
    copied: Raw = marshal.loads(marshal.dumps(obj))  # noqa: S302 - made one line before
    return copied
