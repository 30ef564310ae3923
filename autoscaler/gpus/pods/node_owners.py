"""Owners of a node's devices: the kubelet's allocations, resolved to devices, and the pods of processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from autoscaler.gpus.owners import DeviceClaim, DeviceOwners, HoldingPod, OwnersUnknown
from autoscaler.gpus.pods.device_ids import resolve_claimed, resolve_device
from autoscaler.gpus.pods.pod_resources import Allocation, PodResources
from autoscaler.gpus.pods.process_pods import ProcessPods
from autoscaler.gpus.readings import Absence, DeviceReading


class NodeOwners:
    """Asks the kubelet and /proc who has these devices."""

    def __init__(self, kubelet: PodResources | None, processes: ProcessPods) -> None:
        """Without a kubelet no pod has a claim."""
        self._kubelet = kubelet
        self._processes = processes

    def read(self, devices: Sequence[DeviceReading]) -> DeviceOwners | OwnersUnknown:
        """Owners of the devices now, or why they are not known.  Takes as long as the kubelet's deadline at most."""
        allocations = () if self._kubelet is None else self._kubelet.list_allocations()
        if isinstance(allocations, OwnersUnknown):
            return allocations
        return make_owners(allocations, devices, self._processes.find(_pids(devices)))


def make_owners(
    allocations: Iterable[Allocation], devices: Sequence[DeviceReading], pods_of_pids: Mapping[int, HoldingPod]
) -> DeviceOwners:
    """Claims by device; each pod once, also if two of its containers have the device.  Pure."""
    claims: dict[str, dict[HoldingPod, DeviceClaim]] = {}
    unresolved: set[str] = set()
    for one in allocations:
        resolve = resolve_claimed if one.is_claim else resolve_device
        if (device := resolve(one.identifier, devices)) is None:
            unresolved.add(one.identifier[:100])
            continue
        of_device = claims.setdefault(device.uuid, {})
        before = of_device.get(one.pod)
        is_share = device.is_share and (before is None or before.is_share)
        of_device[one.pod] = DeviceClaim(pod=one.pod, is_share=is_share)
    return DeviceOwners(
        claims={uuid: tuple(by_pod.values()) for uuid, by_pod in claims.items()},
        pods_of_pids=pods_of_pids,
        unresolved=tuple(sorted(unresolved)),
    )


def _pids(devices: Sequence[DeviceReading]) -> frozenset[int]:
    told = (group for one in devices for group in (one.processes, one.work) if not isinstance(group, Absence))
    return frozenset(one.pid for group in told for one in group)
