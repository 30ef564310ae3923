"""Identifiers of devices as kubelets tell them, and the devices that they mean.

| identifier | from | means |
|---|---|---|
| `GPU-UUID`, `MIG-UUID` | NVIDIA's device plugin | that device |
| `GPU-UUID::3`, `MIG-UUID::7` | the same, time slicing | a share of that device |
| nvidia0 | GKE | /dev/nvidia0 |
| `nvidia0/gi1` | GKE | instance 1 of that GPU |
| `nvidia0/vgpu2` | GKE, time sharing | a share of that GPU |
| `nvidia0/gi1/vgpu2` | GKE, both | a share of that instance |
| `gpu-0` | NVIDIA's DRA driver | /dev/nvidia0 |
| `gpu-0-mig-9-0-1` | the same | an instance of that GPU, which one is not said |

Whatever means no device of this node, or more than one, is unresolved: who has which device is then not known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from autoscaler.gpus.readings import DeviceReading

RESOURCE_PREFIX: Final = "nvidia.com/"
DRA_DRIVER: Final = "gpu.nvidia.com"

_BY_UUID: Final = re.compile(r"(?P<uuid>(?:GPU|MIG)-[0-9A-Za-z/-]+)(?P<share>::[0-9]+)?")
_BY_MINOR: Final = re.compile(r"nvidia(?P<minor>[0-9]{1,4})(?:/gi(?P<instance>[0-9]{1,4}))?(?P<share>/vgpu[0-9]+)?")
_BY_CLAIM: Final = re.compile(r"gpu-(?P<minor>[0-9]{1,4})(?P<instance>-mig-[0-9]+-[0-9]+-[0-9]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedDevice:
    uuid: str
    is_share: bool


def resolve_device(identifier: str, devices: Sequence[DeviceReading]) -> ResolvedDevice | None:
    """The device of the node that a device plugin's identifier means; None if it means none, or several."""
    if match := _BY_UUID.fullmatch(identifier):
        found = [one.uuid for one in devices if one.uuid == match["uuid"]]
    elif match := _BY_MINOR.fullmatch(identifier):
        instance = None if match["instance"] is None else int(match["instance"])
        found = [one.uuid for one in devices if one.minor == int(match["minor"]) and one.gpu_instance == instance]
    else:
        return None
    return ResolvedDevice(uuid=found[0], is_share=match["share"] is not None) if len(found) == 1 else None


def resolve_claimed(name: str, devices: Sequence[DeviceReading]) -> ResolvedDevice | None:
    """The same for a device of a ResourceClaim; an instance is known only if its GPU has no other."""
    match = _BY_CLAIM.fullmatch(name)
    if match is None:
        return None
    of_gpu = [one for one in devices if one.minor == int(match["minor"])]
    found = [one.uuid for one in of_gpu if (one.parent_uuid is not None) == (match["instance"] is not None)]
    return ResolvedDevice(uuid=found[0], is_share=False) if len(found) == 1 else None
