"""Takes samples of who has the cluster, for the page's view of the last hour and day.

A sample of a large cluster costs some hundred milliseconds: they are taken on a thread, and as far apart as keeps them
below a small part of a core.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Final

from aiohttp import web

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS, TRAINING_JOBS
from autoscaler.page.content.rendering import compile_templates
from autoscaler.page.page_source import PageSource
from autoscaler.views.history.samples import ClusterSample, SampleRings, sample_of
from autoscaler.views.namespace_presence import NamespacePresence
from autoscaler.views.view_memo import ViewMemo

EVERY_S: Final = 1.0
FIRST_EVERY_S: Final = 0.05
"""Before anything has been seen, between two looks for it."""

SHARE: Final = 0.02
"""Of a core, at most."""

_FILLING: Final = frozenset(kind.plural for kind in (TRAINING_JOBS, PODS, DEPLOYMENTS))
"""Without one of these a namespace may only look empty."""

log = logging.getLogger(__name__)


class Sampler:
    """Samples of one place in `rings`, while `running`, once the templates are compiled.

    `has_looked`: it has seen every object once, so that views of them are made (`ViewMemo`).  Before that a page of a
    large cluster takes seconds.
    """

    def __init__(self, source: PageSource, memo: ViewMemo) -> None:
        self._source = source
        self._memo = memo
        self._presence = NamespacePresence()
        self.rings: Final = SampleRings()
        self._compiled = asyncio.Event()
        self._looked = asyncio.Event()

    @property
    def has_looked(self) -> bool:
        """True once views of all objects have been made."""
        return self._looked.is_set()

    @property
    def is_looking(self) -> bool:
        """True while the first views of objects that are there are being made."""
        documents = None if self.has_looked else self._source.documents()
        return documents is not None and documents.is_current

    async def wait_for_views(self, within_s: float | None) -> None:
        """Wait for the templates, then while the first views are being made, so long at most; None: until they are."""
        await self._compiled.wait()
        if self.is_looking:
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._looked.wait()

    async def running(self, _app: web.Application) -> AsyncIterator[None]:
        """Take samples from the start of the application to its end (a context of aiohttp)."""
        task = asyncio.create_task(self._run(), name="page samples")
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def _run(self) -> None:
        try:  # before the views: who comes while these are made needs them
            await asyncio.to_thread(compile_templates)
        finally:
            self._compiled.set()
        version = 0
        while True:
            cost_s = 0.0
            try:
                cost_s = await self._take()
            except Exception:
                log.exception("no sample could be taken")
            if self.has_looked:
                await asyncio.sleep(max(EVERY_S, cost_s / SHARE))
            else:  # at once when there is something to look at
                with suppress(TimeoutError):
                    async with asyncio.timeout(EVERY_S):
                        version = await self._source.wait_for_change(version)
                await asyncio.sleep(FIRST_EVERY_S)

    async def _take(self) -> float:
        """Take one sample and return what it cost, in seconds of a core."""
        documents = self._source.documents()
        if documents is None or not documents.is_current:  # else what is long past would count as now
            return 0.0

        def timed() -> tuple[ClusterSample | None, float]:
            began_s = time.thread_time()
            found = sample_of(replace(documents, memo=self._memo))
            return found, time.thread_time() - began_s

        try:
            sample, cost_s = await asyncio.to_thread(timed)
        finally:
            self._looked.set()  # whatever came of it, nobody waits for more
        if sample is not None:
            self.rings.add(sample)
        if documents.unlisted.isdisjoint(_FILLING):
            ended = self._presence.ended(self.rings.namespaces, documents.namespaces(), documents.now_s)
            if ended:
                self.rings.forget(ended)
        return cost_s
