"""The operator process: probes first, then the campaign for the Lease, and a `LeaderTerm` while it holds.

A deposed leader drops all work at once and campaigns again with nothing in its memory; only a bug ends the process.
SIGTERM ends it in order: the work, then the Lease is given back, so that another one leads at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import time
from contextlib import AsyncExitStack, suppress
from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Api
from autoscaler.clusters.kubernetes.api.http_client import connect
from autoscaler.clusters.kubernetes.objects.fields import to_micro_time
from autoscaler.clusters.kubernetes.parsing.object_trimming import TRIMMERS
from autoscaler.jobs.master_connections import MasterConnections
from autoscaler.operator.etcd.job_accounts import JobAccounts
from autoscaler.operator.leader_term import LeaderTerm
from autoscaler.operator.leadership.lease import LeaseHolder, run_terms
from autoscaler.operator.metered_api import MeteredApi
from autoscaler.operator.metrics import Metrics
from autoscaler.operator.process.kopf_handlers import listen_to_edits
from autoscaler.operator.process.operator_settings import OperatorSettings
from autoscaler.operator.process.probes import OperatorState, serve_probes
from master.api.host.clock import uptime_s
from master.api.host.log_lines import escape_controls

log = logging.getLogger(__name__)


async def run(settings: OperatorSettings) -> None:
    """Run until SIGTERM or SIGINT.  Raises PermanentError if the API server cannot be configured."""
    if settings.kubeconfig is not None:
        os.environ["KUBECONFIG"] = str(settings.kubeconfig)  # where kopf looks for it
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        metrics = Metrics()
        plain = await connect(settings.kubeconfig, trimmers=TRIMMERS, report_skew=metrics.api_server_ahead_s.set)
        api = MeteredApi(plain, metrics.count_call)
        stack.push_async_callback(api.close)
        operator = OperatorProcess(api, settings, metrics)
        pages = serve_probes(settings.listen, state=operator.state, render=operator.render_metrics)
        log.info("listens on port %d", await stack.enter_async_context(pages))
        work = asyncio.create_task(operator.run(), name="operator")
        stopping = asyncio.create_task(stop.wait(), name="wait for a signal")
        await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (work, stopping):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await work


class OperatorProcess:
    """The operator process: a candidate for the Lease, and a leader while it holds it."""

    def __init__(self, api: Api, settings: OperatorSettings, metrics: Metrics) -> None:
        self._api = api
        self._settings = settings
        self._metrics = metrics
        self._term: LeaderTerm | None = None
        self._lease = LeaseHolder(
            api,
            namespace=settings.lease_namespace,
            name=settings.lease_name,
            identity=settings.term.identity,
            timing=settings.timing,
            clock=uptime_s,
            wall_s=time.time,
        )

    async def run(self) -> None:
        """Campaign, lead, campaign again, until cancelled; then give the Lease back."""
        await run_terms(self._lease, self._api, self._lead)

    def state(self) -> OperatorState:
        """State for the probes."""
        term = self._term
        if term is None:
            return OperatorState(knows_leader=bool(self._lease.holder), is_leading=False)
        return OperatorState(
            knows_leader=True,
            is_leading=True,
            is_synced=term.is_synced,
            passed_s=term.passed_s,
            problem=term.problem,
        )

    def render_metrics(self) -> bytes:
        """Metrics in Prometheus' text format."""
        self._metrics.leading.set(self._lease.may_write())
        if self._term is not None:
            self._term.export_metrics()
        else:
            self._metrics.set_standby()
        return self._metrics.render()

    async def _lead(self, fenced: Api) -> None:
        """Do the work of one term until cancelled."""
        async with MasterConnections() as masters, AsyncExitStack() as stack:
            accounts = None
            if self._settings.accounts is not None:
                accounts = JobAccounts(fenced, self._settings.accounts, may_write=self._lease.may_write)
                await stack.enter_async_context(accounts)
            settings = self._settings
            self._term = LeaderTerm(fenced, settings.term, self._metrics, masters, accounts=accounts)
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._term.run(), name="term")
                    namespaces = settings.term.namespaces
                    edits = listen_to_edits(self._term.wakeups, kubeconfig=settings.kubeconfig, namespaces=namespaces)
                    tasks.create_task(edits, name="kopf")
            finally:
                self._term = None
                self._metrics.forget_jobs()


_NO_INFO_LOGS: Final = ("kopf", "aiohttp.access")
"""Libraries whose INFO logs are suppressed."""


class JsonLines(logging.Formatter):
    """Formatter of log lines: one JSON object a line, with the traceback of an exception as `traceback`."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        line = {
            "time": to_micro_time(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": escape_controls(record.getMessage()),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_logs(level: str) -> None:
    """Log everything from this level up to standard error, as JSON lines."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)  # asyncio's handler would swallow signals
    for name in _NO_INFO_LOGS:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(level)))
