"""GPUs by use in a run: this machine's devices, sampled as `edl agent` does, and reported for each virtual node.

Reports go to the run's API server as NodeGpus, so that everything else finds them where it does in a cluster.  A pod
has the devices that its annotation names; a process on a device is of the pod in whose session it runs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from autoscaler.clusters.kubernetes.api.api_port import Api, Raw, Subresource
from autoscaler.clusters.kubernetes.api.errors import AlreadyExistsError, NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import NODE_GPUS, PODS
from autoscaler.clusters.kubernetes.memory_api.memory_server import MemoryServer
from autoscaler.clusters.kubernetes.objects.fields import ENDED_PHASES, text
from autoscaler.clusters.local.control_plane.pod_annotations import GPUS, PID
from autoscaler.domain import NodeName
from autoscaler.gpus.agent.node_agent import GAPS, LEAST_INTERVAL_S, NodeAgent, NodeSample
from autoscaler.gpus.agent.node_gpus_api import AgentIdentity
from autoscaler.gpus.agent.node_reports import NodeReports
from autoscaler.gpus.agent.report_timing import ReportTiming
from autoscaler.gpus.driver.nvml_door import NvmlDoor
from autoscaler.gpus.owners import DeviceClaim, DeviceOwners, HoldingPod
from autoscaler.gpus.readings import Absence, DeviceReading, FailureKind
from autoscaler.gpus.verdicts import VerdictRule

log = logging.getLogger(__name__)

LOCAL_TIMING: Final = ReportTiming(spread_s=0.0, settle_s=0.0, renew_held_s=20.0, renew_s=20.0)
"""A report costs nothing here, and one that is always fresh needs no question."""

_INTERVAL_S: Final = LEAST_INTERVAL_S


class GpuWatch:
    """Samples until cancelled.  `devices`: the GPU numbers of each virtual node."""

    def __init__(
        self,
        server: MemoryServer,
        api: Api,
        devices: Mapping[NodeName, Sequence[int]],
        *,
        window_s: float,
    ) -> None:
        self._server = server
        self._owners = RunOwners()
        rule = VerdictRule(window_s=window_s, longest_gap_s=GAPS * _INTERVAL_S)
        self._agent = NodeAgent(NvmlDoor(), self._owners, rule)
        door = RunNodeObject(api)
        self._newest: tuple[NodeSample, float] | None = None
        self._nodes = {
            node: (
                frozenset(numbers),
                NodeReports(door, AgentIdentity(node=node, uid=""), timing=LOCAL_TIMING),
            )
            for node, numbers in devices.items()
            if numbers
        }

    async def run(self) -> None:
        """Sample, and report.  Ends early if the driver is upgraded: reports then grow old."""
        async with asyncio.TaskGroup() as tasks:
            writers = [tasks.create_task(one.writer.run(), name="GPU reports") for _, one in self._nodes.values()]
            await self._sample()
            for writer in writers:
                writer.cancel()

    def newest(self) -> tuple[NodeSample, float] | None:
        """Return the last sample and its Unix time; None before the first."""
        return self._newest

    async def _sample(self) -> None:
        while True:
            began_s = time.monotonic()
            self._owners.pods = holders_of(self._server.all(PODS))
            sample = await asyncio.to_thread(self._agent.sample)
            if sample.failure is not None and sample.failure.kind is FailureKind.UPGRADED:
                log.warning("GPUs are not watched any more: %s", sample.failure.message)
                return
            self._newest = (sample, time.time())
            for numbers, reports in self._nodes.values():
                reports.add(part_of(sample, numbers))
            await asyncio.sleep(max(0.0, began_s + _INTERVAL_S - time.monotonic()))


class RunOwners:
    """Owners of this machine's devices: pods of the run by what they were given.  `pods` is replaced, never changed."""

    def __init__(self) -> None:
        self.pods: tuple[tuple[HoldingPod, frozenset[int], int], ...] = ()

    def read(self, devices: Sequence[DeviceReading]) -> DeviceOwners:
        """Claims by the numbers of the devices, and the pods of processes by their sessions."""
        pods, numbers = self.pods, device_numbers(devices)
        claims = {
            one.uuid: tuple(DeviceClaim(pod=pod) for pod, held, _ in pods if numbers[one.uuid] in held)
            for one in devices
        }
        by_session = {pid: pod for pod, _, pid in pods if pid}
        return DeviceOwners(claims=claims, pods_of_pids=_pods_of_pids(devices, by_session))


class RunNodeObject:
    """`NodeObject` on the run's API server."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def get(self, node: NodeName) -> Raw | None:
        """See `NodeObject`."""
        with suppress(NotFoundError):
            return await self._api.get(NODE_GPUS, node)
        return None

    async def create(self, body: dict[str, Any]) -> None:
        """See `NodeObject`."""
        with suppress(AlreadyExistsError):
            await self._api.create(NODE_GPUS, body)

    async def write_status(self, node: NodeName, status: dict[str, Any]) -> bool:
        """See `NodeObject`."""
        with suppress(NotFoundError):
            await self._api.patch(NODE_GPUS, node, {"status": status}, subresource=Subresource.STATUS)
            return True
        return False


def holders_of(pods: Iterable[Raw]) -> tuple[tuple[HoldingPod, frozenset[int], int], ...]:
    """Each pod that has devices and has not ended: with their numbers, and the pid of its first process or 0."""
    found = []
    for raw in pods:
        numbers = text(raw, "metadata", "annotations", GPUS)
        if numbers and text(raw, "status", "phase") not in ENDED_PHASES:
            pod = HoldingPod(namespace=text(raw, "metadata", "namespace"), name=text(raw, "metadata", "name"))
            pid = text(raw, "metadata", "annotations", PID)
            held = frozenset(int(one) for one in numbers.split(",") if one.isdecimal())
            found.append((pod, held, int(pid) if pid.isdecimal() else 0))
    return tuple(found)


def device_numbers(devices: Sequence[DeviceReading]) -> dict[str, int]:
    """The number of each device's GPU in the driver's order, by the device's UUID; instances have their GPU's."""
    whole = list(dict.fromkeys(one.parent_uuid or one.uuid for one in devices))
    return {one.uuid: whole.index(one.parent_uuid or one.uuid) for one in devices}


def part_of(sample: NodeSample, numbers: frozenset[int]) -> NodeSample:
    """Part of the sample that is of the GPUs with these numbers."""
    all_numbers = device_numbers([one.reading for one in sample.devices])
    return NodeSample(
        devices=tuple(one for one in sample.devices if all_numbers[one.reading.uuid] in numbers),
        pods=tuple(one for one in sample.pods if all_numbers[one.device.reading.uuid] in numbers),
        failure=sample.failure,
        owners=sample.owners,
    )


def _pods_of_pids(devices: Sequence[DeviceReading], by_session: Mapping[int, HoldingPod]) -> dict[int, HoldingPod]:
    found = {}
    groups = (group for one in devices for group in (one.processes, one.work) if not isinstance(group, Absence))
    for pid in {process.pid for group in groups for process in group}:
        with suppress(OSError):
            if (pod := by_session.get(os.getsid(pid))) is not None:
                found[pid] = pod
    return found
