"""Table of nodes and pods of the local cluster, and the one place where they change.

Everything runs in one event loop, so a change is whole when the function that makes it returns.  A pod takes its room
from binding until it is dropped, which is when its processes are gone; `free_room` is that accounting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from autoscaler.clusters.local.pods.local_pod import LocalPod
from autoscaler.domain import Node, NodeName, PodName, Resources, Role


class PodTable:
    """Nodes and pods by name; `revision` rises with every change and wakes whoever waits for one."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes: dict[NodeName, Node] = {node.name: node for node in nodes}
        self.pods: dict[PodName, LocalPod] = {}
        self.revision = 0
        self._changed = asyncio.Event()

    def touch(self) -> None:
        """Something that a plan could depend on is different now."""
        self.revision += 1
        self._changed.set()

    def add(self, pod: LocalPod) -> None:
        assert pod.name not in self.pods, f"{pod.name} stands already"
        self.pods[pod.name] = pod
        self.touch()

    def update(self, name: PodName, **fields: Any) -> LocalPod:
        """Replace fields of a pod that stands."""
        self.pods[name] = replace(self.pods[name], **fields)
        self.touch()
        return self.pods[name]

    def drop(self, name: PodName) -> LocalPod:
        """The pod is gone, and its room is free."""
        pod = self.pods.pop(name)
        self.touch()
        return pod

    def set_node(self, node: Node) -> None:
        self.nodes[node.name] = node
        self.touch()

    def job_pods(self, job: str, *roles: Role) -> tuple[LocalPod, ...]:
        """The pods of a job, of these roles or of all."""
        return tuple(
            pod
            for pod in self.pods.values()
            if pod.is_job_pod and pod.owner == job and (not roles or pod.role in roles)
        )

    def web_pods(self, deployment: str) -> tuple[LocalPod, ...]:
        """The pods of a Deployment."""
        return tuple(pod for pod in self.pods.values() if not pod.is_job_pod and pod.owner == deployment)

    async def wait_for_change(self, timeout_s: float) -> bool:
        """True as soon as something has changed since the last call; False after `timeout_s` without."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True


def free_room(nodes: Mapping[NodeName, Node], pods: Iterable[LocalPod]) -> dict[NodeName, Resources]:
    """What is left on each node."""
    free = {name: node.allocatable for name, node in nodes.items()}
    for pod in pods:
        if pod.node is not None and pod.node in free:
            free[pod.node] -= pod.template.requests
    return free
