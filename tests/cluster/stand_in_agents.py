"""Reports on GPUs of stand-in nodes, which have no driver: a pod's GPUs work unless its annotation says otherwise.

    kubectl annotate pod NAME edl.dev/stand-in-gpus=idle

The objects are those of `edl agent`, written when it would write them: after a minute's rest, at once after work, when
the operator asks, and each ten minutes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from kubernetes import client

from autoscaler.domain.cluster import NodeName, PodName
from autoscaler.domain.gpu_reports import GpuReport, GpuVerdict, NodeGpuReport
from autoscaler.gpus.report_documents import make_object, make_status, renewal_asked_at_s

IDLE: Final = "edl.dev/stand-in-gpus"
LOOK_EVERY_S: Final = 5.0
WINDOW_S: Final = 60.0
RENEW_S: Final = 600.0
MODEL: Final = "NVIDIA A100-SXM4-80GB"
_GPU: Final = "nvidia.com/gpu"
_PATH: Final = ("edl.dev", "v1alpha1", "nodegpus")


class StandInAgents:
    """One for all nodes; `look` is called often and does something every five seconds."""

    def __init__(self, api: client.ApiClient, gpus: Mapping[str, int]) -> None:
        self._core: Any = client.CoreV1Api(api)
        self._objects: Any = client.CustomObjectsApi(api)
        self._gpus = dict(gpus)
        self._looked_s = 0.0
        self._idle_since_s: dict[str, float] = {}  # by pod
        self._places: dict[str, dict[str, tuple[int, ...]]] = {node: {} for node in gpus}  # numbers by pod
        self._written: dict[str, NodeGpuReport] = {}

    def look(self, now_s: float) -> None:
        """Write what has changed; `now_s` is of the monotonic clock."""
        if now_s - self._looked_s < LOOK_EVERY_S:
            return
        self._looked_s = now_s
        pods = [pod for pod in self._core.list_pod_for_all_namespaces().items if _gpus_of(pod) and pod.spec.node_name]
        asked = {
            one["metadata"]["name"]: renewal_asked_at_s(one)
            for one in self._objects.list_cluster_custom_object(*_PATH)["items"]
        }
        for node in self._gpus:
            if node not in asked:
                uid = self._core.read_node(node).metadata.uid
                self._objects.create_cluster_custom_object(*_PATH, make_object(NodeName(node), uid))
                self._written.pop(node, None)
            self._report(node, [pod for pod in pods if pod.spec.node_name == node], asked.get(node), time.time())

    def _report(self, node: str, pods: list[Any], asked_at_s: float | None, now_s: float) -> None:
        report = NodeGpuReport(node=NodeName(node), gpus=self._reports(node, pods, now_s), reported_at_s=now_s)
        old = self._written.get(node)
        is_new = old is None or not old.has_same_verdicts(report) or now_s - old.reported_at_s > RENEW_S
        if is_new or (old is not None and asked_at_s is not None and asked_at_s > old.reported_at_s):
            body = {"status": make_status(report)}
            self._objects.patch_cluster_custom_object_status(*_PATH, node, body)
            self._written[node] = report

    def _reports(self, node: str, pods: list[Any], now_s: float) -> tuple[GpuReport, ...]:
        by_name = {f"{pod.metadata.namespace}/{pod.metadata.name}": pod for pod in pods}
        places = {name: numbers for name, numbers in self._places[node].items() if name in by_name}
        for name, pod in by_name.items():
            used = {number for numbers in places.values() for number in numbers}
            free = [number for number in range(self._gpus[node]) if number not in used]
            places.setdefault(name, tuple(free[: _gpus_of(pod)]))
        self._places[node] = places
        holders = {number: name for name, numbers in places.items() for number in numbers}
        return tuple(self._one(node, n, by_name.get(holders.get(n, "")), now_s) for n in range(self._gpus[node]))

    def _one(self, node: str, number: int, pod: Any, now_s: float) -> GpuReport:
        gpu = {"uuid": f"GPU-{node}-{number}", "model": MODEL, "name": f"nvidia{number}"}
        if pod is None:
            since_s = self._idle_since_s.setdefault(f"{node} {number}", now_s)
            reason = "no pod and no process has it"
            return GpuReport(**gpu, verdict=GpuVerdict.FREE, low_since_s=since_s, reason=reason, busy_ratio=0.0)
        self._idle_since_s.pop(f"{node} {number}", None)
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        if (pod.metadata.annotations or {}).get(IDLE) != "idle":
            self._idle_since_s.pop(name, None)
            reason = "stands in for a GPU that computes"
            return GpuReport(**gpu, verdict=GpuVerdict.ACTIVE, pods=(PodName(name),), reason=reason, busy_ratio=1.0)
        since_s = self._idle_since_s.setdefault(name, now_s)
        if now_s - since_s < WINDOW_S:
            return GpuReport(**gpu, verdict=GpuVerdict.ACTIVE, pods=(PodName(name),), reason="low, not for long yet")
        reason = f"nobody computed for {now_s - since_s:.0f} s"
        held = {"verdict": GpuVerdict.HELD, "low_since_s": since_s, "pods": (PodName(name),), "busy_ratio": 0.0}
        return GpuReport(**gpu, **held, reason=reason)


def _gpus_of(pod: Any) -> int:
    if pod.status.phase in {"Succeeded", "Failed"}:
        return 0
    limits = ((one.resources and one.resources.limits) or {} for one in pod.spec.containers)
    return sum(int(one.get(_GPU, 0)) for one in limits)
