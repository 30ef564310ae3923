"""The door to NVML: one reading of all devices of this node within a deadline.

A reading never raises and never waits longer than its deadline.  It survives a driver that is not there yet, that
hangs, that is unloaded and loaded again, and a device that is lost or reset.  It does not survive an upgrade: the
library of the old driver stays in the process, so the failure says UPGRADED, and a new process has to be started.

Devices are known by UUID; a position in the driver's list only finds them, since a lost device shifts the list.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Container, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import pynvml

from autoscaler.errors import error_text
from autoscaler.gpus.driver import nvml_calls
from autoscaler.gpus.driver.deadline import CallLateError, DeadlineCaller
from autoscaler.gpus.driver.gpm_samples import GpmSamples
from autoscaler.gpus.driver.nvml_calls import DeviceLostError, DriverGoneError, ask
from autoscaler.gpus.readings import Absence, DeviceReading, DriverFailure, FailureKind, NodeReading, lost_device

DEADLINE_S: Final = 3.0
"""For a reading of the whole node, which takes milliseconds; below the least interval between two readings."""

MOST_DEVICES: Final = 1024  # of one node, MIG instances counted
_MOST_MIG: Final = 64  # of one GPU; today's have seven

_UPGRADED: Final = "the NVIDIA driver was upgraded under this process: start a new one, which loads the new library"


class NvmlDoor:
    """Reads the devices of this node.  One thread may use it."""

    def __init__(self, *, deadline_s: float = DEADLINE_S) -> None:
        self._deadline_s = deadline_s
        self._caller = DeadlineCaller()
        self._is_initialised = False
        self._known: dict[str, DeviceReading] = {}
        self._asked_until_us: dict[str, int] = {}
        self._gpm: dict[str, GpmSamples] = {}

    def read(self) -> NodeReading | DriverFailure:
        """All devices as they are now, or why nothing is known of them.

        A device that was read before and is missing now is LOST until it answers again.  After a failure the next
        reading initialises NVML again.
        """
        at_ns = time.monotonic_ns()
        try:
            devices = self._caller.call(self._read_devices, deadline_s=self._deadline_s)
        except CallLateError as error:
            message = f"the NVIDIA driver does not answer ({error}): look at dmesg for Xid errors"
            return DriverFailure(at_ns=at_ns, kind=FailureKind.SILENT, message=message)
        except DriverGoneError as error:
            if error.is_upgrade:
                return DriverFailure(at_ns=at_ns, kind=FailureKind.UPGRADED, message=_UPGRADED)
            return DriverFailure(at_ns=at_ns, kind=FailureKind.NOT_INSTALLED, message=f"the NVIDIA driver: {error}")
        except _LibraryMissingError as error:
            return DriverFailure(at_ns=at_ns, kind=FailureKind.NOT_INSTALLED, message=str(error))
        except Exception as error:  # noqa: BLE001 - a driver's answer that nobody foresaw is no reason to end
            message = f"the NVIDIA driver cannot be read: {error_text(error)}"
            return DriverFailure(at_ns=at_ns, kind=FailureKind.FAILED, message=message)
        return NodeReading(at_ns=at_ns, devices=devices)

    def _read_devices(self) -> tuple[DeviceReading, ...]:
        """In the thread that may be given up; it alone touches what this object remembers."""
        try:
            self._initialise()
            found: dict[str, DeviceReading] = {}
            answered: set[str] = set()
            for reading in self._whole_and_mig(answered):
                found[reading.uuid] = reading
                if len(found) > MOST_DEVICES:
                    raise ValueError(f"more than {MOST_DEVICES} devices")
            self._forget_devices(answered - found.keys(), answered, found)
        except DriverGoneError:
            self._forget_library()
            raise
        self._known |= found
        return tuple(found.get(uuid) or lost_device(before) for uuid, before in self._known.items())

    def _forget_devices(
        self, divided: Container[str], answered: Collection[str], found: Mapping[str, DeviceReading]
    ) -> None:
        """Drop what is no device any more: instances that were destroyed, and a GPU that is divided now."""
        for uuid, before in list(self._known.items()):
            if uuid not in found and (uuid in divided or before.parent_uuid in answered):
                del self._known[uuid]
                self._asked_until_us.pop(uuid, None)
                self._gpm.pop(uuid, GpmSamples()).close()

    def _initialise(self) -> None:
        if self._is_initialised:
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
                raise _LibraryMissingError(
                    "libnvidia-ml.so.1 is missing: is the NVIDIA driver installed here?"
                ) from None
            raise DriverGoneError(error) from error
        except pynvml.NVMLLibraryMismatchError as error:
            raise DriverGoneError(error) from error
        self._is_initialised = True

    def _forget_library(self) -> None:
        """Forget what belongs to a library that is to be initialised again: handles, samples, instants."""
        if self._is_initialised:
            with suppress(pynvml.NVMLError, pynvml.NVMLLibraryMismatchError):
                pynvml.nvmlShutdown()
        self._is_initialised = False
        self._gpm.clear()
        self._asked_until_us.clear()

    def _whole_and_mig(self, answered: set[str]) -> Iterator[DeviceReading]:
        """Readings of all devices; `answered` gets the UUIDs of the GPUs that were read to their end."""
        count = ask(pynvml.nvmlDeviceGetCount)
        if isinstance(count, Absence):
            raise TypeError(f"the number of devices: {count}")  # nothing is known, as with any unforeseen answer
        for position in range(min(count, MOST_DEVICES)):
            try:
                whole = ask(pynvml.nvmlDeviceGetHandleByIndex, position)
                if not isinstance(whole, Absence):
                    yield from self._read_gpu(whole, answered)
            except DeviceLostError:
                continue  # if it was known, it is now told as lost

    def _read_gpu(self, whole: Any, answered: set[str]) -> Iterator[DeviceReading]:
        """The GPU itself, or its MIG instances while it is divided, of which there may be none."""
        uuid = ask(pynvml.nvmlDeviceGetUUID, whole)
        if isinstance(uuid, Absence):
            return
        mode = ask(pynvml.nvmlDeviceGetMigMode, whole)
        if isinstance(mode, Absence) or not mode[0]:
            yield self._read_device(whole, whole, uuid, parent_uuid=None, gpu_instance=None)
            answered.add(uuid)
            return
        most = ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, whole)
        for position in range(min(_MOST_MIG, 0 if isinstance(most, Absence) else most)):
            instance = ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, whole, position)
            if isinstance(instance, Absence):
                continue  # no instance has this number
            mig_uuid = ask(pynvml.nvmlDeviceGetUUID, instance)
            number = ask(pynvml.nvmlDeviceGetGpuInstanceId, instance)
            if not isinstance(mig_uuid, Absence) and not isinstance(number, Absence):
                yield self._read_device(instance, whole, mig_uuid, parent_uuid=uuid, gpu_instance=number)
        answered.add(uuid)

    def _read_device(
        self, device: Any, whole: Any, uuid: str, *, parent_uuid: str | None, gpu_instance: int | None
    ) -> DeviceReading:
        model = ask(pynvml.nvmlDeviceGetName, whole)
        minor = ask(pynvml.nvmlDeviceGetMinorNumber, whole)
        work, self._asked_until_us[uuid] = nvml_calls.process_work(device, self._asked_until_us.get(uuid, 0))
        clients = nvml_calls.mps_processes(device)
        return DeviceReading(
            uuid=uuid,
            model="" if isinstance(model, Absence) else model,
            minor=None if isinstance(minor, Absence) else minor,
            parent_uuid=parent_uuid,
            gpu_instance=gpu_instance,
            utilisation_percent=nvml_calls.utilisation_percent(device),
            work=work,
            processes=nvml_calls.processes(device),
            has_mps=not isinstance(clients, Absence) and bool(clients),
            gpm_percent=self._gpm.setdefault(uuid, GpmSamples()).read(whole, gpu_instance),
            energy_mj=nvml_calls.energy_mj(whole),
            memory_used_bytes=nvml_calls.memory_used_bytes(device),
        )


class _LibraryMissingError(Exception):
    """The driver's library is not on this machine, or not in this container."""
