"""Pods by the API server's events: a listing, then one watch after another, independent of EDL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Api, EventType, Raw, Scope
from autoscaler.clusters.kubernetes.api.errors import UnavailableError
from autoscaler.clusters.kubernetes.api.kinds import PODS

TURN_S: Final = 60.0
PAUSE_S: Final = 0.1


async def follow_pods(api: Api, scope: Scope, see: Callable[[Raw, bool], None], *, listed: asyncio.Event) -> None:
    """Until it is cancelled, `see(pod, is_gone)` for each that is there and each change; `listed` once all are seen.

    A watch that breaks goes on from the last event; a history that is forgotten meanwhile ends it with the error.
    """
    listing = await api.list(PODS, scope)
    for raw in listing.items:
        see(raw, False)
    listed.set()
    since = listing.resource_version
    while True:
        try:
            watch = api.watch(PODS, scope, since=since, timeout_s=TURN_S, silence_s=2 * TURN_S)
            async with aclosing(watch) as events:
                async for event in events:
                    since = event.resource_version
                    if event.type is not EventType.BOOKMARK:
                        see(event.object, event.type is EventType.DELETED)
        except UnavailableError:
            await asyncio.sleep(PAUSE_S)
