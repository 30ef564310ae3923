"""Signals of one device: what each of four sources says about work between two readings.

No source is believed alone, since each was seen to be wrong:

| source | made of | wrong when |
|---|---|---|
| counters | utilisation, of the device and of processes | a hung collective, a latched card or a memory scrub: 100 % |
| GPM | Hopper and later | profiling counters were seen at 0 on whole busy nodes |
| power | energy over the interval | a context alone costs up to 66 W; a MIG instance shares its GPU's figure |
| processes | contexts on the device | an agent that may not see processes sees none |

Memory is no signal of work, because frameworks allocate it all at the start; memory without a process shows that the
list of processes is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from autoscaler.gpus.readings import Absence, DeviceReading

WORKING_PERCENT: Final = 1
"""The driver's resolution.  A context without work reads 0, so any figure above is work."""

LEAST_WATTS: Final = 1.0
"""Below it the energy counter stands still: no GPU that answers draws so little."""

MOST_WATTS: Final = 5000.0  # several times the largest GPU's limit

UNSEEN_MEMORY_BYTES: Final = 256 << 20
"""Memory in use without any process; a single context takes more."""


class Source(StrEnum):
    COUNTERS = "counters"
    GPM = "gpm"
    POWER = "power"
    PROCESSES = "processes"


class SignalState(StrEnum):
    """`SILENT` is a figure from which nothing follows, `MISSING` one that may hide work."""

    WORKING = "working"
    LOW = "low"
    SILENT = "silent"
    UNSUPPORTED = "unsupported"
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """Signal of one source; `text` is the evidence, for people."""

    source: Source
    state: SignalState
    text: str
    covers_interval: bool = False  # also tells work that began and ended between the readings


def read_signals(
    before: DeviceReading | None, after: DeviceReading, *, interval_s: float, idle_watts: float | None
) -> tuple[Signal, ...]:
    """One signal of each source.  `interval_s` lies between the readings; a first reading has no interval."""
    return (
        _counters(after),
        _gpm(after),
        _power(before, after, interval_s=interval_s, idle_watts=idle_watts),
        _processes(after),
    )


def mean_watts(before: DeviceReading | None, after: DeviceReading, interval_s: float) -> float | Absence:
    """Mean power of the whole GPU between the readings."""
    if isinstance(after.energy_mj, Absence):
        return after.energy_mj
    if before is None or isinstance(before.energy_mj, Absence) or interval_s <= 0:
        return Absence.NOT_YET
    watts = (after.energy_mj - before.energy_mj) / 1000 / interval_s
    return watts if LEAST_WATTS <= watts <= MOST_WATTS else Absence.ABSURD


def _counters(after: DeviceReading) -> Signal:
    device, work = after.utilisation_percent, after.work
    told = [] if isinstance(device, Absence) else [device]
    told += [] if isinstance(work, Absence) else [one.percent for one in work]
    absences = [one for one in (device, work) if isinstance(one, Absence)]
    highest = max(told, default=0)
    if highest >= WORKING_PERCENT:
        state = SignalState.WORKING
    elif any(one is not Absence.NOT_SUPPORTED for one in absences):
        return _absent(Source.COUNTERS, next(one for one in absences if one is not Absence.NOT_SUPPORTED))
    elif len(absences) == 2:
        return _absent(Source.COUNTERS, Absence.NOT_SUPPORTED)
    else:
        state = SignalState.SILENT if after.is_utilisation_brief else SignalState.LOW
    return Signal(
        source=Source.COUNTERS,
        state=state,
        text=f"{highest} %",
        covers_interval=not isinstance(work, Absence),
    )


def _gpm(after: DeviceReading) -> Signal:
    percent = after.gpm_percent
    if isinstance(percent, Absence):
        return _absent(Source.GPM, percent)
    state = SignalState.WORKING if percent >= WORKING_PERCENT else SignalState.LOW
    return Signal(source=Source.GPM, state=state, text=f"{percent:.1f} %", covers_interval=True)


def _power(
    before: DeviceReading | None, after: DeviceReading, *, interval_s: float, idle_watts: float | None
) -> Signal:
    watts = mean_watts(before, after, interval_s)
    if isinstance(watts, Absence):
        return _absent(Source.POWER, watts)
    if idle_watts is None:
        text = f"{watts:.0f} W, idle power of this model unknown"
        return Signal(source=Source.POWER, state=SignalState.UNSUPPORTED, text=text)
    text = f"{watts:.0f} W, at most {idle_watts:.0f} W when idle"
    if watts <= idle_watts:
        return Signal(source=Source.POWER, state=SignalState.LOW, text=text, covers_interval=True)
    if after.parent_uuid is not None:
        return Signal(source=Source.POWER, state=SignalState.SILENT, text=f"{text}, of the whole GPU")
    return Signal(source=Source.POWER, state=SignalState.WORKING, text=text, covers_interval=True)


def _processes(after: DeviceReading) -> Signal:
    if isinstance(after.processes, Absence):
        return _absent(Source.PROCESSES, after.processes)
    if after.processes or after.has_mps:
        text = "1 process" if len(after.processes) == 1 else f"{len(after.processes)} processes"
        return Signal(source=Source.PROCESSES, state=SignalState.SILENT, text=text + (", MPS" if after.has_mps else ""))
    memory = after.memory_used_bytes
    if isinstance(memory, Absence):
        if memory is Absence.NOT_SUPPORTED:
            return Signal(source=Source.PROCESSES, state=SignalState.SILENT, text="none, and memory cannot confirm it")
        return _absent(Source.PROCESSES, memory)
    if memory > UNSEEN_MEMORY_BYTES:
        text = f"none, but {memory / 2**30:.1f} GiB are in use"
        return Signal(source=Source.PROCESSES, state=SignalState.MISSING, text=text)
    return Signal(source=Source.PROCESSES, state=SignalState.LOW, text="none")


def _absent(source: Source, absence: Absence) -> Signal:
    state = SignalState.UNSUPPORTED if absence is Absence.NOT_SUPPORTED else SignalState.MISSING
    return Signal(source=source, state=state, text=absence.value)
