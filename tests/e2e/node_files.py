"""The files of one node, and the plan that its first process carries out.

Pure but for `write`, and for the machine's count of cores and its Python.
"""

from __future__ import annotations

import json
import os
import shutil
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.cluster.accounts import write_certificate_kubeconfig
from tests.cluster.control_plane import ControlPlane
from tests.e2e import nvidia_runtime
from tests.e2e.addresses import DNS_SERVICE, POD_RANGE, node_address, pod_range
from tests.e2e.network import inner_commands
from tests.harness.certificates import Pair

RUNTIME_SOCKET: Final = "/run/containerd/containerd.sock"
PAUSE_IMAGE: Final = "localhost/edl/pause:e2e"
ETC: Final = "/etc/node"  # where the node finds its files
PROGRAMS: Final = "/opt/node"
SHARED: Final = "/shared"
HOST_PACKAGES: Final = "/host-packages"  # the Python packages of this machine, read-only
NODE_CORES: Final = 2
"""What a node has for pods, on any machine that has as many: so a test knows how much fits."""
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
KUBELET_WANTS: Final[Mapping[str, str]] = {
    "kernel/keys/root_maxbytes": "25000000",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
}
"""Settings of the whole machine that a kubelet changes: it is shown files that say what it wants instead."""

CONTAINERD: Final = f"""\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "{RUNTIME_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true  # lowering it takes CAP_SYS_RESOURCE, which not every root has
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{ETC}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
{nvidia_runtime.containerd_section(ETC)}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlace:
    """Place of a node on this machine: its folder, its number among the nodes, its control group."""

    name: str
    number: int
    folder: Path
    cgroup: str

    @property
    def root(self) -> Path:
        """Its file system, as far as the machine sees it."""
        return self.folder / "root"

    @property
    def address(self) -> str:
        return node_address(self.number)


def write(place: NodePlace, control_plane: ControlPlane, *, system: Path, shared: Path) -> Path:
    """Everything that the node needs, below its folder; the path of the first process's plan.

    `system` holds the unpacked packages, `shared` is the folder that all nodes have at SHARED.
    """
    folder, etc = place.folder, place.folder / "etc"
    for name in ("upper/opt/node", "work", "root", "etc/cni", "settings", "var/lib/cni", "var/log/pods", "var/tmp"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name in ("proc", "sys", "dev", "run", "var", "tmp", *[path[1:] for path in (ETC, SHARED, HOST_PACKAGES)]):
        (folder / "upper" / name).mkdir(parents=True, exist_ok=True)
    for name in ("kubelet", "kube-proxy"):
        (folder / "upper/opt/node" / name).touch()
    for setting, value in KUBELET_WANTS.items():
        (folder / "settings" / Path(setting).name).write_text(value + "\n")
    (folder / "var/run").symlink_to("/run")
    (etc / "containerd.toml").write_text(CONTAINERD)
    runtime = etc / nvidia_runtime.PROGRAM
    runtime.write_text(nvidia_runtime.program(ETC))
    runtime.chmod(0o755)
    (etc / "resolv.conf").write_text("")  # the pods' names come from the cluster alone
    _write_json(etc / "cni/10-bridge.conflist", pod_network(place.number))
    _write_json(etc / "kubelet.yaml", kubelet_configuration(place))
    _write_json(etc / "kube-proxy.yaml", proxy_configuration(place))
    _write_identities(place, control_plane)
    plan = first_plan(place, control_plane.layout.tools.programs, system=system, shared=shared)
    _write_json(folder / "plan.json", plan)
    return folder / "plan.json"


def first_plan(place: NodePlace, tools: Mapping[str, Path], *, system: Path, shared: Path) -> dict[str, Any]:
    folder, root = place.folder, place.root
    packages = f"{root}{HOST_PACKAGES}"
    layers = f"lowerdir={system},upperdir={folder / 'upper'},workdir={folder / 'work'}"
    binds = {
        folder / "var": root / "var",
        folder / "etc": root / ETC.removeprefix("/"),
        shared: root / SHARED.removeprefix("/"),
        **{tools[name]: root / "opt/node" / name for name in ("kubelet", "kube-proxy")},
        **{folder / "settings" / Path(setting).name: root / "proc/sys" / setting for setting in KUBELET_WANTS},
    }
    return {
        "name": place.name,
        "root": str(root),
        "mounts": [
            ["mount", "-t", "overlay", "overlay", "-o", layers, str(root)],
            ["mount", "-t", "proc", "proc", f"{root}/proc"],
            ["mount", "-t", "tmpfs", "tmpfs", f"{root}/run"],
            *[["mount", "--rbind", f"/{name}", f"{root}/{name}"] for name in ("sys", "dev")],
            *[["mount", "--bind", str(source), str(target)] for source, target in binds.items()],
            ["mount", "--bind", sysconfig.get_path("purelib"), packages],
            ["mount", "-o", "remount,bind,ro", packages],
        ],
        "network": inner_commands(place.number),
        "environ": {"PATH": PATH},
        "programs": [
            _program("containerd", ["/usr/bin/containerd", "--config", f"{ETC}/containerd.toml"], RUNTIME_SOCKET),
            _program("kubelet", kubelet_command(place)),
            _program("kube-proxy", [f"{PROGRAMS}/kube-proxy", f"--config={ETC}/kube-proxy.yaml"]),
        ],
    }


def kubelet_command(place: NodePlace) -> list[str]:
    return [
        f"{PROGRAMS}/kubelet",
        f"--config={ETC}/kubelet.yaml",
        f"--kubeconfig={ETC}/kubelet.kubeconfig",
        f"--hostname-override={place.name}",
        f"--node-ip={place.address}",
        "--root-dir=/var/lib/kubelet",
        "--cert-dir=/var/lib/kubelet/pki",
    ]


def kubelet_configuration(place: NodePlace) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": place.address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{ETC}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{ETC}/kubelet.crt",
        "tlsPrivateKeyFile": f"{ETC}/kubelet.key",
        "containerRuntimeEndpoint": f"unix://{RUNTIME_SOCKET}",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": place.cgroup,
        "enforceNodeAllocatable": ["pods"],
        "systemReserved": {"cpu": str(max(0, (os.cpu_count() or 1) - NODE_CORES))},
        "oomScoreAdj": 0,  # as `restrict_oom_score_adj` of containerd
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "protectKernelDefaults": True,  # see KUBELET_WANTS
        "clusterDomain": "cluster.local",
        "clusterDNS": [DNS_SERVICE],
        "resolvConf": f"{ETC}/resolv.conf",
        "volumePluginDir": "/var/lib/kubelet/volumeplugins",
        "evictionHard": {  # the disk is the machine's: what others put there is no reason to evict pods
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "2s",
        "syncFrequency": "10s",
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
    }


def proxy_configuration(place: NodePlace) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "hostnameOverride": place.name,
        "clientConnection": {"kubeconfig": f"{ETC}/kube-proxy.kubeconfig"},
        "clusterCIDR": POD_RANGE,
        "bindAddress": place.address,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def pod_network(number: int) -> dict[str, Any]:
    bridge = {
        "type": "bridge",
        "bridge": "pods",
        "isDefaultGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": pod_range(number)}]]},
    }
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, {"type": "loopback"}]}


def _program(name: str, command: Sequence[str], ready: str = "") -> dict[str, Any]:
    return {"command": list(command), "log": f"/var/log/{name}.log", "ready": ready}


def _write_identities(place: NodePlace, control_plane: ControlPlane) -> None:
    """Identities of the kubelet and kube-proxy, in files with the node's own paths."""
    etc, layout = place.folder / "etc", control_plane.layout
    (etc / "ca.crt").write_bytes(layout.authority.read_bytes())
    users = {"kubelet": (f"system:node:{place.name}", ("system:nodes",)), "kube-proxy": ("system:kube-proxy", ())}
    for program, (user, groups) in users.items():
        issued = control_plane.signer.issue(
            f"{program}-{place.name}", user, groups=groups, addresses=(place.address, place.name)
        )
        shutil.copy(issued.certificate, etc / f"{program}.crt")
        shutil.copy(issued.key, etc / f"{program}.key")
        seen = Pair(certificate=Path(ETC) / f"{program}.crt", key=Path(ETC) / f"{program}.key")
        kubeconfig = etc / f"{program}.kubeconfig"
        write_certificate_kubeconfig(kubeconfig, server=layout.server, authority=Path(ETC) / "ca.crt", pair=seen)


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    """YAML's readers read it too."""
    path.write_text(json.dumps(document, indent=2))
