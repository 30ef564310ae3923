"""The NVIDIA driver's library for tests: built with gcc, loaded by the real pynvml, told what to answer by a file.

`load` builds the library once a session and loads it into this process under the name by which pynvml looks for it;
`build` alone is for a process of its own, with LD_LIBRARY_PATH.  A `Scenario` writes the file.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("libnvidia_ml.c")
SONAME: Final = "libnvidia-ml.so.1"
VARIABLE: Final = "FAKE_NVML_SCENARIO"


def build(folder: Path, *flags: str) -> Path:
    """The library in that folder, under the name that pynvml loads."""
    library = folder / SONAME
    gcc = shutil.which("gcc") or "gcc"
    command = [gcc, "-O1", "-shared", "-fPIC", f"-Wl,-soname,{SONAME}", *flags, "-o", library, SOURCE, "-lpthread"]
    subprocess.run(command, check=True, capture_output=True)
    return library


def load(folder: Path) -> None:
    """Afterwards pynvml of this process finds it: the loader knows a library by its name once it is loaded."""
    ctypes.CDLL(str(build(folder)), mode=ctypes.RTLD_GLOBAL)


@dataclass
class Device:
    """One GPU, or an instance of one if it has a parent."""

    uuid: str
    name: str = "NVIDIA_H100_80GB_HBM3"
    minor: int = 0
    parent: str = ""
    gi: int = 0
    mig: int = 0
    util: int = 0
    watts: float = 0.0
    energy: int = 1_000_000  # millijoules; negative: `watts` over the clock
    mem: int = 0
    gpm: float | None = 0.0

    def line(self) -> str:
        values = dict(vars(self))
        if self.gpm is None:
            del values["gpm"]
        kind = "mig" if self.parent else "gpu"
        return f"{kind} " + " ".join(f"{key}={value}" for key, value in values.items() if value != "")


@dataclass
class Scenario:
    """What the driver answers; `write` makes it hold for the next call."""

    path: Path
    devices: list[Device] = field(default_factory=list)
    processes: list[tuple[str, int, int]] = field(default_factory=list)  # device, pid, percent (-1: has not worked)
    mps: list[tuple[str, int]] = field(default_factory=list)
    failures: dict[tuple[str, str], int] = field(default_factory=dict)  # (call, UUID or *): code
    driver: dict[str, int] = field(default_factory=dict)

    def write(self) -> None:
        lines = ["driver " + " ".join(f"{key}={value}" for key, value in self.driver.items()) + " "]
        lines += [device.line() for device in self.devices]
        lines += [f"proc device={uuid} pid={pid} sm={percent}" for uuid, pid, percent in self.processes]
        lines += [f"proc device={uuid} pid={pid} sm=-1 mps=1" for uuid, pid in self.mps]
        lines += [f"fail call={call} device={uuid} code={code}" for (call, uuid), code in self.failures.items()]
        descriptor, written = tempfile.mkstemp(dir=self.path.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        Path(written).replace(self.path)  # never half a file
