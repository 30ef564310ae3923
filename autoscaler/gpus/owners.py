"""Owners of devices: which pods hold which of the node's GPUs, as the kubelet and the processes on the devices tell.

A value: where it comes from is the subject of `pods`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class HoldingPod:
    """A pod that holds a device, or a process of it does."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClaim:
    """A pod's right to a device; `is_share` where the device was given out as one of several (time slicing)."""

    pod: HoldingPod
    is_share: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOwners:
    """All claims of the node.  `unresolved` are identifiers of no device that the driver told."""

    claims: Mapping[str, tuple[DeviceClaim, ...]] = field(default_factory=dict)  # by UUID
    pods_of_pids: Mapping[int, HoldingPod] = field(default_factory=dict)  # processes whose pod is known
    unresolved: tuple[str, ...] = ()


NOBODY: Final = DeviceOwners()
"""Without Kubernetes: no pod holds anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnersUnknown:
    """The kubelet did not tell; `reason` for people."""

    reason: str
