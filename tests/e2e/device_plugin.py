"""A device plugin for nvidia.com/gpu, on the kubelet of one real node: NVIDIA's, without the devices.

    with registered(node, ["GPU-0000..."]) as plugin: ...
    plugin.given("GPU-0000...")     how often the kubelet has given this one away

It runs in the test's process and reaches the kubelet's folder through the node's first process.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import grpc

from tests.e2e.deviceplugin.v1beta1 import deviceplugin_pb2 as api
from tests.e2e.deviceplugin.v1beta1.deviceplugin_pb2_grpc import (
    DevicePluginServicer,
    RegistrationStub,
    add_DevicePluginServicer_to_server,
)
from tests.e2e.nodes import Node
from tests.harness.waiting import wait_for

RESOURCE: Final = "nvidia.com/gpu"
VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"  # what NVIDIA's plugin tells a container
FOLDER: Final = "var/lib/kubelet/device-plugins"
SOCKET: Final = "nvidia-gpu.sock"
BUDGET_S: Final = 60.0
THREADS: Final = 4  # ListAndWatch keeps one


class DevicePlugin(DevicePluginServicer):
    """Gives away what the kubelet chooses.  `tell` changes which devices are healthy."""

    def __init__(self, devices: Sequence[str], *, sick: Sequence[str] = ()) -> None:
        self._devices = tuple(devices)
        self._sick = frozenset(sick)
        self._given: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._is_news = True
        self._is_over = False

    def given(self, device: str) -> int:
        """How often containers got it."""
        with self._changed:
            return self._given[device]

    def tell(self, *, sick: Sequence[str] = ()) -> None:
        """From now on these are unhealthy and all others healthy."""
        with self._changed:
            self._sick = frozenset(sick)
            self._is_news = True
            self._changed.notify_all()

    def close(self) -> None:
        """Ends the stream to the kubelet."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def GetDevicePluginOptions(self, request: Any, context: Any) -> api.DevicePluginOptions:  # noqa: N802 - the wire's
        return api.DevicePluginOptions(get_preferred_allocation_available=True)

    def ListAndWatch(self, request: Any, context: Any) -> Iterator[api.ListAndWatchResponse]:  # noqa: N802
        while (sick := self._wait_told()) is not None and context.is_active():
            health = {one: "Unhealthy" if one in sick else "Healthy" for one in self._devices}
            yield api.ListAndWatchResponse(devices=[api.Device(id=one, health=health[one]) for one in self._devices])

    def _wait_told(self) -> frozenset[str] | None:
        """Which devices are unhealthy, once that is to be told; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._is_news)
            self._is_news = False
            return None if self._is_over else self._sick

    def GetPreferredAllocation(self, request: Any, context: Any) -> api.PreferredAllocationResponse:  # noqa: N802
        """The devices in their order, so that a test knows which one a pod gets."""
        answer = api.PreferredAllocationResponse()
        for wanted in request.container_requests:
            must = list(wanted.must_include)
            others = [one for one in self._devices if one in set(wanted.available) - set(must)]
            answer.container_responses.add(device_ids=(must + others)[: wanted.size])
        return answer

    def Allocate(self, request: Any, context: Any) -> api.AllocateResponse:  # noqa: N802
        answer = api.AllocateResponse()
        for wanted in request.container_requests:
            if unknown := sorted(set(wanted.device_ids) - set(self._devices)):
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"there are no devices {', '.join(unknown)}")
            with self._changed:
                self._given.update(wanted.device_ids)
            answer.container_responses.add(envs={VISIBLE: ",".join(wanted.device_ids)})
        return answer

    def PreStartContainer(self, request: Any, context: Any) -> api.Empty:  # noqa: N802
        return api.Empty()


@contextmanager
def registered(node: Node, devices: Sequence[str], *, sick: Sequence[str] = ()) -> Iterator[DevicePlugin]:
    """The kubelet has the plugin inside the context; afterwards all its devices are unhealthy.  `sick`: until `tell`.

    Raises WaitTimeoutError when the kubelet does not take it.
    """
    folder = Path(f"/proc/{node.pid}/root") / FOLDER
    plugin, pool = DevicePlugin(devices, sick=sick), ThreadPoolExecutor(THREADS)
    server = grpc.server(pool)
    add_DevicePluginServicer_to_server(plugin, server)
    server.add_insecure_port(f"unix://{folder / SOCKET}")
    server.start()
    try:
        wait_for("the kubelet has a socket for device plugins", (folder / "kubelet.sock").exists, budget_s=BUDGET_S)
        with grpc.insecure_channel(f"unix://{folder / 'kubelet.sock'}") as channel:
            options = api.DevicePluginOptions(get_preferred_allocation_available=True)
            request = api.RegisterRequest(version="v1beta1", endpoint=SOCKET, resource_name=RESOURCE, options=options)
            RegistrationStub(channel).Register(request, timeout=BUDGET_S, wait_for_ready=True)
        yield plugin
    finally:
        plugin.close()
        server.stop(None).wait()
        pool.shutdown()
        (folder / SOCKET).unlink(missing_ok=True)
