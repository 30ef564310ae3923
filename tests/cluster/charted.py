"""A control plane with the chart on it, for an operator that runs as a process beside it: its account, no pod of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kubernetes import client

from master.etcd_server.build import CHECKOUT
from tests.cluster.accounts import write_account_kubeconfig
from tests.cluster.control_plane import ControlPlane, start_control_plane
from tests.cluster.toolbox import Tools

CHART: Final = CHECKOUT / "charts" / "edl"
NAMESPACE: Final = "edl-system"
LEASE: Final = f"{NAMESPACE}/edl-operator"
ACCOUNT: Final = "edl"


@contextmanager
def start_charted(
    folder: Path, tools: Tools, *, namespaces: Sequence[str], more_flags: Mapping[str, Sequence[str]] | None = None
) -> Iterator[ControlPlane]:
    """Afterwards the definition serves, and the chart's roles and classes stand.  `namespaces`: made for jobs."""
    with start_control_plane(folder, tools, more_flags=more_flags) as plane:
        for name in (NAMESPACE, *namespaces):
            plane.kubectl("create", "namespace", name)
        plane.helm("install", "edl", str(CHART), "--namespace", NAMESPACE, "--set", "operator.replicas=1")
        plane.kubectl("wait", "--for=condition=Established", "crd/trainingjobs.edl.dev")
        plane.kubectl("delete", "deployment", "edl-operator", "--namespace", NAMESPACE)
        yield plane


def write_operator_kubeconfig(path: Path, plane: ControlPlane, api: client.ApiClient) -> Path:
    """With a token of the account that the chart gives the operator."""
    return write_account_kubeconfig(
        path, api, authority=plane.authority, namespace=NAMESPACE, account=ACCOUNT, lifetime_s=3600 * 4
    )
