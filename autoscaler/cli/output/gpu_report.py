"""Verdicts on the GPUs of a node, as lines and as plain content.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autoscaler.cli.output.object_tables import align_columns
from autoscaler.gpus.agent.gpu_metrics import device_name
from autoscaler.gpus.agent.node_agent import NodeSample
from autoscaler.gpus.owners import OwnersUnknown
from autoscaler.gpus.pod_verdicts import PodVerdict
from autoscaler.gpus.verdicts import DeviceVerdict
from autoscaler.views.phrases import format_age


def gpu_lines(sample: NodeSample) -> list[str]:
    """A table with one line for each device and pod, below what could not be asked.

    Of a driver that failed nobody knows whether there are GPUs.
    """
    problems = []
    if sample.failure is not None:
        problems.append(sample.failure.message)
    elif isinstance(sample.owners, OwnersUnknown):
        problems.append(f"pods are not known: {sample.owners.reason}")
    if not sample.devices:
        return problems if sample.failure is not None else [*problems, "no GPUs"]
    rows = [["GPU", "MODEL", "VERDICT", "LOW-FOR", "WATTS", "POD", "WHY"]]
    for device in sample.devices:
        rows += _rows(device, _pods_of(device, sample))
    return [*problems, *align_columns(rows)]


def _rows(device: DeviceVerdict, pods: Sequence[PodVerdict]) -> list[list[str]]:
    watts = "-" if device.watts is None else f"{device.watts:.0f}"
    low = format_age(device.low_s) if device.low_s else "-"
    figures = [device_name(device.reading) or device.reading.uuid, device.reading.model or "-"]
    if not pods:
        return [[*figures, device.verdict.value, low, watts, "-", device.reason]]
    return [[*figures, one.verdict.value, low, watts, str(one.pod), one.reason] for one in pods]


def gpu_content(sample: NodeSample) -> dict[str, Any]:
    """The same as plain values, with the evidence of each verdict."""
    owners = sample.owners
    return {
        "driver": "ok" if sample.failure is None else sample.failure.message,
        "owners": owners.reason if isinstance(owners, OwnersUnknown) else "ok",
        "unresolved": [] if isinstance(owners, OwnersUnknown) else list(owners.unresolved),
        "devices": [_device_content(device, _pods_of(device, sample)) for device in sample.devices],
    }


def _device_content(device: DeviceVerdict, pods: Sequence[PodVerdict]) -> dict[str, Any]:
    reading = device.reading
    return {
        "uuid": reading.uuid,
        "name": device_name(reading),
        "model": reading.model,
        "parent": reading.parent_uuid,
        "verdict": device.verdict.value,
        "reason": device.reason,
        "lowSeconds": round(device.low_s, 3),
        "watts": None if device.watts is None else round(device.watts, 1),
        "evidence": [
            {"source": one.source.value, "state": one.state.value, "text": one.text} for one in device.evidence
        ],
        "pods": [
            {
                "namespace": one.pod.namespace,
                "name": one.pod.name,
                "verdict": one.verdict.value,
                "reason": one.reason,
            }
            for one in pods
        ],
    }


def _pods_of(device: DeviceVerdict, sample: NodeSample) -> list[PodVerdict]:
    return [one for one in sample.pods if one.device.reading.uuid == device.reading.uuid]
