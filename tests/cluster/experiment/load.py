"""Load of the machine during a pass, by process: a slow pass on a busy machine is not the scheduler's fault."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import psutil

from experiments.real.recording import MachineUse
from experiments.running.code_version import describe_machine

PERIOD_S: Final = 1.0
SATURATED_PERCENT: Final = 97.0  # of all cores: none idle
LATE_S: Final = 0.5


@dataclass(slots=True, kw_only=True)
class LoadMeter:
    """Samples each second.  `programs`: those of the pass, by name, as process ids; this process is one of them."""

    programs: Mapping[str, int]
    loads: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    late_beats: int = 0
    cpu_s: dict[str, float] = field(default_factory=dict)
    others_cpu_s: float = 0.0

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        processes = {name: psutil.Process(pid) for name, pid in ({"driver": os.getpid()} | dict(self.programs)).items()}
        before = {name: used_s(process) for name, process in processes.items()}
        machine_s = busy_s()
        psutil.cpu_percent()
        next_s = loop.time() + PERIOD_S
        while True:
            await asyncio.sleep(max(0.0, next_s - loop.time()))
            self.late_beats += loop.time() - next_s > LATE_S
            next_s = max(next_s + PERIOD_S, loop.time())
            self.loads.append(os.getloadavg()[0])
            self.busy.append(psutil.cpu_percent())
            self.cpu_s = {name: used_s(process) - before[name] for name, process in processes.items()}
            self.others_cpu_s = max(0.0, busy_s() - machine_s - sum(self.cpu_s.values()))

    def read(self, late_s: float) -> MachineUse:
        """Measured load; `late_s` is the most that a step of the scenario came late."""
        beats = max(1, len(self.loads))
        return MachineUse(
            about=describe_machine(),
            cores=os.cpu_count() or 1,
            load_mean=round(sum(self.loads) / beats, 2),
            load_max=round(max(self.loads, default=0.0), 2),
            busy_percent=round(sum(self.busy) / beats, 1),
            saturated_percent=round(100 * sum(one >= SATURATED_PERCENT for one in self.busy) / beats, 1),
            cpu_s={name: round(value, 1) for name, value in self.cpu_s.items()},
            others_cpu_s=round(self.others_cpu_s, 1),
            late_s=round(late_s, 3),
            late_beats_percent=round(100 * self.late_beats / beats, 1),
        )


def used_s(process: psutil.Process) -> float:
    """CPU seconds of a process."""
    times = process.cpu_times()
    return float(times.user + times.system)


def busy_s() -> float:
    """CPU seconds of everything on the machine."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait)
