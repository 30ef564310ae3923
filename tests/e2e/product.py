"""EDL as `helm install` brings it: two operators, an etcd of three members with TLS and passwords, on the real nodes.

Amounts are such that the room for work is the same wherever the chart's pods stand: a node of NODE_CORES has
SLOTS_PER_NODE slots of SLOT, and what is left is enough for ten small pods and too little for one slot more.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.cluster.chart_control_plane import CHART, IMAGES
from tests.e2e.real_cluster import RealCluster, apply
from tests.e2e.storage import make_volume
from tests.harness.errors import HarnessError
from tests.harness.waiting import wait_for

NAMESPACE: Final = "edl-system"
RELEASE: Final = "edl"
MEMBERS: Final = 3
PARTS: Final = ("operator", "agent", "etcd", "etcd-auth")
SLOT: Final = "300m"
SMALL: Final = "20m"
SLOTS_PER_NODE: Final = 6
START_BUDGET_S: Final = 600.0
VALUES: Final[Mapping[str, object]] = {
    "image": {"pullPolicy": "Never"},
    "operator": {"resources": {"requests": {"cpu": SMALL, "memory": "128Mi"}, "limits": {"memory": "1Gi"}}},
    "etcd": {
        "enabled": True,
        "image": {"pullPolicy": "Never"},
        "resources": {"requests": {"cpu": SMALL, "memory": "64Mi"}, "limits": {"memory": "1Gi"}},
    },
    "policy": {"preemptedPauseSeconds": 3, "downWindowSeconds": 5},  # half a minute each by default, spent waiting
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """An installed release."""

    cluster: RealCluster

    def install(self) -> str:
        """Install the chart, wait until an operator leads and etcd requires passwords; return the notes."""
        values = self.cluster.control_plane.folder / "values.json"
        values.write_text(json.dumps(VALUES))
        more = ("--create-namespace", *IMAGES, "--values", str(values))
        try:
            notes = self.cluster.control_plane.helm("install", RELEASE, str(CHART), *more, *_IN_NAMESPACE)
            self._wait_ready()
        except HarnessError as error:
            error.add_note(self.account())
            raise
        return notes

    def upgrade(self, setting: str) -> None:
        """`helm upgrade` with one more setting; afterwards an operator that heeds it leads."""
        more = ("--reset-then-reuse-values", "--set", setting)
        self.cluster.control_plane.helm("upgrade", RELEASE, str(CHART), *more, *_IN_NAMESPACE)
        self._wait_ready()

    def uninstall(self) -> None:
        """Stop the operators and wait for their end."""
        self.cluster.control_plane.helm("uninstall", RELEASE, "--wait", *_IN_NAMESPACE, budget_s=START_BUDGET_S)

    def test(self) -> str:
        """Output of `helm test`.  Raises HarnessError when it fails."""
        return self.cluster.control_plane.helm("test", RELEASE, *_IN_NAMESPACE, budget_s=START_BUDGET_S)

    def account(self) -> str:
        """State of the product, for the report of a failed test."""
        questions = [("get", "pods", "-o", "wide"), ("get", "events", "--sort-by=.lastTimestamp")]
        logs = [("logs", "--tail=30", "--prefix", "-l", f"app.kubernetes.io/component={part}") for part in PARTS]
        jobs = ("get", "tj", "--all-namespaces", "-o", "yaml")
        return "\n".join(self._tell(*words) for words in (*questions, *logs, jobs))

    def leader(self) -> str:
        """The pod that leads, or nothing."""
        words = ("get", "lease", "edl-operator", "--ignore-not-found", "-o", "jsonpath={.spec.holderIdentity}")
        return self.cluster.control_plane.kubectl(*words, *_IN_NAMESPACE)

    def restarts(self, pod: str) -> int:
        """Restarts of its container by the kubelet."""
        words = ("get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].restartCount}")
        return int(self.cluster.control_plane.kubectl(*words, *_IN_NAMESPACE) or 0)

    def count_etcd_members(self, node: str) -> int:
        """Members of etcd on this node."""
        where = ("-l", "app.kubernetes.io/component=etcd", "--field-selector", f"spec.nodeName={node}")
        return len(self.cluster.control_plane.kubectl("get", "pods", "-o", "name", *where, *_IN_NAMESPACE).split())

    def ask_etcd(self, *words: str, user: str = "") -> str:
        """Output of etcdctl in the first member's own container, anonymous or as this user.  Raises HarnessError."""
        told = {"ETCDCTL_CACERT": "/run/edl/etcd/ca.crt", "ETCDCTL_ENDPOINTS": "https://localhost:2379"}
        if user:
            where = "jsonpath={.data." + user + "-password}"
            kept = self.cluster.control_plane.kubectl("get", "secret", "edl-etcd", "-o", where, *_IN_NAMESPACE)
            told |= {"ETCDCTL_USER": user, "ETCDCTL_PASSWORD": base64.b64decode(kept).decode()}
        command = ("env", *[f"{name}={value}" for name, value in told.items()], "etcdctl", *words)
        return self.cluster.control_plane.kubectl("exec", "edl-etcd-0", *_IN_NAMESPACE, "--", *command)

    def _wait_ready(self) -> None:
        wait = f"--timeout={START_BUDGET_S:.0f}s"
        plane = self.cluster.control_plane
        plane.kubectl("rollout", "status", "statefulset/edl-etcd", wait, *_IN_NAMESPACE, budget_s=2 * START_BUDGET_S)
        plane.wait_condition("Complete", "job", *_IN_NAMESPACE, budget_s=START_BUDGET_S)  # turns passwords on
        plane.kubectl("rollout", "status", "deployment/edl-operator", wait, *_IN_NAMESPACE, budget_s=2 * START_BUDGET_S)
        wait_for("an operator leads", self.leader)

    def _tell(self, *words: str) -> str:
        try:
            return self.cluster.control_plane.kubectl(*words, *_IN_NAMESPACE)
        except HarnessError as error:
            return str(error)


_IN_NAMESPACE: Final = ("--namespace", NAMESPACE)


def make_product(cluster: RealCluster) -> Product:
    """With volumes for etcd's members; nothing is installed yet."""
    volumes = [
        make_volume(cluster.shared, NAMESPACE, f"data-edl-etcd-{number}", mode="ReadWriteOnce")
        for number in range(MEMBERS)
    ]
    apply(cluster.control_plane, [volume.manifest() for volume in volumes])
    return Product(cluster=cluster)
