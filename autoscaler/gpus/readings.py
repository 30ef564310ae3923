"""Readings: what the NVIDIA driver says of a node's devices at one instant.

What a driver does not say is a value as well: an `Absence` that gives the reason, since "this kind of GPU cannot" and
"the call failed" lead to different verdicts.  Figures are checked where they are read (`driver`), so that nothing
here is negative, NaN, or above what a device can do.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Absence(StrEnum):
    """Reason of a missing figure.  Only `NOT_SUPPORTED` is a property of the device; each other one may hide work."""

    NOT_SUPPORTED = "not supported"
    NOT_YET = "not yet: it needs two readings"
    NO_PERMISSION = "no permission"
    FAILED = "the call failed"
    ABSURD = "the figure is impossible"
    LOST = "the device is lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProcess:
    """A process with a context on the device."""

    pid: int  # of the host, where the agent shares its PID namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessWork:
    """A process that has computed since the reading before."""

    pid: int
    percent: int  # of the device's time, the largest of the driver's samples


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReading:
    """One device, a whole GPU or a MIG instance, by its UUID.

    `gpm_percent` is the largest of the device's GPM utilisations since the reading before; `energy_mj` counts the
    whole GPU since the driver was loaded, also for a MIG instance.
    """

    uuid: str
    model: str
    minor: int | None = None  # N of /dev/nvidiaN, of the whole GPU
    parent_uuid: str | None = None  # the whole GPU, for a MIG instance
    gpu_instance: int | None = None  # for a MIG instance
    utilisation_percent: int | Absence = Absence.FAILED  # over the last second or less
    is_utilisation_brief: bool = False  # that second is a small part of the interval, of which nothing else tells
    work: tuple[ProcessWork, ...] | Absence = Absence.FAILED
    processes: tuple[DeviceProcess, ...] | Absence = Absence.FAILED
    has_mps: bool = False
    gpm_percent: float | Absence = Absence.FAILED
    energy_mj: int | Absence = Absence.FAILED
    memory_used_bytes: int | Absence = Absence.FAILED  # without what the driver keeps for itself


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReading:
    """All devices of the node, each once, in the driver's order; a device that was there before is never left out."""

    at_ns: int  # monotonic clock, when the driver was asked
    devices: tuple[DeviceReading, ...]


class FailureKind(StrEnum):
    NOT_INSTALLED = "not installed"
    SILENT = "silent"
    UPGRADED = "upgraded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFailure:
    """The driver told nothing of any device.  `message` says what is wrong and what to do."""

    at_ns: int
    kind: FailureKind
    message: str


def lost_device(before: DeviceReading) -> DeviceReading:
    """The reading of a device that was there before and does not answer now."""
    return DeviceReading(
        uuid=before.uuid,
        model=before.model,
        minor=before.minor,
        parent_uuid=before.parent_uuid,
        gpu_instance=before.gpu_instance,
        utilisation_percent=Absence.LOST,
        work=Absence.LOST,
        processes=Absence.LOST,
        gpm_percent=Absence.LOST,
        energy_mj=Absence.LOST,
        memory_used_bytes=Absence.LOST,
    )
