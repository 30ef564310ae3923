"""Two nodes that are full but for what a test leaves free, and a tide on one of them.

    scene = Tides(pods, core)
    scene.leave("left", 640)
    scene.leave("right", 490, tide=450)
    ...
    scene.fall()

What stands on a node before is counted as it is, so that it does not matter where the chart's own pods went.
"""

from __future__ import annotations

from typing import Any, Final

from kubernetes.utils.quantity import parse_quantity

from tests.e2e.pods import Pods, make_pod
from tests.harness.waiting import wait_for

TIDE: Final = "tide"


class Tides:
    """In the namespace of `pods`; `core` is the administrator's client."""

    def __init__(self, pods: Pods, core: Any) -> None:
        self._pods = pods
        self._core = core

    def leave(self, node: str, free_milli: int, *, tide: int = 0) -> None:
        """Afterwards so many thousandths of a core are free there, but for what the tide has of them."""
        self._run(f"filler-{node}", node, self.free_milli(node) - free_milli)
        if tide:
            self._run(TIDE, node, tide)

    def fall(self) -> None:
        """Afterwards the tide has gone."""
        self._pods.delete(TIDE, grace_s=0)
        wait_for("the tide falls", lambda: not self._pods.exists(TIDE))

    def free_milli(self, node: str) -> int:
        """Thousandths of a core that no pod there asks for."""
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
