"""A control plane with the chart on it, for an operator that runs as a process beside it: its account, no pod of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from kubernetes import client

from autoscaler.etcd_server.build import CHECKOUT
from tests.cluster.accounts import open_client, write_account_kubeconfig
from tests.cluster.control_plane import ControlPlane, start_control_plane
from tests.cluster.kwok_nodes import Life, NodeShape, create_nodes
from tests.cluster.operator_process import OperatorProcess
from tests.cluster.toolbox import Tools
from tests.cluster.trainingjobs import make_job
from tests.harness.errors import HarnessError
from tests.harness.waiting import wait_for

CHART: Final = CHECKOUT / "charts" / "edl"
IMAGES: Final = ("--values", str(Path(__file__).with_name("images.yaml")))
"""Options of helm: the chart has no images by default."""
NAMESPACE: Final = "edl-system"
LEASE: Final = f"{NAMESPACE}/edl-operator"
ACCOUNT: Final = "edl"
DEPLOYMENT: Final = "edl-operator"
NO_ETCD: Final = "http://etcd.invalid:2379"
"""For masters that nobody runs: the operator knows of it, and has the rights that go with it."""
LAST_WORDS: Final = 6000  # characters of a log


@contextmanager
def start_charted(
    folder: Path,
    tools: Tools,
    *,
    namespaces: Sequence[str],
    values: Sequence[str] = (),
    more_flags: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[ControlPlane]:
    """Apply the chart's definition, roles and classes, and wait until the definition serves.

    `namespaces`: made for jobs; `values`: of the chart, NAME=VALUE; `more_flags` by the program's name.
    """
    with start_control_plane(folder, tools, more_flags=more_flags) as plane:
        for name in (NAMESPACE, *namespaces):
            plane.kubectl("create", "namespace", name)
        chosen = ",".join(("operator.replicas=1", f"etcd.external.endpoints={{{NO_ETCD}}}", *values))
        plane.helm("install", "edl", str(CHART), *IMAGES, "--namespace", NAMESPACE, "--set", chosen)
        plane.wait_served("trainingjobs.edl.dev")
        for name in namespaces:  # no pod is taken before its controller has made it
            wait_for(f"the ServiceAccount of {name}", lambda name=name: _has_account(plane, name))
        yield plane


def _has_account(plane: ControlPlane, namespace: str) -> bool:
    return bool(plane.kubectl("get", "serviceaccount", "default", "-n", namespace, "--ignore-not-found", "-o", "name"))


@contextmanager
def open_admin(plane: ControlPlane, *, cpu: str, nodes: int = 3) -> Iterator[client.ApiClient]:
    """The administrator's client, with so many nodes of so many cores: n0, n1..."""
    with open_client(plane.kubeconfig) as api:
        create_nodes(api, {f"n{number}": NodeShape(cpu=cpu, memory="32Gi") for number in range(nodes)})
        yield api


def take_place(api: client.ApiClient) -> tuple[str, ...]:
    """Deletes the chart's Deployment of the operator; what its command names of namespaces."""
    apps: Any = client.AppsV1Api(api)
    command = apps.read_namespaced_deployment(DEPLOYMENT, NAMESPACE).spec.template.spec.containers[0].command
    apps.delete_namespaced_deployment(DEPLOYMENT, NAMESPACE)
    return tuple(word for word in command if word.startswith("--namespaces"))


@contextmanager
def operate(folder: Path, plane: ControlPlane, api: client.ApiClient) -> Iterator[OperatorProcess]:
    """A process in the place of the chart's Deployment, with its account and the namespaces that it names."""
    more = take_place(api)
    kubeconfig = write_operator_kubeconfig(folder / "kubeconfig", plane, api)
    with OperatorProcess("one", folder, kubeconfig, lease=LEASE, more=more) as process:
        yield process
    sys.stdout.write(process.log.read_text(encoding="utf-8")[-LAST_WORDS:])


def has_right(plane: ControlPlane, *question: str) -> bool:
    """True if RBAC allows it to the operator's account (`kubectl auth can-i`); a change takes effect a moment later."""
    try:
        asked = plane.kubectl("auth", "can-i", *question, f"--as=system:serviceaccount:{NAMESPACE}:{ACCOUNT}")
    except HarnessError:  # kubectl's way to say no
        return False
    return asked.strip() == "yes"


def write_operator_kubeconfig(path: Path, plane: ControlPlane, api: client.ApiClient) -> Path:
    """With a token of the account that the chart gives the operator."""
    return write_account_kubeconfig(
        path, api, authority=plane.authority, namespace=NAMESPACE, account=ACCOUNT, lifetime_s=3600 * 4
    )


def job_of(
    name: str, *, minimum: int = 2, maximum: int = 4, cpu: str = "1", life: Life | None = None, **edits: Any
) -> dict[str, Any]:
    """With one server and one master, which live calmly; `life`: of its trainers."""
    pod = {
        "metadata": {"annotations": (life or Life(leave_after_s=0.2)).annotations()},
        "spec": {
            "terminationGracePeriodSeconds": 5,
            "containers": [
                {
                    "name": "main",
                    "image": "edl/trainer",
                    "resources": {"requests": {"cpu": cpu, "memory": "256Mi"}},
                }
            ],
        },
    }
    calm = {**pod, "metadata": {"annotations": Life(leave_after_s=0.2).annotations()}}
    return make_job(
        **{
            "metadata.name": name,
            "spec.trainer": {"minReplicas": minimum, "maxReplicas": maximum, "template": pod},
            "spec.parameterServer": {"minReplicas": 1, "template": calm},
            "spec.master": {"replicas": 1, "template": calm},
            **edits,
        }
    )
