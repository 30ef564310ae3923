"""Benchmark of torch in a group: step time beside plain torch and DDP on gloo, and pauses beside torchrun's.

Real processes on one machine.  Step times: both arms in the same processes, in turns.  Pauses: members that hold 10 MB,
of which one joins, drains, is killed or stopped; and workers of torchrun, of which one is killed.  LEFT OUT where torch
is not installed.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.groups.trainer_environment import trainer_environment
from bench.reporting.result_rows import Row, load, print_rows
from tests.chaos.group.group_oracle import read_diaries
from tests.chaos.group.member_pool import MemberPool, MemberProcess, running_pool
from tests.harness.master_process import MasterProcess, running
from tests.harness.waiting import wait_for_async

PROGRAMS: Final = Path(__file__).parent / "programs"
SETTLED_S: Final = 2.0
TIMES: Final = 5  # of each change
STOPS: Final = 3
LONGEST_S: Final = 180.0  # of torchrun: a restart of its workers was seen to take 59 s, and never to end


def main() -> None:
    if importlib.util.find_spec("torch") is None:
        print("LEFT OUT: torch is not installed (make frameworks)", flush=True)
        return
    for ranks, millions in ((1, 0.1), (1, 1.0), (1, 10.0), (2, 1.0), (2, 10.0), (4, 1.0), (4, 10.0)):
        print_rows([asyncio.run(step_times(ranks, millions))])
    print_rows([asyncio.run(step_times(1, 1.0, data="records"))])
    print_rows(asyncio.run(pauses()))
    print_rows([torchrun_pause()])


# ---- step times -----------------------------------------------------------------------------------------------------


async def step_times(ranks: int, millions: float, *, data: str = "tensors") -> Row:
    """`data`: a TensorDataset, of which EDL selects a batch at once, or "records", read one by one in both arms."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sockets").mkdir(mode=0o700)
        settings = {"EDL_GROUP": "1", "EDL_CHECKPOINT_EVERY_S": "600"}
        async with running(MasterProcess(folder, **settings)) as (master,):
            program = (sys.executable, str(PROGRAMS / "torch_steps.py"), name)
            processes = [
                await asyncio.create_subprocess_exec(
                    *(*program, str(rank), str(ranks), str(millions), data),
                    stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                    env=os.environ | trainer_environment(folder, master.address, rank),
                )
                for rank in range(ranks)
            ]
            try:
                assert processes[0].stdout is not None
                line = await processes[0].stdout.readline()
            finally:
                for process in processes:
                    process.kill()
                    await process.wait()
    times = json.loads(line)
    ratios = sorted(own / plain for own, plain in zip(times["edl"], times["plain"], strict=True))
    own_ms, plain_ms = (1e3 * statistics.median(times[arm]) for arm in ("edl", "plain"))
    rival = "plain torch" if ranks == 1 else "DDP on gloo"
    records = ", records one by one" if data == "records" else ""
    spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f} in {len(ratios)} pairs of rounds"
    return Row(
        name=f"torch step, {ranks} rank{'s' * (ranks > 1)}, {millions:g} M parameters{records}: time beside {rival}",
        value=statistics.median(ratios),
        unit="x",
        goal="<= 1.02" if ranks == 1 else "<= 1.03",
        note=f"{own_ms:.2f} and {plain_ms:.2f} ms; {spread}; {load()}",
    )


# ---- pauses ---------------------------------------------------------------------------------------------------------


async def pauses() -> list[Row]:
    """Of the members that stay: from their last step before a change to the first one after it."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("sockets", "checkpoints", "diaries", "logs"):
            (folder / part).mkdir(mode=0o700)
        (folder / "slow").touch()
        (folder / "undigested").touch()  # what is timed is the group, not a digest of 10 MB in each of four members
        (folder / "floats").write_text("2500000")
        (folder / "epochs").write_text("100000")  # more than anybody waits for
        settings = {"EDL_JOB": "pauses", "EDL_GROUP": "1", "EDL_CHECKPOINT_EVERY_S": "600"}
        async with (
            running(MasterProcess(folder, **settings)) as (master,),
            running_pool(folder, master.address, "pauses") as pool,
        ):
            for _ in range(3):
                await pool.add()
            await wait_for_async("steps", lambda: any(file.stat().st_size for file in (folder / "diaries").iterdir()))
            await asyncio.sleep(2 * SETTLED_S)
            found: dict[str, list[float]] = {"join": [], "drain": [], "SIGKILL": [], "SIGSTOP": []}
            for _ in range(TIMES):
                found["join"].append(await _pause(folder, await pool.add()))
                found["drain"].append(await _signalled(folder, pool, signal.SIGTERM))
                found["SIGKILL"].append(await _signalled(folder, pool, signal.SIGKILL))
                await pool.add()
                await asyncio.sleep(SETTLED_S)
            for _ in range(STOPS):
                found["SIGSTOP"].append(await _signalled(folder, pool, signal.SIGSTOP))
                await pool.add()
                await asyncio.sleep(SETTLED_S)
            lines = read_diaries(folder / "diaries").lines
    own = [one for one in lines if one[4] == lines[-1][4]]
    step_s = statistics.median(after[0] - before[0] for before, after in pairwise(own))
    planned_s, killed_s = 0.05 + step_s, 0.2 + step_s
    found_s = max(2.0, 10 * step_s)  # who stands still is held for lost after so long
    goals_s = {"join": planned_s, "drain": planned_s, "SIGKILL": killed_s, "SIGSTOP": found_s + killed_s}
    return [
        Row(
            name=f"group of 3 or 4 with 10 MB: pause of those that stay, {change}",
            value=1e3 * statistics.median(times),
            unit="ms",
            goal=f"<= {1e3 * goals_s[change]:.0f}",
            note=f"{1e3 * min(times):.0f} to {1e3 * max(times):.0f}, {len(times)} times; a step {1e3 * step_s:.0f}; "
            f"{load()}",
        )
        for change, times in found.items()
    ]


async def _signalled(folder: Path, pool: MemberPool, number: signal.Signals) -> float:
    victim = pool.present[0]
    victim.was_killed = number is not signal.SIGTERM
    victim.is_leaving = number is signal.SIGTERM
    victim.signal(number)
    return await _pause(folder, victim)


async def _pause(folder: Path, of: MemberProcess) -> float:
    """The pause of the next change of generation among the others."""
    before = {line[1] for line in read_diaries(folder / "diaries").lines}
    newest = max(before)

    def changed() -> list[float]:
        lines = [line for line in read_diaries(folder / "diaries").lines if line[4] != of.ordinal]
        old = {line[4]: line[0] for line in lines if line[1] <= newest}
        new: dict[int, float] = {}
        for time_s, generation, _, _, ordinal in lines:
            if generation > newest and ordinal in old:
                new.setdefault(ordinal, time_s)
        return [new[ordinal] - old[ordinal] for ordinal in new]

    await asyncio.sleep(SETTLED_S)  # a look at the diaries takes the time of those that write them
    return max(await wait_for_async("the next generation", changed, budget_s=60.0))


# ---- torchrun -------------------------------------------------------------------------------------------------------


def torchrun_pause() -> Row:
    """From the last step before SIGKILL of one of three workers to the next step of anybody."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", "3"]
        command += ["--max-restarts", "2", str(PROGRAMS / "torchrun_worker.py"), name]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"})
        try:
            if not _until(lambda: len(_steps(folder)) > 60):
                raise TimeoutError("torchrun's workers make no steps")
            pid = int(next(iter(folder.glob("*.steps"))).name.split(".")[0])
            os.kill(pid, signal.SIGKILL)
            killed_s = time.time()
            goes_on = _until(lambda: any(at > killed_s + 0.5 for at in _steps(folder)))
            steps = sorted(_steps(folder))
        finally:
            process.terminate()
            process.wait(60)
    pause_s = max(after - before for before, after in pairwise(steps)) if goes_on else LONGEST_S
    then = "all workers start again, from the last checkpoint" if goes_on else "at least: nobody made a step after it"
    return Row(
        name="torchrun, 3 workers: pause after SIGKILL of one",
        value=1e3 * pause_s,
        unit="ms",
        note=f"{then}; once; {load()}",
    )


def _steps(folder: Path) -> list[float]:
    return [float(line) for file in folder.glob("*.steps") for line in file.read_text().split("\n")[:-1]]


def _until(condition: Callable[[], bool]) -> bool:
    """Whether it held within `LONGEST_S`."""
    deadline_s = time.monotonic() + LONGEST_S
    while not (holds := condition()) and time.monotonic() < deadline_s:
        time.sleep(0.2)
    return holds


if __name__ == "__main__":
    main()
