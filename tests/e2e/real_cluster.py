"""Complete cluster: the control plane of `tests/cluster`, real nodes with all images, DNS.

with start_cluster(folder, tools, surroundings, nodes=("left", "right")) as cluster:
    cluster.control_plane.kubectl("get", "nodes")
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from autoscaler.clusters.kubernetes.objects.fields import condition_of, integer
from tests.cluster.control_plane import ControlPlane, start_control_plane
from tests.cluster.toolbox import Tools
from tests.e2e import cgroups, dns, node_files
from tests.e2e.addresses import CONTROL_PLANE
from tests.e2e.network import make_bridge
from tests.e2e.node_files import NodePlace
from tests.e2e.nodes import Node, start_node
from tests.e2e.surroundings import Surroundings
from tests.harness.errors import HarnessError
from tests.harness.waiting import wait_for

PROXY_BINDING: Final = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "kube-proxy"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-proxier"},
    "subjects": [{"kind": "User", "name": "system:kube-proxy", "apiGroup": "rbac.authorization.k8s.io"}],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RealCluster:
    """One that runs.  Every node has the folder `shared` at `node_files.SHARED`."""

    control_plane: ControlPlane
    shared: Path
    nodes: dict[str, Node] = field(default_factory=dict)

    def kill(self, namespace: str, pod: str) -> None:
        """As the kernel does when memory runs out: SIGKILL for the first process of the pod's first container."""
        found = json.loads(self.control_plane.kubectl("get", "pod", pod, "--namespace", namespace, "-o", "json"))
        running = found["status"]["containerStatuses"][0]["containerID"]
        self.nodes[found["spec"]["nodeName"]].kill(running.removeprefix("containerd://"))

    def log_tail(self) -> str:
        """The end of every log."""
        return "\n\n".join([self.control_plane.log_tail(), *[node.log_tail() for node in self.nodes.values()]])


@contextmanager
def start_cluster(
    folder: Path, tools: Tools, surroundings: Surroundings, *, nodes: Sequence[str]
) -> Iterator[RealCluster]:
    """Start the nodes, wait until all are Ready and names resolve.  In the main thread, once in a run (one network).

    Raises StartError or WaitTimeoutError.
    """
    make_bridge()
    shared = folder / "shared"
    shared.mkdir(parents=True)
    shared.chmod(0o777)  # containers write there as whoever they are
    with contextlib.ExitStack() as stack:
        control_plane = stack.enter_context(start_control_plane(folder, tools, address=CONTROL_PLANE))
        cluster = RealCluster(control_plane=control_plane, shared=shared)
        stack.enter_context(_explaining(cluster))
        for number, name in enumerate(nodes, start=1):
            group = cgroups.make_groups(surroundings.run, name)
            place = NodePlace(name=name, number=number, folder=folder / f"node-{name}", cgroup=group)
            plan = node_files.write(place, control_plane, system=surroundings.images.system, shared=shared)
            cluster.nodes[name] = stack.enter_context(start_node(place, plan))
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: node.import_images([surroundings.images.archive]), cluster.nodes.values()))
        apply(control_plane, [PROXY_BINDING, *dns.manifests()])
        wait_for("all nodes Ready", lambda: _ready_nodes(control_plane) >= set(nodes))
        wait_for("DNS", lambda: _is_dns_ready(control_plane))
        yield cluster


@contextmanager
def _explaining(cluster: RealCluster) -> Iterator[None]:
    """What goes wrong at the start is shown with the logs."""
    try:
        yield
    except HarnessError as error:
        error.add_note(cluster.log_tail())
        raise


def apply(control_plane: ControlPlane, manifests: Sequence[Mapping[str, Any]]) -> None:
    control_plane.kubectl(
        "apply",
        "--server-side",
        "-f",
        "-",
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)}),
    )


def _ready_nodes(control_plane: ControlPlane) -> set[str]:
    nodes = json.loads(control_plane.kubectl("get", "nodes", "-o", "json"))["items"]
    return {node["metadata"]["name"] for node in nodes if condition_of(node, "Ready").get("status") == "True"}


def _is_dns_ready(control_plane: ControlPlane) -> bool:
    text = control_plane.kubectl("get", "deployment", dns.NAME, "--namespace", dns.NAMESPACE, "-o", "json")
    return integer(json.loads(text), "status", "readyReplicas") == dns.REPLICAS
