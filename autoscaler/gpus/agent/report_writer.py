"""Writes the reports of this node to the API server: at the times of `report_timing`, one call at a time.

A failure delays writes and ends nothing.  What stands in the cluster meanwhile grows old, and a plan takes no GPU for
idle by an old report.  `offer` gets every sample's report; `run` writes the newest.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from autoscaler.domain.cluster import NodeName
from autoscaler.domain.gpu_reports import NodeGpuReport
from autoscaler.errors import ClusterError, TemporaryError
from autoscaler.gpus.agent.node_gpus_api import AgentIdentity
from autoscaler.gpus.agent.report_timing import ReportTiming, WrittenReport, due_at_s, holds_idle, pause_s
from autoscaler.gpus.report_documents import make_object, make_status, renewal_asked_at_s

log: Final = logging.getLogger(__name__)


class NodeObject(Protocol):
    """The node's object in the cluster, as `NodeGpusApi` has it.  Calls raise ClusterError alone."""

    async def get(self, node: NodeName) -> dict[str, Any] | None:
        """The object, or None."""
        ...

    async def create(self, body: dict[str, Any]) -> None:
        """Create it unless it is there."""
        ...

    async def write_status(self, node: NodeName, status: dict[str, Any]) -> bool:
        """Replace its status; False without an object."""
        ...


class ReportWriter:
    """Keeps the node's object as new as `report_timing` asks."""

    def __init__(
        self,
        door: NodeObject,
        identity: AgentIdentity,
        *,
        timing: ReportTiming | None = None,
        on_written: Callable[[], None] = lambda: None,
        jitter: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_written` is called in the event loop after each report that the server took."""
        self.failures = 0  # in a row
        self.writes = 0
        self._door = door
        self._identity = identity
        self._timing = timing or ReportTiming()
        self._on_written = on_written
        self._jitter = jitter
        self._clock = clock
        self._drawn = jitter()
        self._started_at_s = self._clock()
        self._newest: NodeGpuReport | None = None
        self._changed_at_s: float | None = None
        self._written: WrittenReport | None = None
        self._not_before_s = 0.0
        self._asks_at_s = 0.0
        self._wake = asyncio.Event()

    def offer(self, report: NodeGpuReport) -> None:
        """The report of the newest sample; it replaces the one that is not written yet."""
        self._newest = report
        if self._written is None or self._written.report.has_same_verdicts(report):
            self._changed_at_s = None
        elif self._changed_at_s is None:
            self._changed_at_s = self._clock()
        self._wake.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._timing.ask_every_s)
            self._wake.clear()
            report, now_s = self._newest, self._clock()
            if report is None or now_s < self._not_before_s:
                continue
            try:
                if now_s >= self._due_at_s(report) or await self._is_asked(report, now_s):
                    await self._write(report)
                    self.failures = 0
            except ClusterError as error:
                self._record(error)

    def _due_at_s(self, report: NodeGpuReport) -> float:
        return due_at_s(
            self._written,
            report,
            changed_at_s=self._changed_at_s,
            started_at_s=self._started_at_s,
            jitter=self._drawn,
            timing=self._timing,
        )

    async def _is_asked(self, report: NodeGpuReport, now_s: float) -> bool:
        """True if the operator wants a report that is newer than the one that stands; asked while a GPU is held."""
        if self._written is None or not holds_idle(report) or now_s < self._asks_at_s:
            return False
        self._asks_at_s = now_s + self._timing.ask_every_s * (0.9 + 0.1 * self._jitter())
        raw = await self._door.get(self._identity.node)
        asked_at_s = None if raw is None else renewal_asked_at_s(raw)
        return raw is None or (asked_at_s is not None and asked_at_s > self._written.report.reported_at_s)

    async def _write(self, report: NodeGpuReport) -> None:
        node, status = self._identity.node, make_status(report)
        if not await self._door.write_status(node, status):
            await self._door.create(make_object(node, self._identity.uid))
            if not await self._door.write_status(node, status):
                raise TemporaryError("the object was removed while it was made", retry_after_s=0.0)
        self._written = WrittenReport(report=report, at_s=self._clock())
        self._changed_at_s = None
        self._drawn = self._jitter()
        self.writes += 1
        if self.failures:
            log.info("reports are written again")
        self._on_written()

    def _record(self, error: ClusterError) -> None:
        """Keep off for a while; the first failure in a row is logged, and every 20th."""
        self.failures += 1
        retry_after_s = error.retry_after_s if isinstance(error, TemporaryError) else self._timing.longest_pause_s
        wait_s = pause_s(self.failures, retry_after_s=retry_after_s, jitter=self._jitter(), timing=self._timing)
        self._not_before_s = self._clock() + wait_s
        if self.failures % 20 == 1:
            log.warning("the report is not written, again in %.0f s: %s", wait_s, error)
