"""One call of NVML each: every answer that a driver may give becomes a value, or one of two errors.

| answer | becomes |
|---|---|
| a possible figure | the figure |
| an impossible one (NaN, negative, 4,294,967,295 percent) | `Absence.ABSURD` |
| not supported; a symbol or a version that this driver lacks | `Absence.NOT_SUPPORTED` |
| no permission | `Absence.NO_PERMISSION` |
| device lost, or to be reset | DeviceLostError |
| driver unloaded, upgraded, not initialised | DriverGoneError |
| anything else | `Absence.FAILED` |

Two traps of nvidia-ml-py are met here.  NVMLLibraryMismatchError, for a symbol that the driver lacks, is no NVMLError.
And nvmlDeviceGetProcessUtilization raises NVMLError(0) where the driver answers "success" with no samples, and
NVMLError_NotFound where nobody has worked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import pynvml

from autoscaler.gpus.readings import Absence, DeviceProcess, ProcessWork

T = TypeVar("T")

MOST_PROCESSES: Final = 4096  # of one device; more is no driver's answer

_SUCCESS: Final = 0
_UNSUPPORTED: Final = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
    }
)
_LOST: Final = frozenset(
    {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED, pynvml.NVML_ERROR_GPU_NOT_FOUND}
)
_GONE: Final = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
_MEMORY_V2: Final = pynvml.nvmlMemory_v2
_LARGEST_MEMORY_BYTES: Final = 1 << 44  # 16 TiB: the largest device has 0.3
_LARGEST_PID: Final = 1 << 22  # PID_MAX_LIMIT of Linux


class DeviceLostError(Exception):
    """This device does not answer any more; others may."""


class DriverGoneError(Exception):
    """No device answers: the driver was unloaded or upgraded, or NVML is to be initialised again."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.is_upgrade = getattr(error, "value", None) == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH


def ask(call: Callable[..., T], *arguments: Any) -> T | Absence:
    """Answer of the call, or why there is none.  Raises DeviceLostError and DriverGoneError."""
    try:
        return call(*arguments)
    except pynvml.NVMLLibraryMismatchError:
        return Absence.NOT_SUPPORTED
    except pynvml.NVMLError as error:
        return _absence(error)
    except ValueError:  # a name that is no UTF-8
        return Absence.ABSURD


def _absence(error: pynvml.NVMLError) -> Absence:
    code = error.value
    if code in _GONE:
        raise DriverGoneError(error) from error
    if code in _LOST:
        raise DeviceLostError(str(error)) from error
    if code in _UNSUPPORTED:
        return Absence.NOT_SUPPORTED
    return Absence.NO_PERMISSION if code == pynvml.NVML_ERROR_NO_PERMISSION else Absence.FAILED


def utilisation_percent(device: Any) -> int | Absence:
    """Share of the last second or less in which a kernel ran."""
    rates = ask(pynvml.nvmlDeviceGetUtilizationRates, device)
    return rates if isinstance(rates, Absence) else possible_percent(rates.gpu)


def possible_percent(figure: Any) -> int | Absence:
    """The figure, if it is a whole percentage."""
    return int(figure) if 0 <= figure <= 100 else Absence.ABSURD


def energy_mj(device: Any) -> int | Absence:
    """Energy of the whole GPU since its driver was loaded, in millijoules."""
    return ask(pynvml.nvmlDeviceGetTotalEnergyConsumption, device)


def memory_used_bytes(device: Any) -> int | Absence:
    """Memory that processes hold; version 2 of the call leaves out what the driver keeps for itself."""
    memory = ask(pynvml.nvmlDeviceGetMemoryInfo, device, _MEMORY_V2)
    if isinstance(memory, Absence):
        return memory
    return int(memory.used) if memory.used <= min(memory.total, _LARGEST_MEMORY_BYTES) else Absence.ABSURD


def processes(device: Any) -> tuple[DeviceProcess, ...] | Absence:
    """Processes with a context for computing."""
    return _pids(ask(pynvml.nvmlDeviceGetComputeRunningProcesses_v3, device))


def mps_processes(device: Any) -> tuple[DeviceProcess, ...] | Absence:
    """Clients of an MPS server; their work may be told as the server's."""
    return _pids(ask(pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3, device))


def _pids(found: Any) -> tuple[DeviceProcess, ...] | Absence:
    if isinstance(found, Absence):
        return found
    if len(found) > MOST_PROCESSES or not all(0 < one.pid <= _LARGEST_PID for one in found):
        return Absence.ABSURD
    return tuple(DeviceProcess(pid=one.pid) for one in found)


def process_work(device: Any, since_us: int) -> tuple[tuple[ProcessWork, ...] | Absence, int]:
    """Who has computed since that instant of the driver's clock, in microseconds; and the instant to ask from next."""
    try:
        samples = pynvml.nvmlDeviceGetProcessUtilization(device, since_us)
    except pynvml.NVMLError as error:
        if error.value in {_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND}:
            return (), since_us
        return _absence(error), since_us
    if len(samples) > MOST_PROCESSES:
        return Absence.ABSURD, since_us
    newest_us = max((int(one.timeStamp) for one in samples), default=since_us)
    busiest: dict[int, int] = {}
    for one in samples:
        if one.pid == 0 and one.smUtil == 0:
            continue  # an unused place of the driver's buffer
        if not (
            0 < one.pid <= _LARGEST_PID and all(0 <= each <= 100 for each in (one.smUtil, one.encUtil, one.decUtil))
        ):
            return Absence.ABSURD, newest_us
        busiest[one.pid] = max(busiest.get(one.pid, 0), one.smUtil, one.encUtil, one.decUtil)
    return tuple(ProcessWork(pid=pid, percent=percent) for pid, percent in sorted(busiest.items())), newest_us
