"""GPUs of this machine: counting them and choosing devices for a pod, which has them alone.

`--gpu auto` asks the driver once, which answers without touching the devices.  A pod sees its devices in
CUDA_VISIBLE_DEVICES (`process_environment`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from autoscaler.errors import PermanentError
from autoscaler.gpus.readings import DriverFailure

_START_DEADLINE_S: Final = 60.0  # a driver without persistence mode starts each GPU when it is first asked


class GpuLookupError(PermanentError):
    """The machine's GPUs cannot be counted."""


def count_gpus() -> int:
    """Return how many GPUs the NVIDIA driver knows.  Raises GpuLookupError with what is missing."""
    try:
        from autoscaler.gpus.driver.nvml_door import NvmlDoor  # noqa: PLC0415 - asked for rarely, and slow to import
    except ImportError:
        raise GpuLookupError("--gpu auto needs the package nvidia-ml-py; or give a number: --gpu 0") from None
    reading = NvmlDoor(deadline_s=_START_DEADLINE_S).read()
    if isinstance(reading, DriverFailure):
        raise GpuLookupError(
            f"--gpu auto asks the NVIDIA driver, and it fails: {reading.message}. Or give a number: --gpu 0"
        )
    return len({device.parent_uuid or device.uuid for device in reading.devices})


def spread(devices: int, nodes: int) -> tuple[tuple[int, ...], ...]:
    """Divide the machine's devices among virtual nodes in order, as evenly as possible: 3 over 2 is (0, 1), (2)."""
    each, rest = divmod(devices, nodes)
    shares: list[tuple[int, ...]] = []
    start = 0
    for node in range(nodes):
        count = each + (1 if node < rest else 0)
        shares.append(tuple(range(start, start + count)))
        start += count
    return tuple(shares)


def choose(devices: Sequence[int], used: Iterable[int], count: int) -> tuple[int, ...]:
    """Return the lowest `count` unused devices.  Raises ValueError if there are fewer, which is a bug in accounting."""
    taken = set(used)
    free = [device for device in devices if device not in taken]
    if len(free) < count:
        raise ValueError(f"{count} GPUs wanted, {len(free)} free")
    return tuple(free[:count])
