"""GPUs on a real node: a device plugin tells the kubelet of them, and a driver's library tells what they do.

with gpus_on(cluster, "left", library, 2) as gpus:
    gpus.use(gpus.devices[0])        it computes from now on
    gpus.leave(gpus.devices[0])      it does not any more
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.e2e.device_plugin import RESOURCE, DevicePlugin, registered
from tests.e2e.nodes import RUNTIME, Node
from tests.e2e.nvidia_runtime import FOLDER, SCENARIO
from tests.e2e.real_cluster import RealCluster
from tests.harness.fake_nvml import SONAME, Device, Scenario
from tests.harness.waiting import wait_for

MODEL: Final = "NVIDIA_A100-SXM4-80GB"
IDLE_WATTS: Final = 61.0
BUSY_WATTS: Final = 312.0
PRESENT: Final = "nvidia.com/gpu.present"  # the label that NVIDIA's feature discovery gives such a node


class GpuNode:
    """A node with GPUs.  Nobody computes on them until somebody says so."""

    def __init__(self, node: Node, plugin: DevicePlugin, scenario: Scenario, *, count: int) -> None:
        self.node = node
        self.plugin = plugin
        self._scenario = scenario
        self._count = count

    @property
    def devices(self) -> tuple[str, ...]:
        """UUIDs of those that one pod has at a time, in the driver's order and the plugin's."""
        return tuple(one.uuid for one in self._scenario.devices[: self._count])

    @property
    def shared(self) -> str:
        """UUID of the one that several pods share in time."""
        return self._scenario.devices[self._count].uuid

    @property
    def pod_resources(self) -> Path:
        """The kubelet's socket, as this machine finds it."""
        return Path(f"/proc/{self.node.pid}/root/var/lib/kubelet/pod-resources/kubelet.sock")

    def use(self, *devices: str) -> None:
        """They compute from now on."""
        self._set(devices, util=97, watts=BUSY_WATTS)

    def leave(self, *devices: str) -> None:
        """Nobody computes on them any more; processes and what they hold of memory stay."""
        self._set(devices, util=0, watts=IDLE_WATTS)

    def offer_shared(self) -> None:
        """The device that several pods share is healthy from now on."""
        self.plugin.tell()

    def open_context(self, device: str, container: str, *, percent: int = -1) -> None:
        """The first process of this container, by the name that containerd has for it, is one of the device's.

        It computes for `percent` of the device's time; -1: it has not computed.
        """
        lines = self.node.run(*RUNTIME, "tasks", "list").splitlines()
        (pid,) = (int(words[1]) for line in lines if (words := line.split())[0] == container)
        self._scenario.processes.append((device, pid, percent))
        self._scenario.write()

    def _set(self, devices: tuple[str, ...], *, util: int, watts: float) -> None:
        for one in self._scenario.devices:
            if one.uuid in devices:
                one.util, one.watts = util, watts
        self._scenario.write()


@contextmanager
def gpus_on(cluster: RealCluster, name: str, library: Path, count: int, *, replicas: int = 0) -> Iterator[GpuNode]:
    """The node offers `count` GPUs inside the context, and has none afterwards.  `library`: the driver's.

    With `replicas` it has one more, which so many pods share in time, once `offer_shared` is called; the plugin gives
    it away last.
    """
    node = cluster.nodes[name]
    folder = node.place.folder / "etc" / FOLDER
    folder.mkdir()
    shutil.copy(library, folder / SONAME)
    minors = range(count + bool(replicas))
    uuids = [f"GPU-{node.place.number:08x}-0000-0000-0000-{minor:012x}" for minor in minors]
    shares = [f"{uuids[-1]}::{number}" for number in range(replicas)]
    devices = [
        Device(uuid, name=MODEL, minor=minor, watts=IDLE_WATTS, energy=-1, gpm=None) for minor, uuid in enumerate(uuids)
    ]
    scenario = Scenario(folder / SCENARIO, devices)
    scenario.write()
    try:
        with registered(node, [*uuids[:count], *shares], sick=shares) as plugin:
            wait_for(f"{name} offers its GPUs", lambda: _offered(cluster, name) == count)
            cluster.control_plane.kubectl("label", "node", name, f"{PRESENT}=true")
            yield GpuNode(node, plugin, scenario, count=count)
    finally:
        cluster.control_plane.kubectl("label", "node", name, f"{PRESENT}-")
        shutil.rmtree(folder)
    wait_for(f"{name} offers no GPU any more", lambda: _offered(cluster, name) == 0)


def _offered(cluster: RealCluster, name: str) -> int:
    found = json.loads(cluster.control_plane.kubectl("get", "node", name, "-o", "json"))
    return int(found["status"]["allocatable"].get(RESOURCE, "0"))
