"""Reflector: lists each kind of each source once, then watches it turn after turn, and keeps the object cache fresh.

A silent watch proves nothing, and the server's bookmarks come once a minute: too seldom for a view that must not be
older than 10 s (rule 21).  So a watch lasts one short turn.  About 2 s before its end the server sends a bookmark if
the kind has changed since it began, and the next turn continues from there, which its watch cache serves cheaply.  A
healthy kind is confirmed at least every 8 s; one without a byte for `silence_s` is disconnected and watched again.  A
lost connection needs no new list.  A compacted version (410) and an invalid line do, and so does every `relist_s`: a
new list shows what a faulty server has swallowed.

Failures are kept by kind (`problems`), for health and for people; each task continues with growing, jittered pauses.
`object_cache.check_fresh` refuses writes on a stale kind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Api, EventType, Scope
from autoscaler.clusters.kubernetes.api.errors import (
    ExpiredError,
    ForbiddenError,
    NotFoundError,
    ThrottledError,
    UnavailableError,
)
from autoscaler.clusters.kubernetes.api.kinds import Kind
from autoscaler.clusters.kubernetes.cache.object_cache import CLUSTER, ObjectCache
from autoscaler.errors import ClusterError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPolicy:
    """Durations of watches, lists and pauses."""

    turn_s: float = 8.0  # of one watch: confirmed by its bookmark, if the server sends one, else by its end
    silence_s: float = 9.0  # longer than a turn by a slow response, shorter than the 10 s of rule 21
    relist_s: float = 600.0  # 10,000 pods cost a second
    first_pause_s: float = 0.2  # after a failure, doubling
    longest_pause_s: float = 10.0


class Reflector:
    """Follows `kinds` into `store`, each from all its sources.

    `jitter` returns a number in [0, 1); `notify` is called after changes.
    """

    def __init__(
        self,
        api: Api,
        store: ObjectCache,
        kinds: Iterable[Kind],
        *,
        now: Callable[[], float],
        jitter: Callable[[], float],
        notify: Callable[[], None],
        policy: WatchPolicy | None = None,
    ) -> None:
        self.problems: Final[dict[tuple[Kind, str], str]] = {}  # why a kind and source is not followed now
        self.refused: Final[set[tuple[Kind, str]]] = set()  # of these: no right to it, or no such kind
        self._api = api
        self._store = store
        self._followed = [(kind, source) for kind in kinds for source in store.sources(kind)]
        self._now = now
        self._jitter = jitter
        self._notify = notify
        self._policy = policy or WatchPolicy()

    async def run(self) -> None:
        """Follow all kinds until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for kind, source in self._followed:
                tasks.create_task(self._follow(kind, source), name=f"watch {kind.plural} {source}".rstrip())

    async def _follow(self, kind: Kind, source: str) -> None:
        failures, is_listed, requested_at_s = 0, False, self._now()
        while True:
            confirmed_at_s = self._store.confirmed_at_s(kind, source)
            try:
                if not is_listed or self._now() - requested_at_s > self._policy.relist_s:
                    requested_at_s = self._now()
                    await self._list(kind, source)
                    is_listed = True
                await self._turn(kind, source)
                self._clear_problem(kind, source)
                failures = 0
            except ClusterError as error:
                self._record_problem(kind, source, error)
                has_progressed = is_listed and self._store.confirmed_at_s(kind, source) != confirmed_at_s
                is_listed = is_listed and isinstance(error, UnavailableError | ThrottledError)
                failures = 1 if has_progressed and is_listed else failures + 1  # a list is expensive, and no progress
                await asyncio.sleep(self._pause_s(failures, error))

    async def _list(self, kind: Kind, source: str) -> None:
        requested_at_s = self._now()
        listing = await self._api.list(kind, _scope(source))
        if not self._store.apply_listing(kind, listing, requested_at_s=requested_at_s, source=source):
            message = f"list {kind.plural}: version {listing.resource_version} is older than what is known"
            raise ExpiredError(message)
        self._notify()

    async def _turn(self, kind: Kind, source: str) -> None:
        policy, began_at_s = self._policy, self._now()
        since = str(self._store.version(kind, source))
        watch = self._api.watch(kind, _scope(source), since=since, timeout_s=policy.turn_s, silence_s=policy.silence_s)
        async with aclosing(watch) as events:
            async for event in events:
                self._store.apply_event(kind, event, at_s=self._now(), source=source)
                if event.type is not EventType.BOOKMARK:
                    self._notify()
        if self._now() - began_at_s < policy.turn_s / 2:  # a server that shuts down ends every watch at once
            raise UnavailableError(f"watch {kind.plural}: ended early", may_have_happened=False, retry_after_s=0.0)
        self._store.record_progress(kind, at_s=self._now(), source=source)

    def _record_problem(self, kind: Kind, source: str, error: ClusterError) -> None:
        """Keep the problem; log it once, however often the watch is retried."""
        if (kind, source) not in self.problems and not isinstance(error, ExpiredError):
            log.warning("%s are not followed%s: %s", kind.plural, source and f" in {source}", error)
        self.problems[kind, source] = str(error)
        if isinstance(error, ForbiddenError | NotFoundError):
            self.refused.add((kind, source))

    def _clear_problem(self, kind: Kind, source: str) -> None:
        self.refused.discard((kind, source))
        if self.problems.pop((kind, source), None) is not None:
            log.info("%s are followed again%s", kind.plural, source and f" in {source}")

    def _pause_s(self, failures: int, error: ClusterError) -> float:
        """Return a growing pause, scattered so that kinds and operators do not retry all at once."""
        policy = self._policy
        pause_s = min(policy.first_pause_s * 2.0 ** min(failures - 1, 16), policy.longest_pause_s)
        retry_after_s = error.retry_after_s if isinstance(error, ThrottledError) else 0.0
        return max(retry_after_s, pause_s * (0.5 + self._jitter() / 2))


def _scope(source: str) -> Scope:
    return Scope() if source == CLUSTER else Scope(namespace=source)
