"""Benchmark of all-reduces on host memory: EDL's collective beside gloo, in the same processes and in turns.

Real processes on the loopback of one machine, 2 and 4 ranks, plain TCP for both; then EDL's alone with TLS, which gloo
lacks.  gloo is LEFT OUT where torch is not installed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.reporting.result_rows import Row, print_rows
from tests.harness.certificates import JobAuthority

PROGRAM: Final = Path(__file__).parent / "programs" / "all_reduce_rank.py"
LIMIT_S: Final = 600.0
GOAL_BYTES: Final = 4_000_000
"""From this size on EDL's is to take no longer than gloo's."""


def main() -> None:
    has_torch = importlib.util.find_spec("torch") is not None
    if not has_torch:
        print("LEFT OUT: torch is not installed (make frameworks)", flush=True)
    for ranks in (2, 4):
        for found in run(ranks, tls=False, gloo=has_torch):
            print_rows(rows(ranks, found))
    for found in run(2, tls=True, gloo=False):
        size, took_s = found["bytes"], statistics.median(found["edl"])
        print_rows([Row(name=f"all-reduce, 2 ranks, {shown(size)}, TLS", value=1e3 * took_s, unit="ms")])


def rows(ranks: int, found: dict[str, Any]) -> list[Row]:
    """The figures of one size."""
    what = f"all-reduce, {ranks} ranks, {shown(found['bytes'])}"
    load = f"load of the machine: {os.getloadavg()[0]:.1f}"
    own = [Row(name=what, value=1e3 * statistics.median(found["edl"]), unit="ms", note=load)]
    if not found["gloo"]:
        return own
    ratios = sorted(one / other for one, other in zip(found["edl"], found["gloo"], strict=True))
    spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f} in {len(ratios)} pairs of rounds; {load}"
    return [
        *own,
        Row(name=f"{what}: gloo", value=1e3 * statistics.median(found["gloo"]), unit="ms"),
        Row(
            name=f"{what}: time beside gloo's",
            value=statistics.median(ratios),
            unit="x",
            goal="<= 1" if found["bytes"] >= GOAL_BYTES else "",
            note=spread,
        ),
    ]


def run(ranks: int, *, tls: bool, gloo: bool) -> list[dict[str, Any]]:
    """What rank 0 printed."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        if tls:
            JobAuthority("bench").issue(folder / "tls")
        last = [str(folder / "tls") if tls else "-", "yes" if gloo else "no"]
        commands = [[sys.executable, str(PROGRAM), name, str(rank), str(ranks), *last] for rank in range(ranks)]
        paths = {"PYTHONPATH": str(PROGRAM.parents[3])}
        processes = [
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | paths) for command in commands
        ]
        try:
            said = [process.communicate(timeout=LIMIT_S)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
    if any(process.returncode for process in processes):
        raise RuntimeError(f"a rank of {ranks} ended with an error")
    return [json.loads(line) for line in said[0].splitlines() if line.startswith("{")]


def shown(size: int) -> str:
    return f"{size >> 10} KiB" if size < 1_000_000 else f"{size // 1_000_000} MB"


if __name__ == "__main__":
    main()
