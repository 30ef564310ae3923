"""`PageSource` over an API server: watches of what the page shows, with the rights of whoever runs it.

`edl page` has those of its user, the page's own process in the cluster those of its ServiceAccount.  A kind that may
not be listed is left out, and the page shows the rest; what the operator decided stands in the jobs' statuses and
events, so that the page does not depend on the operator, and a change of its leader is no event here.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final

from aiohttp import web

from autoscaler.cluster_page.event_lines import EventLines
from autoscaler.clusters.kubernetes.api.api_port import Api, Raw
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, NODE_GPUS, NODES, PODS, TRAINING_JOBS, Kind
from autoscaler.clusters.kubernetes.cache.object_cache import CLUSTER, ObjectCache
from autoscaler.clusters.kubernetes.cache.reflector import Reflector
from autoscaler.errors import ClusterError
from autoscaler.fault_isolation import JobErrors
from autoscaler.page.answers.shared_answers import SharedAnswers
from autoscaler.snapshots import SnapshotContent
from autoscaler.views.documents import ClusterDocuments
from autoscaler.views.history.journal import JournalLine
from autoscaler.views.namespace_presence import NamespacePresence
from autoscaler.views.view_memo import ViewMemo
from master.api.host.log_lines import escape_controls

_SHOWN: Final = (TRAINING_JOBS, PODS, NODES, DEPLOYMENTS, NODE_GPUS)
_LOOKED_FOR: Final = (TRAINING_JOBS, PODS, DEPLOYMENTS)  # without nodes the picture itself says so
_CURRENT_WITHIN_S: Final = 20.0  # a healthy kind is confirmed every 8 s, and a slow server takes some seconds more
_LOG_LIMIT_S: Final = 5.0
_LOG_KEPT_S: Final = 5.0
_LOGS_READ_AT_ONCE: Final = 8
_MOST_LOG_BYTES: Final = 256 * 1024  # lines have no bound of their own
_SHOWN_LOG_BYTES: Final = 16 * 1024  # stand in each part of a job's page

ReadSnapshot = Callable[[Api, str], Awaitable[SnapshotContent]]
"""Reads what a plan depends on; the title says of what.  Raises ClusterError."""


class ClusterSource:
    """The page's source.  `namespaces` empty: all of them.  `run` keeps it current until it is cancelled.

    `clock` runs evenly; `unix_clock` gives Unix time.
    """

    def __init__(
        self,
        api: Api,
        *,
        title: str,
        read_snapshot: ReadSnapshot,
        namespaces: tuple[str, ...] = (),
        clock: Callable[[], float] = time.monotonic,
        unix_clock: Callable[[], float] = time.time,
    ) -> None:
        self._api = api
        self._title = title
        self._read_snapshot = read_snapshot
        self._namespaces = namespaces
        narrowed = dict.fromkeys((kind for kind in _SHOWN if kind.is_namespaced), namespaces)
        self._clock = clock
        self._unix_clock = unix_clock
        self._cache = ObjectCache(JobErrors(clock), namespaces=narrowed)
        self._reflector = Reflector(
            api, self._cache, _SHOWN, now=clock, jitter=random.random, notify=self._handle_change
        )
        self._events = EventLines(api, namespaces or (CLUSTER,), notify=self._handle_change)
        self._sorted: dict[Kind, tuple[Raw, ...]] = {}
        self._names: frozenset[str] = frozenset()
        self._memo = ViewMemo()
        self._presence = NamespacePresence()
        self._logs = SharedAnswers[Sequence[str]](kept_s=_LOG_KEPT_S, most=_LOGS_READ_AT_ONCE)
        self._version = 1
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._reflector.run(), name="watches of the page")
                tasks.create_task(self._events.run(), name="events of the page")
        finally:
            await self._logs.close()

    @property
    def title(self) -> str:
        """See `PageSource`."""
        return self._title

    @property
    def problem(self) -> str:
        """See `PageSource`: why no change arrives, or else which kind may not be listed, or cannot be yet."""
        ages = self._ages_s()
        silent = [one for one, age_s in ages.items() if age_s is not None and age_s > _CURRENT_WITHIN_S]
        unlisted = [one for one, age_s in ages.items() if age_s is None]
        awaited = [one for one in unlisted if one not in self._reflector.refused]
        missed = [one for one in unlisted if one[0] in _LOOKED_FOR]
        told = [
            self._reflector.problems[one] for one in (*silent, *awaited, *missed) if one in self._reflector.problems
        ]
        return next(iter(told), "the API server has confirmed nothing for a while" if silent else "")

    @property
    def has_jobs(self) -> bool:
        """True if the jobs have been listed, in all namespaces that are shown."""
        return self._cache.is_synced((TRAINING_JOBS,))

    def documents(self) -> ClusterDocuments | None:
        """See `PageSource`: None until each kind has been listed, or refused."""
        ages = self._ages_s()
        unlisted = {one for one, age_s in ages.items() if age_s is None}
        if unlisted - self._reflector.refused:
            return None
        self._take_changes()
        oldest_s = max((age_s for age_s in ages.values() if age_s is not None), default=0.0)
        is_current = oldest_s <= _CURRENT_WITHIN_S
        if is_current and not any(kind in _LOOKED_FOR for kind, _ in unlisted):  # else namespaces may only look empty
            self._forget_ended()
        return ClusterDocuments(
            now_s=self._unix_clock() - (0.0 if is_current else oldest_s),
            nodes=self._objects(NODES),
            pods=self._objects(PODS),
            jobs=self._objects(TRAINING_JOBS),
            deployments=self._objects(DEPLOYMENTS),
            node_gpus=self._objects(NODE_GPUS),
            memo=self._memo,
            names=self._names,
            is_complete=not self._namespaces and self._cache.is_synced((PODS, NODES)),
            unlisted=frozenset(kind.plural for kind, _ in unlisted),
            is_current=is_current,
            problem=self.problem,
        )

    def journal(self) -> Sequence[JournalLine]:
        """See `PageSource`."""
        return self._events.lines

    async def snapshot(self) -> SnapshotContent:
        """See `PageSource`."""
        return await self._read_snapshot(self._api, self._title)

    async def log_tail(self, namespace: str, pod: str, lines: int) -> Sequence[str]:
        """See `PageSource`: read once for all who look, and again after some seconds; none while too many are read."""
        try:
            return await self._logs.get((namespace, pod, lines), 0, partial(self._read_log, namespace, pod, lines))
        except web.HTTPServiceUnavailable:
            return ()

    async def _read_log(self, namespace: str, pod: str, lines: int) -> Sequence[str]:
        found = bytearray()
        try:
            async with asyncio.timeout(_LOG_LIMIT_S):
                async with aclosing(self._api.log(pod, namespace=namespace, tail_lines=lines)) as pieces:
                    async for piece in pieces:
                        found += piece
                        if len(found) >= _MOST_LOG_BYTES:
                            break
        except (ClusterError, TimeoutError):
            return ()
        shown = found[:_MOST_LOG_BYTES][-_SHOWN_LOG_BYTES:]
        return escape_controls(shown.decode(errors="replace")).splitlines()[-lines:]

    async def wait_for_change(self, version: int) -> int:
        """See `PageSource`."""
        while version == self._version:
            await self._changed.wait()
        return self._version

    def _ages_s(self) -> dict[tuple[Kind, str], float | None]:
        """How long ago each kind of each source was confirmed; None for one that has never been listed."""
        now_s, found = self._clock(), dict[tuple[Kind, str], float | None]()
        for kind in _SHOWN:
            for source in self._cache.sources(kind):
                confirmed_at_s = self._cache.confirmed_at_s(kind, source)
                found[kind, source] = None if confirmed_at_s is None else now_s - confirmed_at_s
        return found

    def _handle_change(self) -> None:
        self._version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def _take_changes(self) -> None:
        changes = self._cache.pop_changes()  # nobody else reads those of this cache
        for kind in changes:
            self._sorted.pop(kind, None)
        if changes:
            namespaced = (kind for kind in _SHOWN if kind.is_namespaced)
            self._names = frozenset(namespace for kind in namespaced for namespace, _ in self._cache.objects(kind))

    def _forget_ended(self) -> None:
        """Forget the lines of namespaces that have ended: whoever gets such a name next is somebody else."""
        ended = self._presence.ended(self._events.namespaces, self._names, self._clock())
        if ended:
            self._events.forget(ended)

    def _objects(self, kind: Kind) -> tuple[Raw, ...]:
        if kind not in self._sorted:
            objects: Mapping[tuple[str, str], Raw] = self._cache.objects(kind)
            self._sorted[kind] = tuple(objects[key] for key in sorted(objects))
        return self._sorted[kind]
