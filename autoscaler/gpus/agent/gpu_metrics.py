"""Prometheus metrics of the last sample: one series a device, and one for each pod that has it.

Device figures carry no pod: on a shared device they are those of all who share it.  Join them by `uuid`.  Series are
as many as the node has devices and claims, and go with them.  A figure that is missing has no series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from autoscaler.domain.gpu_reports import GpuVerdict
from autoscaler.gpus.agent.node_agent import NodeSample
from autoscaler.gpus.owners import OwnersUnknown
from autoscaler.gpus.readings import Absence, DeviceReading
from autoscaler.gpus.verdicts import DeviceVerdict, contradicting_pods

_DEVICE: Final = ("uuid", "gpu", "model")
_POD: Final = ("uuid", "namespace", "pod")

_FIGURES: Final[tuple[tuple[str, str, Callable[[DeviceVerdict], float | None]], ...]] = (
    (
        "edl_gpu_utilization_ratio",
        "Share of the last second in which a kernel ran, as the driver's counter says.",
        lambda one: _ratio(one.reading.utilisation_percent),
    ),
    (
        "edl_gpu_gpm_utilization_ratio",
        "Largest GPM utilization since the sample before.",
        lambda one: _ratio(one.reading.gpm_percent),
    ),
    ("edl_gpu_power_watts", "Mean power of the whole GPU since the sample before.", lambda one: one.watts),
    (
        "edl_gpu_memory_used_bytes",
        "Memory that processes hold.",
        lambda one: _figure(one.reading.memory_used_bytes),
    ),
    (
        "edl_gpu_processes",
        "Processes with a context.",
        lambda one: None if isinstance(one.reading.processes, Absence) else float(len(one.reading.processes)),
    ),
    ("edl_gpu_low_seconds", "How long every sample has said that nobody computes.", lambda one: one.low_s),
)


class GpuCollector(Collector):
    """Draws the sample that `newest` returns."""

    def __init__(self, newest: Callable[[], tuple[NodeSample, float] | None]) -> None:
        """`newest`: the last sample and its Unix time; None before the first."""
        self._newest = newest

    def collect(self) -> Iterator[Metric]:
        newest = self._newest()
        if newest is None:
            return
        sample, at_s = newest
        yield GaugeMetricFamily("edl_agent_sample_timestamp_seconds", "Unix time of the last sample.", at_s)
        yield GaugeMetricFamily("edl_agent_driver_up", "1 if the driver answered.", float(sample.failure is None))
        if sample.failure is None:
            is_known = not isinstance(sample.owners, OwnersUnknown)
            yield GaugeMetricFamily("edl_agent_owners_known", "1 if it is known who has the GPUs.", float(is_known))
            yield _disputed(sample)
        yield from _of_devices(sample)
        yield _of_pods(sample)


def _disputed(sample: NodeSample) -> Metric:
    claims = {} if isinstance(sample.owners, OwnersUnknown) else sample.owners.claims
    count = sum(bool(contradicting_pods(claims.get(one.reading.uuid, ()))) for one in sample.devices)
    text = "GPUs that several pods claim which were not given out in shares; they are active."
    return GaugeMetricFamily("edl_agent_disputed_gpus", text, float(count))


def _of_devices(sample: NodeSample) -> Iterator[Metric]:
    for name, text, figure in _FIGURES:
        gauge = GaugeMetricFamily(name, text, labels=_DEVICE)
        for one in sample.devices:
            if (value := figure(one)) is not None:
                gauge.add_metric(_labels(one.reading), value)
        yield gauge
    energy = CounterMetricFamily("edl_gpu_energy_joules", "Energy of the whole GPU.", labels=_DEVICE)
    for one in sample.devices:
        if not isinstance(one.reading.energy_mj, Absence):
            energy.add_metric(_labels(one.reading), one.reading.energy_mj / 1000)
    yield energy
    verdict = GaugeMetricFamily("edl_gpu_verdict", "1 for the verdict on the device.", labels=(*_DEVICE, "verdict"))
    for one in sample.devices:
        for word in GpuVerdict:
            verdict.add_metric([*_labels(one.reading), word.value], float(word is one.verdict))
    yield verdict


def _of_pods(sample: NodeSample) -> Metric:
    metric = GaugeMetricFamily(
        "edl_gpu_pod_verdict", "1 for the verdict on a pod's use of the device.", labels=(*_POD, "verdict")
    )
    for one in sample.pods:
        for word in GpuVerdict:
            labels = [one.device.reading.uuid, one.pod.namespace, one.pod.name, word.value]
            metric.add_metric(labels, float(word is one.verdict))
    return metric


def _labels(reading: DeviceReading) -> list[str]:
    return [reading.uuid, device_name(reading), reading.model]


def device_name(reading: DeviceReading) -> str:
    """nvidia0, or nvidia0/gi1 for an instance; empty where the driver does not tell."""
    if reading.minor is None:
        return ""
    instance = "" if reading.gpu_instance is None else f"/gi{reading.gpu_instance}"
    return f"nvidia{reading.minor}{instance}"


def _ratio(percent: float | Absence) -> float | None:
    return None if isinstance(percent, Absence) else percent / 100


def _figure(value: float | Absence) -> float | None:
    return None if isinstance(value, Absence) else float(value)
