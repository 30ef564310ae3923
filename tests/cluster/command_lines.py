"""The command line of each program of the control plane.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cluster.toolbox import Tools
from tests.harness.certificates import Pair

HOST: Final = "127.0.0.1"
SERVICE_RANGE: Final = "10.96.0.0/16"
FIRST_SERVICE: Final = "10.96.0.1"
POD_RANGE: Final = "10.89.0.0/16"  # of KWOK's pods, which nobody can reach
ISSUER: Final = "https://kubernetes.default.svc"
STAND_IN_ANNOTATION: Final = "kwok.x-k8s.io/node"
STAND_IN: Final = "fake"
QUERIES_PER_S: Final = 500  # tests create hundreds of pods at once; the default of 20 would be what they measure
STAGES: Final = Path(__file__).with_name("stages.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    etcd: int
    etcd_peer: int
    api: int
    controllers: int
    scheduler: int
    kwok: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Arguments that all commands share."""

    folder: Path
    tools: Tools
    ports: Ports
    authority: Path
    serving: Pair
    etcd_authority: Path  # of the two below: whoever has a certificate of it may read and write everything
    etcd: Pair
    accounts: Pair
    kubeconfigs: Mapping[str, Path]
    address: str = HOST  # of the API server
    kubelet_client: Pair | None = None  # who the API server is to kubelets, where there are any

    @property
    def server(self) -> str:
        return f"https://{self.address}:{self.ports.api}"


def data_folder(layout: Layout) -> Path:
    """All that the cluster knows."""
    return layout.folder / "etcd"


def etcd_command(layout: Layout) -> list[str]:
    """Every user of the machine, and every page in a browser, reaches loopback: only the API server is answered."""
    client, peer = f"https://{HOST}:{layout.ports.etcd}", f"https://{HOST}:{layout.ports.etcd_peer}"
    return [
        str(layout.tools["etcd"]),
        f"--data-dir={data_folder(layout)}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        *(f"--{of}cert-file={layout.etcd.certificate}" for of in ("", "peer-")),
        *(f"--{of}key-file={layout.etcd.key}" for of in ("", "peer-")),
        *(f"--{of}trusted-ca-file={layout.etcd_authority}" for of in ("", "peer-")),
        *(f"--{of}client-cert-auth" for of in ("", "peer-")),
        "--unsafe-no-fsync",  # its data is thrown away; on a shared disk fsync is most of the start
        "--log-level=warn",
    ]


def api_server_command(layout: Layout) -> list[str]:
    return [
        str(layout.tools["kube-apiserver"]),
        f"--etcd-servers=https://{HOST}:{layout.ports.etcd}",
        f"--etcd-cafile={layout.etcd_authority}",
        f"--etcd-certfile={layout.etcd.certificate}",
        f"--etcd-keyfile={layout.etcd.key}",
        f"--bind-address={layout.address}",
        f"--secure-port={layout.ports.api}",
        *_reach_flags(layout),
        f"--tls-cert-file={layout.serving.certificate}",
        f"--tls-private-key-file={layout.serving.key}",
        f"--client-ca-file={layout.authority}",
        "--anonymous-auth=false",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={layout.accounts.certificate}",
        f"--service-account-signing-key-file={layout.accounts.key}",
    ]


def controllers_command(layout: Layout) -> list[str]:
    return [
        str(layout.tools["kube-controller-manager"]),
        *_controller_flags(layout, "controllers", layout.ports.controllers),
        "--use-service-account-credentials",  # each controller by its own rights, as in a cluster
        f"--service-account-private-key-file={layout.accounts.key}",
        f"--root-ca-file={layout.authority}",
    ]


def scheduler_command(layout: Layout) -> list[str]:
    return [str(layout.tools["kube-scheduler"]), *_controller_flags(layout, "scheduler", layout.ports.scheduler)]


def kwok_command(layout: Layout) -> list[str]:
    return [
        str(layout.tools["kwok"]),
        f"--kubeconfig={layout.kubeconfigs['admin']}",
        "--manage-all-nodes=false",
        f"--manage-nodes-with-annotation-selector={STAND_IN_ANNOTATION}={STAND_IN}",
        f"--node-ip={HOST}",
        f"--cidr={POD_RANGE}",
        f"--server-address={HOST}:{layout.ports.kwok}",
        "--node-lease-duration-seconds=40",
        "--v=WARN",
        *[f"--config={stages}" for stages in (STAGES, *layout.tools.files.values())],
    ]


def _reach_flags(layout: Layout) -> list[str]:
    """How pods reach the API server by the Service `kubernetes`, and how it reaches kubelets for logs and exec."""
    if layout.kubelet_client is None:
        return ["--endpoint-reconciler-type=none"]  # that Service may not lead to loopback
    return [
        f"--advertise-address={layout.address}",
        f"--kubelet-client-certificate={layout.kubelet_client.certificate}",
        f"--kubelet-client-key={layout.kubelet_client.key}",
        f"--kubelet-certificate-authority={layout.authority}",
        "--kubelet-preferred-address-types=InternalIP",
        "--allow-privileged",
    ]


def _controller_flags(layout: Layout, name: str, port: int) -> list[str]:
    return [
        f"--kubeconfig={layout.kubeconfigs[name]}",
        f"--bind-address={HOST}",
        f"--secure-port={port}",
        "--leader-elect=false",
        f"--kube-api-qps={QUERIES_PER_S}",
        f"--kube-api-burst={2 * QUERIES_PER_S}",
    ]
