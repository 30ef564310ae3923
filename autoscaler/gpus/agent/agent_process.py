"""The agent's process: a sample every interval, a page for Prometheus, and with `NodeReports` the node's object.

A driver that is missing or silent does not end it, since both may pass; an upgraded driver does, because only a new
process loads the new library.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest

from autoscaler.domain.gpu_reports import IDLE_VERDICTS, GpuVerdict
from autoscaler.errors import PermanentError
from autoscaler.gpus.agent.gpu_metrics import GpuCollector, device_name
from autoscaler.gpus.agent.node_agent import NodeAgent, NodeSample
from autoscaler.gpus.agent.node_reports import NodeReports
from autoscaler.gpus.owners import OwnersUnknown
from autoscaler.gpus.readings import FailureKind
from autoscaler.gpus.verdicts import DeviceVerdict
from master.api.host.http_pages import PROMETHEUS_TEXT, CachedPage, Page, serving

log: Final = logging.getLogger(__name__)


class DriverUpgradedError(PermanentError):
    """The process has to be started anew, to load the new driver's library."""


class AgentProcess:
    """Samples and serves.  `run` is called once."""

    def __init__(
        self, agent: NodeAgent, *, interval_s: float, listening: socket.socket, reports: NodeReports | None = None
    ) -> None:
        """`reports` None: nothing is written."""
        self._reports = reports
        self._agent = agent
        self._interval_s = interval_s
        self._listening = listening
        self._newest: tuple[NodeSample, float] | None = None
        self._told = SampleLog()

    async def run(self) -> None:
        """Sample until SIGTERM or SIGINT.  Raises DriverUpgradedError."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        registry = CollectorRegistry()
        registry.register(GpuCollector(lambda: self._newest))
        pages: Mapping[str, Callable[[], Page]] = {
            "/metrics": CachedPage(lambda: Page(body=generate_latest(registry), kind=PROMETHEUS_TEXT)),
            "/healthz": lambda: Page(body=b"ok\n"),
        }
        async with serving(self._listening, pages), AsyncExitStack() as stack:
            if self._reports is not None:
                await stack.enter_async_context(self._reports.writing())
            while not stop.is_set():
                began_s = time.monotonic()
                sample = await asyncio.to_thread(self._agent.sample)
                self._newest = (sample, time.time())
                self._told.tell(sample)
                if self._reports is not None:
                    self._reports.add(sample)
                if sample.failure is not None and sample.failure.kind is FailureKind.UPGRADED:
                    raise DriverUpgradedError(sample.failure.message)
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), max(0.0, began_s + self._interval_s - time.monotonic()))


class SampleLog:
    """Logs what changes from sample to sample: driver, kubelet, and devices that become idle or cease to be."""

    def __init__(self) -> None:
        self._problems: tuple[str, str] = ("", "")
        self._verdicts: dict[str, GpuVerdict] = {}

    def tell(self, sample: NodeSample) -> None:
        """Log the changes since the sample before; nothing while all stands."""
        driver = "" if sample.failure is None else sample.failure.message
        kubelet = sample.owners.reason if isinstance(sample.owners, OwnersUnknown) and not driver else ""
        before, self._problems = self._problems, (driver, kubelet)
        for problem, old, what in zip(self._problems, before, ("driver", "kubelet"), strict=True):
            if problem and problem != old:
                log.warning("%s", problem)
            elif old and not problem and not driver:
                log.info("the %s answers again", what)
        for one in sample.devices:
            _tell_device(one, self._verdicts.get(one.reading.uuid))
        self._verdicts = {one.reading.uuid: one.verdict for one in sample.devices}


def _tell_device(one: DeviceVerdict, old: GpuVerdict | None) -> None:
    if old is not one.verdict and (old in IDLE_VERDICTS or one.verdict in IDLE_VERDICTS):
        name = device_name(one.reading)
        log.info("%s (%s) is %s: %s", one.reading.uuid, name or "no number", one.verdict.value, one.reason)
