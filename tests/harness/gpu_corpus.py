"""What a GPU may be doing, and how its signals lie about it: cases for verdicts, through the fake driver library.

A case is what is true, what the driver says, and the verdict after a window of such samples.  The nine lies are those
that were reported of real fleets; each is told by every kind of GPU that can tell it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from autoscaler.domain.gpu_reports import GpuVerdict
from tests.harness.fake_nvml import Device, Scenario
from tests.harness.gpu_kinds import KINDS, GpuKind

NODE: Final = 4  # GPUs
BUSY_PID: Final = 100


@dataclass(frozen=True)
class Case:
    name: str
    computes: bool  # in truth, in every interval
    is_held: bool  # in truth: a process has it
    tell: Callable[[Scenario, GpuKind, int], float]  # writes what sample N says; returns watts
    verdict: Callable[[GpuKind], GpuVerdict]


def device_uuid(kind: GpuKind, number: int) -> str:
    return f"MIG-{number}" if kind.is_mig else f"GPU-{number}"


def node(scenario: Scenario, kind: GpuKind, **of_device: float) -> None:
    """Four GPUs of the kind, each with one instance if it is divided."""
    scenario.devices.clear()
    scenario.processes.clear()
    scenario.failures.clear()
    gpm = None if "nvmlGpmQueryDeviceSupport" in kind.refused else of_device.pop("gpm", 0.0)
    of_device.pop("gpm", None)
    for number in range(NODE):
        whole = Device(f"GPU-{number}", name=kind.name, minor=number, mig=int(kind.is_mig), gpm=gpm)
        scenario.devices.append(whole)
        one = whole
        if kind.is_mig:
            one = Device(f"MIG-{number}", parent=whole.uuid, gi=1, gpm=gpm)
            scenario.devices.append(one)
        for key, value in of_device.items():
            setattr(one, key, value)
        for call, code in kind.refused.items():
            scenario.failures[call, one.uuid if "Gpm" not in call and "Mig" not in call else whole.uuid] = code


def processes(scenario: Scenario, kind: GpuKind, percent: int = -1) -> None:
    for number in range(NODE):
        scenario.processes.append((device_uuid(kind, number), BUSY_PID + number, percent))


def works(scenario: Scenario, kind: GpuKind, _sample: int) -> float:
    node(scenario, kind, util=70, gpm=60.0, mem=40 << 30)
    processes(scenario, kind, 65)
    return kind.busy_watts


def waits(scenario: Scenario, kind: GpuKind, _sample: int) -> float:
    node(scenario, kind, mem=1 << 30)
    processes(scenario, kind)
    return kind.context_watts


def empty(scenario: Scenario, kind: GpuKind, _sample: int) -> float:
    node(scenario, kind)
    return kind.bare_watts


def hung(scenario: Scenario, kind: GpuKind, _sample: int) -> float:
    """A collective that spins: counters at 100 %, GPM too, power of a context."""
    node(scenario, kind, util=100, gpm=100.0, mem=40 << 30)
    processes(scenario, kind, 100)
    return kind.context_watts


def latched(scenario: Scenario, kind: GpuKind, _sample: int) -> float:
    """100 % for days with no process, after a kill in mid-kernel."""
    node(scenario, kind, util=100, gpm=0.0)
    return kind.context_watts


def scrubs(scenario: Scenario, kind: GpuKind, _sample: int) -> float:
    """The driver scrubs memory at its start."""
    node(scenario, kind, util=100)
    return kind.bare_watts


def broken_profiling(scenario: Scenario, kind: GpuKind, _sample: int) -> float:
    """Every counter of the node at 0 after weeks, while it works."""
    node(scenario, kind, util=0, gpm=0.0, mem=40 << 30)
    processes(scenario, kind)
    return kind.busy_watts


def profiled(scenario: Scenario, kind: GpuKind, _sample: int) -> float:
    """Somebody else profiles: GPM fails, and the driver's counters with it on kinds without GPM."""
    node(scenario, kind, mem=40 << 30)
    processes(scenario, kind)
    for device in scenario.devices:
        scenario.failures["nvmlGpmSampleGet", device.uuid] = 19
        scenario.failures["nvmlGpmMigSampleGet", device.uuid] = 19
        if "nvmlGpmQueryDeviceSupport" in kind.refused and not kind.is_mig:
            scenario.failures["nvmlDeviceGetProcessUtilization", device.uuid] = 19
    return kind.context_watts


def zombie(scenario: Scenario, kind: GpuKind, _sample: int) -> float:
    """Memory in use and no process that is seen."""
    node(scenario, kind, mem=60 << 30)
    return kind.context_watts


def light_inference(scenario: Scenario, kind: GpuKind, _sample: int) -> float:
    """A server that computes now and then: its processor is idle, its power hardly above a context's."""
    node(scenario, kind, util=0, gpm=3.0, mem=40 << 30)
    processes(scenario, kind, 2)
    return kind.context_watts


def checkpoints(scenario: Scenario, kind: GpuKind, sample: int) -> float:
    """Work, then minutes of writing: shorter than the window."""
    return works(scenario, kind, sample) if sample % 5 == 2 else waits(scenario, kind, sample)


def _always(verdict: GpuVerdict) -> Callable[[GpuKind], GpuVerdict]:
    return lambda _kind: verdict


def _latched(kind: GpuKind) -> GpuVerdict:
    """The counter that latches is none of an instance's."""
    return GpuVerdict.FREE if kind.is_mig else GpuVerdict.ACTIVE


def _held(kind: GpuKind) -> GpuVerdict:
    """An instance without GPM has its GPU's power alone."""
    return GpuVerdict.UNKNOWN if kind.is_mig and "nvmlGpmQueryDeviceSupport" in kind.refused else GpuVerdict.HELD


def _untold(kind: GpuKind) -> GpuVerdict:
    """What no source of an instance without GPM can tell: power that may be a neighbour's counts for nothing."""
    return GpuVerdict.UNKNOWN if _held(kind) is GpuVerdict.UNKNOWN else GpuVerdict.ACTIVE


ACTIVE: Final = _always(GpuVerdict.ACTIVE)

TRUTHS: Final = (
    Case("works", True, True, works, _untold),
    Case("waits with a context", False, True, waits, _held),
    Case("empty", False, False, empty, _always(GpuVerdict.FREE)),
)
LIES: Final = (
    Case("hung collective at 100 %", False, True, hung, _untold),
    Case("latched at 100 % without a process", False, False, latched, _latched),
    Case("scrubbing at 100 %", False, False, scrubs, _latched),
    Case("profiling counters at 0", True, True, broken_profiling, _untold),
    Case("profiling taken by somebody else", True, True, profiled, _untold),
    Case("memory without work", False, True, zombie, ACTIVE),
    Case("power of a context alone", False, True, waits, _held),
    Case("an idle processor", True, True, light_inference, _untold),
    Case("a checkpoint within the window", True, True, checkpoints, _untold),
)


def cases() -> Iterator[tuple[str, GpuKind, Case]]:
    for name, kind in KINDS.items():
        for case in (*TRUTHS, *LIES):
            yield name, kind, case
