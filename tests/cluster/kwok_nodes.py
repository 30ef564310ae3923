"""Nodes of any shape that run nothing, and pods on them that start, end and leave by their annotations.

KWOK plays both; `stages.yaml` holds what it does.  To the API server, the scheduler and the controllers they are like
any others.  What they cannot do: logs, exec, network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from kubernetes import client
from kubernetes.client.exceptions import NotFoundException

from tests.cluster.command_lines import STAND_IN, STAND_IN_ANNOTATION
from tests.harness.waiting import wait_for

DOMAIN: Final = "stand-in.edl.dev"
GPU: Final = "nvidia.com/gpu"
IMAGE: Final = "stand-in.edl.dev/nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """Capacity of a node, in Kubernetes' quantities."""

    cpu: str = "16"
    memory: str = "64Gi"
    pods: int = 110
    gpus: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)

    def node(self, name: str) -> dict[str, Any]:
        offer = {"cpu": self.cpu, "memory": self.memory, "pods": str(self.pods)}
        if self.gpus:
            offer[GPU] = str(self.gpus)
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            **self.labels,
        }
        return {
            "metadata": {"name": name, "labels": labels, "annotations": {STAND_IN_ANNOTATION: STAND_IN}},
            "status": {"capacity": offer, "allocatable": offer},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """Life of a pod; None: never, or for `start` and `ready`: at once.  `start_before_s`: by chance, from
    `start_after_s` up to that.

    Ready `start_after_s` + `ready_after_s` after it was bound; from then on done or failed.  Told to leave, it ends
    after `leave_after_s`, or is killed at the end of its grace: always so with None, which heeds no SIGTERM.
    """

    start_after_s: float | None = None
    start_before_s: float | None = None
    ready_after_s: float | None = None
    done_after_s: float | None = None
    fail_after_s: float | None = None
    leave_after_s: float | None = None
    exit_code: int | None = None  # 1 where it fails, 0 where it leaves

    def annotations(self) -> dict[str, str]:
        """Of the pod."""
        times = {
            "start-after": self.start_after_s,
            "start-before": self.start_before_s,
            "ready-after": self.ready_after_s,
            "done-after": self.done_after_s,
            "fail-after": self.fail_after_s,
            "leave-after": self.leave_after_s,
        }
        written = {f"{DOMAIN}/{name}": f"{time_s:g}s" for name, time_s in times.items() if time_s is not None}
        if self.exit_code is not None:
            written[f"{DOMAIN}/exit-code"] = str(self.exit_code)
        return written


def make_pod(
    name: str, life: Life | None = None, *, requests: Mapping[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    """A pod of one container that runs on stand-in nodes; `spec` in Kubernetes' own words."""
    resources = {"requests": dict(requests or {}), "limits": dict(requests or {})}
    containers = [{"name": "main", "image": IMAGE, "resources": resources}]
    metadata = {"name": name, "annotations": (life or Life()).annotations()}
    return {"metadata": metadata, "spec": {"restartPolicy": "Never", "containers": containers, **spec}}


def create_nodes(api: client.ApiClient, shapes: Mapping[str, NodeShape]) -> None:
    """Create the nodes and wait until all are Ready and accept pods.  By name; raises WaitTimeoutError."""
    core: Any = client.CoreV1Api(api)
    for name, shape in shapes.items():
        core.create_node(shape.node(name))

    def unready() -> list[str]:
        taking = {node.metadata.name for node in core.list_node().items if _takes_pods(node)}
        return sorted(set(shapes) - taking)

    wait_for(f"{len(shapes)} nodes Ready", lambda: not unready())


def delete_nodes(api: client.ApiClient, names: Iterable[str]) -> None:
    """Delete the nodes, and every pod that was on them."""
    core: Any = client.CoreV1Api(api)
    doomed = set(names)
    for name in doomed:
        core.delete_node(name)

    def left() -> bool:
        nodes = {node.metadata.name for node in core.list_node().items}
        pods = [pod for pod in core.list_pod_for_all_namespaces().items if pod.spec.node_name in doomed]
        for pod in pods:
            with suppress(NotFoundException):  # gone meanwhile
                core.delete_namespaced_pod(pod.metadata.name, pod.metadata.namespace, grace_period_seconds=0)
        return bool(nodes & doomed or pods)

    wait_for("nodes gone", lambda: not left())


def _takes_pods(node: Any) -> bool:
    conditions = node.status.conditions or []
    return not node.spec.taints and any(one.type == "Ready" and one.status == "True" for one in conditions)
