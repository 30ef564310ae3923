"""One sample of a node: the driver's reading, the owners of the devices, and the verdicts that follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from autoscaler.gpus.driver.nvml_door import NvmlDoor
from autoscaler.gpus.owners import DeviceOwners, OwnersUnknown
from autoscaler.gpus.pod_verdicts import PodVerdict, judge_pods
from autoscaler.gpus.pods.node_owners import NodeOwners
from autoscaler.gpus.readings import DriverFailure
from autoscaler.gpus.verdicts import DeviceVerdict, NodeHistory, VerdictRule, judge_node

LEAST_INTERVAL_S: Final = 5.0
"""Between two samples: the driver's counters cost the device something, and energy is exact over seconds only."""

GAPS: Final = 4  # intervals after which a reading is stale


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSample:
    """Verdicts on all devices of the node and on their pods, in the driver's order."""

    devices: tuple[DeviceVerdict, ...] = ()
    pods: tuple[PodVerdict, ...] = ()
    failure: DriverFailure | None = None
    owners: DeviceOwners | OwnersUnknown


class NodeAgent:
    """Samples this node; keeps one reading and one instant for each device."""

    def __init__(self, door: NvmlDoor, owners: NodeOwners, rule: VerdictRule) -> None:
        self._door = door
        self._owners = owners
        self._rule = rule
        self._history = NodeHistory()

    def sample(self) -> NodeSample:
        """Ask the driver and the kubelet once; takes as long as their deadlines at most, and never raises for them."""
        reading = self._door.read()
        failure = reading if isinstance(reading, DriverFailure) else None
        owners: DeviceOwners | OwnersUnknown = OwnersUnknown(reason="the driver tells no devices")
        if not isinstance(reading, DriverFailure):
            owners = self._owners.read(reading.devices)
        judgement = judge_node(self._history, reading, owners, self._rule)
        self._history = judgement.history
        pods = tuple(pod for device in judgement.verdicts for pod in judge_pods(device, owners))
        return NodeSample(devices=judgement.verdicts, pods=pods, failure=failure, owners=owners)
