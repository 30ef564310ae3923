"""Benchmark of a group's checkpoints: the pause of training, and its throughput while the shards are written.

A group of two real processes whose replica has 1 GB (an argument: other megabytes), of which each copies and writes a
half.  What is compared is taken in one run: steps between checkpoints, and those during one.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.groups.trainer_environment import trainer_environment
from bench.reporting.result_rows import Row, print_rows
from tests.harness.master_process import MasterProcess, running

PROGRAM: Final = Path(__file__).parent / "programs" / "checkpoint_steps.py"
MEGABYTES: Final = 1024
COPIES: Final = 4  # beside the first one, which pages its memory in
EVERY_S: Final = 20
BUDGET_S: Final = 600.0


def main() -> None:
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else MEGABYTES
    print_rows(rows(asyncio.run(measured(megabytes)), megabytes))


async def measured(megabytes: int) -> dict[str, Any]:
    """What the first rank measured."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sockets").mkdir(mode=0o700)
        every_s = max(2, EVERY_S * megabytes // MEGABYTES)
        settings = {"EDL_GROUP": "1", "EDL_CHECKPOINT_EVERY_S": str(every_s)}
        async with running(MasterProcess(folder, **settings)) as (master,):
            command = (sys.executable, str(PROGRAM), str(megabytes), str(COPIES))
            processes = [
                await asyncio.create_subprocess_exec(
                    *command,
                    stdout=subprocess.PIPE,
                    env=os.environ | trainer_environment(folder, master.address, rank) | {"OPENBLAS_NUM_THREADS": "1"},
                )
                for rank in range(2)
            ]
            assert processes[0].stdout is not None
            try:
                async with asyncio.timeout(BUDGET_S):
                    line = await processes[0].stdout.readline()
            finally:
                for process in processes:
                    if process.returncode is None:
                        process.kill()
                    await process.wait()
    return json.loads(line)


def rows(one: dict[str, Any], megabytes: int) -> list[Row]:
    by_kind = {kind: [took for took, said in one["steps"] if said == kind] for kind in ("copy", "writing", "free")}
    free_s = statistics.median(by_kind["free"])
    pauses_s = [took - free_s for took in by_kind["copy"]][1:]  # the first one pages memory in
    copied_s, memory_s = statistics.median(one["copied_s"]), statistics.median(one["memory_s"])
    mean_s = statistics.mean(by_kind["free"])
    ratio = mean_s / statistics.mean(by_kind["writing"])
    what = f"checkpoint of {megabytes / 1024:g} GB in a group of 2"
    load = f"load {os.getloadavg()[0]:.1f}"
    return [
        Row(
            name=f"{what}: pause of training, beside copying as many bytes in memory",
            value=statistics.median(pauses_s) / memory_s,
            unit="x",
            goal="<= 1.2",
            note=f"{1e3 * statistics.median(pauses_s):.0f} ms, {1e3 * min(pauses_s):.0f} to {1e3 * max(pauses_s):.0f}; "
            f"the copy itself {1e3 * copied_s:.0f} ms, as many bytes otherwise {1e3 * memory_s:.0f} ms; {load}",
        ),
        Row(
            name=f"{what}: throughput while it is written, beside the steps in between",
            value=ratio,
            unit="x",
            goal=">= 0.9",
            note=f"{len(by_kind['writing'])} steps while writing, {len(by_kind['free'])} otherwise, "
            f"of {1e3 * free_s:.0f} ms; {load}",
        ),
        Row(
            name=f"{what}: CPU time of hashing and writing a rank's half",
            value=statistics.median(one["cpu_s"]),
            unit="s",
            note="of the writing thread, seen at its last step",
        ),
    ]


if __name__ == "__main__":
    main()
