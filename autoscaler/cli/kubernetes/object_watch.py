"""Watch of a cluster's objects for -w: each as it is, and again whenever it changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from typing import Final

from autoscaler.cli.kubernetes.api_errors import unknown_kind
from autoscaler.clusters.kubernetes.api.api_port import Api, EventType, Raw, Scope, WatchEvent
from autoscaler.clusters.kubernetes.api.errors import ExpiredError, NotFoundError, UnavailableError
from autoscaler.clusters.kubernetes.api.kinds import Kind
from autoscaler.clusters.kubernetes.objects.fields import text

_WATCH_TIMEOUT_S: Final = 300.0
_SILENCE_S: Final = 90.0  # bookmarks come each minute
_ATTEMPTS: Final = 5  # in a row, of watches that end in an error
_RETRY_AFTER_S: Final = 1.0


async def watch_objects(
    api: Api, kind: Kind, scope: Scope, *, order: Callable[[Iterable[Raw]], list[Raw]] = list
) -> AsyncGenerator[Raw, None]:
    """Each object of the scope as it is, and again whenever it changes or is deleted; never ends.

    A watch that ends is resumed; after an expired one the objects are listed again, and only changed ones are yielded.
    Raises ClusterError at once for a failed listing, and after five lost watches in a row; CommandError if the cluster
    does not have the kind.
    """
    shown: dict[str, str] = {}
    failures = 0
    while True:
        try:
            listing = await api.list(kind, scope)
        except NotFoundError as error:
            raise unknown_kind(kind, error) from None
        for item in order(item for item in listing.items if shown.get(_uid(item)) != _version(item)):
            yield item
        shown = {_uid(item): _version(item) for item in listing.items}
        try:
            async with aclosing(_changes(api, kind, scope, listing.resource_version)) as changes:
                async for change in changes:
                    failures = 0
                    if change.type is EventType.BOOKMARK:
                        continue
                    shown[_uid(change.object)] = _version(change.object)
                    if change.type is EventType.DELETED:
                        del shown[_uid(change.object)]
                    yield change.object
        except ExpiredError:
            pass
        except UnavailableError:
            failures += 1
            if failures >= _ATTEMPTS:
                raise
            await asyncio.sleep(_RETRY_AFTER_S)


async def _changes(api: Api, kind: Kind, scope: Scope, since: str) -> AsyncGenerator[WatchEvent, None]:
    """Watch events without end: a new watch follows one that ended."""
    while True:
        watched = api.watch(kind, scope, since=since, timeout_s=_WATCH_TIMEOUT_S, silence_s=_SILENCE_S)
        async with aclosing(watched) as changes:
            async for change in changes:
                since = change.resource_version
                yield change


def _uid(item: Raw) -> str:
    return text(item, "metadata", "uid")


def _version(item: Raw) -> str:
    return text(item, "metadata", "resourceVersion")
