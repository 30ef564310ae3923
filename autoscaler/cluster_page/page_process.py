"""The page of a cluster as a process of its own: watches, viewers' rights, one port for people and one for probes.

It leads nothing and has no right to write, so that as many of them may run as are wanted, and neither a viewer nor a
fault of the page reaches the operator (ADR 0285).  What a viewer changes goes under their own token (ADR 0272).
SIGTERM ends it; open streams end with it, and browsers connect again.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final

from autoscaler.cluster_page.cluster_access import ClusterAccess
from autoscaler.cluster_page.cluster_source import ClusterSource, ReadSnapshot
from autoscaler.cluster_page.pod_keeping import TokenKeeper
from autoscaler.cluster_page.prometheus_history import PrometheusHistory
from autoscaler.cluster_page.viewer_access import ViewerAccess
from autoscaler.clusters.kubernetes.api.clock_skew import ServerClock
from autoscaler.clusters.kubernetes.api.connection import ConnectionPolicy
from autoscaler.clusters.kubernetes.api.http_client import connect, connect_as
from autoscaler.clusters.kubernetes.parsing.object_trimming import TRIMMERS
from autoscaler.errors import InvalidSpecError
from autoscaler.page import page_server
from autoscaler.page.access.request_checks import LOOPBACK_HOSTS
from autoscaler.page.page_app import PageApp, PageSettings
from master.api.host.http_pages import PROMETHEUS_TEXT, CachedPage, Page, listen_at, serving

LONGEST_HEADER_BYTES: Final = 32 * 1024  # tokens of identity providers are long
CERTIFICATE_READ_EVERY_S: Final = 60.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageProcessSettings:
    """Settings of the process.  `listen`, `probes`: host and port; `hosts`: names under which viewers may ask.

    `namespaces` empty: all; `audiences` empty: tokens for the API server; `kubeconfig` None: the pod's ServiceAccount;
    without `certificate` and `key` the page is served over HTTP.  `policy`: namespace and name of the ConfigMap by
    which what-if questions are answered and jobs are explained; None: neither is done.  `prometheus`: address of one
    that keeps the operator's metrics, and `prometheus_labels` of this cluster there; None: the past is drawn from this
    process's samples.
    """

    listen: tuple[str, int]
    probes: tuple[str, int]
    title: str
    hosts: frozenset[str]
    namespaces: tuple[str, ...] = ()
    audiences: tuple[str, ...] = ()
    kubeconfig: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    policy: tuple[str, str] | None = None
    prometheus: str | None = None
    prometheus_labels: Mapping[str, str] = field(default_factory=dict)


async def run_page_process(settings: PageProcessSettings, read_snapshot: ReadSnapshot) -> None:
    """Serve until SIGTERM or SIGINT.  `read_snapshot`: for what-if questions.

    Raises:
        ClusterError: the cluster cannot be reached.
        InvalidSpecError: an address to listen at, a TLS file, or the address of Prometheus cannot be used.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        clock = ServerClock(time.time, steady_clock=time.monotonic)
        api = await connect(settings.kubeconfig, trimmers=TRIMMERS, report_skew=clock.set_ahead)
        stack.push_async_callback(api.close)
        viewers = await stack.enter_async_context(ViewerAccess(api, clock=time.monotonic, audiences=settings.audiences))
        source = ClusterSource(api, title=settings.title, read_snapshot=read_snapshot, namespaces=settings.namespaces)
        access = ClusterAccess(viewers, policy=settings.policy)
        history = None
        if settings.prometheus is not None:
            history = PrometheusHistory(settings.prometheus, settings.prometheus_labels, clock=time.monotonic)
            stack.push_async_callback(history.close)
        shown = PageSettings(
            hosts=settings.hosts | LOOPBACK_HOSTS, plans_unasked=False, explains_jobs=settings.policy is not None
        )
        page = PageApp(source, access, shown, history=history, keeper=_make_keeper(settings, viewers, clock))
        encryption = None if settings.certificate is None else _Encryption(settings)
        probes = _listen("--probes", settings.probes)
        await stack.enter_async_context(serving(probes, _probes(source, page)))
        listening = stack.enter_context(_listen("--listen", settings.listen))
        context = None if encryption is None else encryption.context
        await stack.enter_async_context(
            page_server.serving(page, listening, encryption=context, longest_header=LONGEST_HEADER_BYTES)
        )
        log.info("listens on port %d, probes on port %d", listening.getsockname()[1], probes.getsockname()[1])
        tasks = [asyncio.create_task(source.run(), name="source"), asyncio.create_task(stop.wait(), name="signal")]
        if encryption is not None:
            tasks.append(asyncio.create_task(encryption.run(), name="certificate"))
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await tasks[0]


def _listen(option: str, address: tuple[str, int]) -> socket.socket:
    host, port = address
    try:
        return listen_at(host, port)
    except OSError as error:
        problem = f"{host}:{port} cannot be used: {error.strerror or error}"
        raise InvalidSpecError(option, problem, "name another address") from None


def _make_keeper(settings: PageProcessSettings, viewers: ViewerAccess, clock: ServerClock) -> TokenKeeper | None:
    """None where viewers' tokens are for this page and not for the API server, which would not take them."""
    if settings.audiences:
        return None
    policy = ConnectionPolicy(attempts=1)
    return TokenKeeper(
        viewers, lambda token: connect_as(token, settings.kubeconfig, policy=policy), server_now_s=clock.now_s
    )


def _probes(source: ClusterSource, page: PageApp) -> Mapping[str, Callable[[], Page]]:
    def readyz() -> Page:
        if not source.has_jobs or source.documents() is None:
            told = source.problem or "not everything has been listed yet"
            return Page(body=f"{told}\n".encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)
        if not page.is_warm:
            return Page(body=b"views are being made\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
        return Page(body=b"ok\n")

    metrics = CachedPage(lambda: Page(body=page.metrics.render(), kind=PROMETHEUS_TEXT))
    return {"/healthz": lambda: Page(body=b"ok\n"), "/readyz": readyz, "/metrics": metrics}


class _Encryption:
    """TLS of the page, with the certificate read again when its file has changed."""

    def __init__(self, settings: PageProcessSettings) -> None:
        if settings.certificate is None or settings.key is None:
            raise InvalidSpecError("--tls-key", "is missing", "certificate and key go together")
        self._certificate, self._key = settings.certificate, settings.key
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._loaded = b""
        self._load()

    async def run(self) -> None:
        """Read the files again now and then, until cancelled."""
        while True:
            await asyncio.sleep(CERTIFICATE_READ_EVERY_S)
            try:
                self._load()
            except InvalidSpecError as error:
                log.warning("the certificate is not renewed: %s", error)

    def _load(self) -> None:
        try:
            written = self._certificate.read_bytes()
            if written != self._loaded:
                self.context.load_cert_chain(self._certificate, self._key)
                self._loaded = written
        except (OSError, ssl.SSLError) as error:
            raise InvalidSpecError("--tls-cert", f"{self._certificate} cannot be used: {error}") from None
