"""GPUs of this machine: those that a run may use, and choosing devices for a pod, which has them alone.

`--gpu auto` asks the driver once, which answers without touching the devices; a number of GPUs asks nobody.  A pod
sees its devices in CUDA_VISIBLE_DEVICES (`process_environment`), by their UUIDs where the driver was asked, since CUDA
counts devices in an order of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from autoscaler.errors import PermanentError
from autoscaler.gpus.readings import DeviceReading, DriverFailure

_START_DEADLINE_S: Final = 60.0  # a driver without persistence mode starts each GPU when it is first asked


class GpuLookupError(PermanentError):
    """Which GPUs the machine has for a run is not known."""


class GpuOrderError(GpuLookupError):
    """The environment names GPUs by numbers of an order that only CUDA knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineGpu:
    """A GPU that the run may use.  `number`: in the driver's order, from 0; `cuda_id`: its UUID, or its instance's."""

    number: int
    cuda_id: str


def find_gpus(environment: Mapping[str, str]) -> tuple[MachineGpu, ...]:
    """Return the GPUs that the NVIDIA driver knows and CUDA_VISIBLE_DEVICES of this environment does not withhold.

    A divided GPU is one, by its first instance or the one that is named: a process of CUDA uses no more of it.  Raises
    GpuLookupError with what is missing.
    """
    try:
        from autoscaler.gpus.driver.nvml_door import NvmlDoor  # noqa: PLC0415 - asked for rarely, and slow to import
    except ImportError:
        raise GpuLookupError("--gpu auto needs the package nvidia-ml-py; or give a number: --gpu 0") from None
    reading = NvmlDoor(deadline_s=_START_DEADLINE_S).read()
    if isinstance(reading, DriverFailure):
        raise GpuLookupError(
            f"--gpu auto asks the NVIDIA driver, and it fails: {reading.message}. Or give a number: --gpu 0"
        )
    return visible_gpus(reading.devices, environment)


def visible_gpus(devices: Sequence[DeviceReading], environment: Mapping[str, str]) -> tuple[MachineGpu, ...]:
    """Return those of the driver's devices that a process of CUDA with this environment would see.  Pure.

    They stand in the order of its list.  As in CUDA an empty list is no GPU, and what comes after an entry that names
    none, such as -1, is not seen.  Raises GpuOrderError.
    """
    first: dict[str, DeviceReading] = {}
    for one in devices:
        first.setdefault(one.parent_uuid or one.uuid, one)
    whole, named = tuple(first.values()), environment.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        chosen = whole
    else:
        entries = [entry.strip() for entry in named.split(",")]
        has_numbers = any(entry.isdecimal() for entry in entries)
        if has_numbers and len({one.model for one in devices}) > 1 and not _counts_as_the_driver(environment):
            raise GpuOrderError(
                f"CUDA_VISIBLE_DEVICES={named} counts GPUs in CUDA's order, which is not the driver's on a machine of "
                "several models: name their UUIDs (nvidia-smi -L), or set CUDA_DEVICE_ORDER=PCI_BUS_ID"
            )
        chosen = tuple(_devices_named(entries, devices, whole))
    numbers = {uuid: number for number, uuid in enumerate(first)}
    found: dict[int, str] = {}
    for one in chosen:
        found.setdefault(numbers[one.parent_uuid or one.uuid], one.uuid)
    return tuple(MachineGpu(number=number, cuda_id=cuda_id) for number, cuda_id in found.items())


def gpus_named(count: int, environment: Mapping[str, str]) -> Mapping[int, str]:
    """Return CUDA's names of `count` GPUs that a run hands out by number, from 0, without asking the driver.

    They are the first entries of CUDA_VISIBLE_DEVICES, so that a run takes no GPU that this environment withholds.
    Without the variable nothing is returned: their numbers are their names.  Raises GpuLookupError if it lists fewer.
    """
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is None or not count:
        return {}
    seen = list(dict.fromkeys(takewhile(_is_entry, (entry.strip() for entry in named.split(",")))))
    if len(seen) < count:
        problem = f"the nodes have {count} GPUs, and CUDA_VISIBLE_DEVICES={named!r} shows {len(seen)} to this run"
        raise GpuLookupError(f"{problem}: lower --gpu, or unset the variable")
    return dict(enumerate(seen[:count]))


def _is_entry(text: str) -> bool:
    """True unless CUDA sees neither this entry nor any after it."""
    return text.isdecimal() or text.startswith(("GPU-", "MIG-"))


def _counts_as_the_driver(environment: Mapping[str, str]) -> bool:
    return environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"


def _devices_named(
    entries: Iterable[str], devices: Sequence[DeviceReading], whole: Sequence[DeviceReading]
) -> Iterator[DeviceReading]:
    """Yield the devices of a list's entries, numbers or beginnings of UUIDs, up to the first that names none."""
    for entry in entries:
        if entry.isdecimal():
            found = list(whole[int(entry) : int(entry) + 1])
        elif entry.startswith("MIG-GPU-"):  # MIG-GPU-UUID/INSTANCE/0, of drivers before 470
            parent, _, instance = entry.removeprefix("MIG-").partition("/")
            number = instance.partition("/")[0]
            found = [one for one in devices if one.parent_uuid == parent and str(one.gpu_instance) == number]
        elif entry.startswith("MIG-"):
            found = [one for one in devices if one.uuid.startswith(entry)]
        elif entry.startswith("GPU-"):
            found = [one for one in whole if (one.parent_uuid or one.uuid).startswith(entry)]
        else:
            return
        if len(found) != 1:
            return
        yield found[0]


def spread(devices: Sequence[int], nodes: int) -> tuple[tuple[int, ...], ...]:
    """Divide devices among virtual nodes in order, as evenly as possible: 0, 1, 2 over 2 is (0, 1), (2)."""
    each, rest = divmod(len(devices), nodes)
    shares: list[tuple[int, ...]] = []
    start = 0
    for node in range(nodes):
        count = each + (1 if node < rest else 0)
        shares.append(tuple(devices[start : start + count]))
        start += count
    return tuple(shares)


def choose(devices: Sequence[int], used: Iterable[int], count: int) -> tuple[int, ...]:
    """Return the lowest `count` unused devices.  Raises ValueError if there are fewer, which is a bug in accounting."""
    taken = set(used)
    free = [device for device in devices if device not in taken]
    if len(free) < count:
        raise ValueError(f"{count} GPUs wanted, {len(free)} free")
    return tuple(free[:count])
