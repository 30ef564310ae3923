"""The reports of one node, from samples to its object."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from autoscaler.errors import InvalidSpecError
from autoscaler.gpus.agent.node_agent import NodeSample
from autoscaler.gpus.agent.node_gpus_api import AgentIdentity
from autoscaler.gpus.agent.report_timing import ReportTiming
from autoscaler.gpus.agent.report_writer import NodeObject, ReportWriter
from autoscaler.gpus.agent.sample_reports import SampleReports

log: Final = logging.getLogger(__name__)


class NodeReports:
    """The reports of this node, from samples to the API server."""

    def __init__(self, door: NodeObject, identity: AgentIdentity, timing: ReportTiming | None = None) -> None:
        self._samples = SampleReports(identity.node)
        self._last: NodeSample | None = None
        self._problem = ""
        self.writer: Final = ReportWriter(door, identity, timing=timing, on_written=self._samples.begin_anew)

    def add(self, sample: NodeSample) -> None:
        """Report this sample, if a report is due.

        The very sample before is none: it says nothing of the time since, so it makes no report younger.  A sample that
        makes no valid report is logged, and what stands grows old.
        """
        if sample is self._last:
            return
        self._last = sample
        try:
            self.writer.offer(self._samples.add(sample, time.time()))
            self._problem = ""
        except InvalidSpecError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                log.warning("no report can be made of this node's GPUs: %s", error)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Write in the background meanwhile.  A bug in the writer ends the process.

        An error of the body itself comes out as it was raised: the command tells of it in one line.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                task = tasks.create_task(self.writer.run(), name="reports")
                yield
                task.cancel()
        except BaseExceptionGroup as group:
            if len(group.exceptions) > 1:
                raise
            raise group.exceptions[0] from None
