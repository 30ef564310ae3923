"""Sampling of a node: the driver's reading, the owners of the devices, and the verdicts that follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from autoscaler.gpus.owners import DeviceOwners, OwnersUnknown
from autoscaler.gpus.pod_verdicts import PodVerdict, judge_pods
from autoscaler.gpus.readings import DeviceReading, DriverFailure, NodeReading
from autoscaler.gpus.verdicts import DeviceVerdict, NodeHistory, VerdictRule, judge_node

LEAST_INTERVAL_S: Final = 5.0
"""Between two samples: the driver's counters cost the device something, and energy is exact over seconds only."""

MOST_INTERVAL_S: Final = 15.0
"""Between two samples: the driver keeps what processes did in a ring of some hundred entries for each device, so of a
longer interval it may have the end alone, which would count as all of it.
"""

GAPS: Final = 4  # intervals after which a reading is stale


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSample:
    """Verdicts on all devices of the node and on their pods, in the driver's order."""

    devices: tuple[DeviceVerdict, ...] = ()
    pods: tuple[PodVerdict, ...] = ()
    failure: DriverFailure | None = None
    owners: DeviceOwners | OwnersUnknown


class OwnersSource(Protocol):
    """Source of the devices' owners: `pods.node_owners` on a node of Kubernetes."""

    def read(self, devices: Sequence[DeviceReading]) -> DeviceOwners | OwnersUnknown:
        """Owners of these devices now, or why they are not known.  Never raises."""
        ...


class ReadingSource(Protocol):
    """Source of the devices' readings: the driver, or a DCGM exporter."""

    def read(self) -> NodeReading | DriverFailure:
        """All devices now; the very reading before if there is nothing newer yet.  Never raises."""
        ...


class NodeAgent:
    """Samples this node; keeps one reading and one instant for each device."""

    def __init__(self, door: ReadingSource, owners: OwnersSource, rule: VerdictRule) -> None:
        self._door = door
        self._owners = owners
        self._rule = rule
        self._history = NodeHistory()
        self._last: tuple[NodeReading, NodeSample] | None = None

    def sample(self) -> NodeSample:
        """Ask the driver and the kubelet once; takes as long as their deadlines at most, and never raises for them."""
        reading = self._door.read()
        if self._last is not None and reading is self._last[0]:
            return self._last[1]
        failure = reading if isinstance(reading, DriverFailure) else None
        owners: DeviceOwners | OwnersUnknown = OwnersUnknown(reason="the driver tells no devices")
        if not isinstance(reading, DriverFailure):
            owners = self._owners.read(reading.devices)
        judgement = judge_node(self._history, reading, owners, self._rule)
        self._history = judgement.history
        pods = tuple(pod for device in judgement.verdicts for pod in judge_pods(device, owners))
        sample = NodeSample(devices=judgement.verdicts, pods=pods, failure=failure, owners=owners)
        self._last = None if isinstance(reading, DriverFailure) else (reading, sample)
        return sample
