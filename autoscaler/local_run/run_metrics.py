"""What Prometheus reads of a run, where `edl run --metrics HOST:PORT` asks for it.

    /metrics   what the operator and the agents of a cluster export
    /targets   the pages of the run's masters, as Prometheus' HTTP service discovery reads them

Without the option a run opens no port that other users of this machine could connect to (ADR 0170).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from prometheus_client import generate_latest

from autoscaler.clusters.kubernetes.objects.fields import Raw, text
from autoscaler.clusters.kubernetes.objects.labels import JOB, ROLE
from autoscaler.clusters.local.control_plane.pod_annotations import PORT
from autoscaler.clusters.local.machine.ports import HOST
from autoscaler.domain import Role
from autoscaler.errors import PermanentError
from autoscaler.gpus.agent.gpu_metrics import GpuCollector
from autoscaler.local_run.run_settings import MetricsAddress
from autoscaler.local_run.run_term import RunTerm
from master.api.host.http_pages import PROMETHEUS_TEXT, CachedPage, Page, listen_at, serving

MASTER_LABELS: Final = {"namespace": ("namespace",), "pod": ("name",), "edl_dev_job": ("labels", JOB)}
"""Labels of a master's series, as the chart's PodMonitor gives them, and where its pod has them."""


class MetricsPortError(PermanentError):
    """The port for metrics cannot be listened at; the message says why, and what to do."""


@asynccontextmanager
async def serving_metrics(
    address: MetricsAddress, term: RunTerm, pods: Callable[[], Iterable[Raw]]
) -> AsyncIterator[str]:
    """Serve the pages inside the context, which yields their address.  Raises MetricsPortError."""
    try:
        listening = listen_at(address.host, address.port)
    except OSError as error:
        raise MetricsPortError(f"--metrics {address}: {error.strerror or error}; name another port") from error
    if term.gpus is not None:
        term.metrics.registry.register(GpuCollector(term.gpus.newest))
    port = listening.getsockname()[1]
    pages: Mapping[str, Callable[[], Page]] = {
        "/metrics": CachedPage(lambda: Page(body=_render(term), kind=PROMETHEUS_TEXT)),
        "/targets": CachedPage(lambda: Page(body=json.dumps(targets_of(pods())).encode(), kind="application/json")),
    }
    async with serving(listening, pages):
        yield f"http://{MetricsAddress(host=address.host, port=port)}/metrics"


def _render(term: RunTerm) -> bytes:
    term.term.export_metrics()
    return generate_latest(term.metrics.registry)


def targets_of(pods: Iterable[Raw]) -> list[dict[str, object]]:
    """Return a target for each master that was given a port, with the labels of its pod."""
    return [
        {
            "targets": [f"{HOST}:{port}"],
            "labels": {label: text(pod, "metadata", *path) for label, path in MASTER_LABELS.items()},
        }
        for pod in pods
        if text(pod, "metadata", "labels", ROLE) == Role.MASTER.value
        and (port := text(pod, "metadata", "annotations", PORT))
    ]
