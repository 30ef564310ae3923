"""Two nodes that are full but for what a test leaves free, and web load on one of them.

    scene = NodeFillers(pods, core)
    scene.leave("left", 640)
    scene.leave("right", 490, load=450)
    ...
    scene.remove_load()

Pods that are there already count, so that it does not matter where the chart's own pods went.
"""

from __future__ import annotations

from typing import Any, Final

from kubernetes.utils.quantity import parse_quantity

from tests.e2e.pods import Pods, make_pod
from tests.harness.waiting import wait_for

LOAD: Final = "web-load"


class NodeFillers:
    """In the namespace of `pods`; `core` is the administrator's client."""

    def __init__(self, pods: Pods, core: Any) -> None:
        self._pods = pods
        self._core = core

    def leave(self, node: str, free_milli: int, *, load: int = 0) -> None:
        """Fill the node until `free_milli` thousandths of a core are free, but for what the web load takes of them."""
        self._run(f"filler-{node}", node, self.free_milli(node) - free_milli)
        if load:
            self._run(LOAD, node, load)

    def remove_load(self) -> None:
        """Delete the web load and wait until it is gone."""
        self._pods.delete(LOAD, grace_s=0)
        wait_for("the web load is gone", lambda: not self._pods.exists(LOAD))

    def free_milli(self, node: str) -> int:
        """Thousandths of a core that no pod there requests."""
        offered = self._core.read_node(node).status.allocatable["cpu"]
        there = self._core.list_pod_for_all_namespaces(field_selector=f"spec.nodeName={node}").items
        asked = [_asked_milli(pod) for pod in there if pod.status.phase not in {"Succeeded", "Failed"}]
        return _milli(offered) - sum(asked)

    def _run(self, name: str, node: str, cpu_milli: int) -> None:
        container = {"resources": {"requests": {"cpu": f"{cpu_milli}m", "memory": "16Mi"}}}
        where = {"kubernetes.io/hostname": node}
        self._pods.run(
            make_pod(name, "nginx", container=container, nodeSelector=where, terminationGracePeriodSeconds=0)
        )


def _asked_milli(pod: Any) -> int:
    requests = [container.resources.requests or {} for container in pod.spec.containers if container.resources]
    return sum(_milli(request["cpu"]) for request in requests if "cpu" in request)


def _milli(quantity: str) -> int:
    return int(parse_quantity(quantity) * 1000)
