"""Benchmark of the data: records that a job lost or repeated when it was resized in the middle of an epoch.

One job, 1,437 digits in three epochs, by three systems in one run: EDL, torchrun and torchft.  Each script counts in
its replica how often each record was trained in each epoch (`bench/groups/programs/digits_*.py`); what is not 1 at the
end was lost or repeated.  Starts of processes of EDL and torchft are left out: who joins waits until it is let in.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self

import numpy as np

from bench.groups.trainer_environment import trainer_environment
from bench.reporting.result_rows import Row, load, print_rows
from tests.harness.master_process import MasterProcess, free_port, running
from tests.harness.waiting import wait_for_async

PROGRAMS: Final = Path(__file__).parent / "programs"
ROOT: Final = Path(__file__).parents[2]
LIMIT_S: Final = 240.0


def main() -> None:
    if importlib.util.find_spec("torch") is None:
        print("LEFT OUT: torch is not installed (make frameworks)", flush=True)
        return
    for run in (edl, torchrun, torchft):
        with TemporaryDirectory() as name:
            print_rows(asyncio.run(run(Path(name))))


# ---- the three systems ----------------------------------------------------------------------------------------------


async def edl(folder: Path) -> list[Row]:
    """Two trainers and a third: it joins in epoch 0, one is killed in epoch 1, one is drained in epoch 2."""
    (folder / "sockets").mkdir(mode=0o700)
    async with running(MasterProcess(folder, EDL_GROUP="1", EDL_CHECKPOINT_EVERY_S="600")) as (master,):
        with Processes(folder) as processes:
            for ordinal in range(3):
                arguments = [str(folder), "begin" if ordinal < 2 else "joins"]
                processes.start(
                    f"trainer-{ordinal}",
                    [sys.executable, str(PROGRAMS / "digits_edl.py"), *arguments],
                    trainer_environment(folder, master.address, ordinal),
                )
            await begin(folder, processes, ready=3)
            await until(folder, processes, epoch=0, step=8)
            (folder / "joins").touch()
            await until(folder, processes, epoch=1, step=11)
            processes.signal("trainer-1", signal.SIGKILL)
            await until(folder, processes, epoch=2, step=11)
            processes.signal("trainer-2", signal.SIGTERM)
            await result(folder, processes)
    return rows("EDL", folder, "one joins in epoch 0, SIGKILL of one in epoch 1, one drains in epoch 2", goal="<= 0")


async def torchrun(folder: Path) -> list[Row]:
    """Two agents with a worker each, and a third agent in the middle of epoch 1.

    The two settings are those without which adding an agent ended the job (docs/what-others-do.md).
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2:3", "--nproc-per-node", "1"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "digits"]
    command += ["--rdzv-conf", "last_call_timeout=1", "--max-restarts", "3"]
    command += [str(PROGRAMS / "digits_torchrun.py"), str(folder)]
    settings = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    with Processes(folder) as processes:
        for agent in range(2):
            processes.start(f"agent-{agent}", command, settings)
        await until(folder, processes, epoch=1, step=16)
        processes.start("agent-2", command, settings)
        await result(folder, processes)
    return rows("torchrun", folder, "DistributedSampler, resumed by skipping steps; an agent comes in epoch 1")


async def torchft(folder: Path) -> list[Row]:
    """Three replica groups of a process each; one is killed in the middle of epoch 1, and its successor waits."""
    from bench.groups.torchft_environment import VERSION, TorchftError, torchft_python  # noqa: PLC0415  it imports torch

    try:
        python = torchft_python()
    except TorchftError as error:
        print(f"LEFT OUT: torchft {VERSION} does not run here: {error}", flush=True)
        return []
    port = free_port()
    lighthouse = f"http://127.0.0.1:{port}"
    server = [str(Path(python).with_name("torchft_lighthouse")), "--bind", f"127.0.0.1:{port}", "--min_replicas", "2"]
    with Processes(folder) as processes:
        processes.start("lighthouse", [*server, "--join_timeout_ms", "3000"], {})
        program = [python, str(PROGRAMS / "digits_torchft.py"), str(folder)]
        for number in range(3):
            processes.start(f"group-{number}", [*program, str(number), lighthouse, "begin"], {})
        processes.start("group-2-again", [*program, "2", lighthouse, "again"], {})
        await begin(folder, processes, ready=4)
        await until(folder, processes, epoch=1, step=7)
        processes.signal("group-2", signal.SIGKILL)
        await until(folder, processes, epoch=1, step=12)
        (folder / "again").touch()
        await result(folder, processes)
    return rows(
        f"torchft {VERSION}",
        folder,
        "its sampler; SIGKILL of one replica group in epoch 1, which comes back five steps later",
    )


# ---- processes ------------------------------------------------------------------------------------------------------


class Processes:
    """Named processes with a log each, ended with the context."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        variables = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | environment
        with (self._folder / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(command, stdout=log, stderr=log, env=variables)

    def signal(self, name: str, number: signal.Signals) -> None:
        self._running[name].send_signal(number)

    def failed(self) -> str:
        """The last line of a process that ended with an error of its own."""
        for name, process in self._running.items():
            if (process.poll() or 0) > 0:
                lines = (self._folder / f"{name}.log").read_text(errors="replace").strip().splitlines()
                return f"{name} ended with {process.returncode}: {(lines or [''])[-1]}"
        return ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(20.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


async def begin(folder: Path, processes: Processes, *, ready: int) -> None:
    """Those that wait for it begin, once so many have imported all that they need."""
    await _unless_failed(processes, lambda: len(list(folder.glob("ready-*"))) == ready)
    (folder / "begin").touch()


async def until(folder: Path, processes: Processes, *, epoch: int, step: int) -> None:
    """That step is done.  Raises RuntimeError when a process has failed."""
    await _unless_failed(processes, lambda: any((one.epoch, one.step) >= (epoch, step) for one in steps(folder)))


async def result(folder: Path, processes: Processes) -> None:
    """The counts are there.  Raises RuntimeError when a process has failed."""
    await _unless_failed(processes, (folder / "counts.npy").exists)


async def _unless_failed(processes: Processes, is_done: Callable[[], bool]) -> None:
    await wait_for_async("the job", lambda: is_done() or bool(processes.failed()), budget_s=LIMIT_S)
    if not is_done():
        raise RuntimeError(processes.failed())


@dataclass(frozen=True, slots=True)
class StepDone:
    """`step` is counted from 1 within its epoch; `at_s` of the monotonic clock."""

    epoch: int
    step: int
    processes: int
    at_s: float


def steps(folder: Path) -> list[StepDone]:
    """Those that were done, in order; a last line that was cut short counts as none."""
    file = folder / "progress"
    lines = [line.split() for line in (file.read_text() if file.exists() else "").split("\n")[:-1]]
    return [StepDone(int(epoch), int(step), int(size), float(at_s)) for epoch, step, size, at_s in lines]


# ---- rows -----------------------------------------------------------------------------------------------------------


def rows(system: str, folder: Path, what: str, *, goal: str = "") -> list[Row]:
    """What the counters of the last replica say, and the steps."""
    return rows_of(system, np.load(folder / "counts.npy"), steps(folder), what, goal=goal)


def rows_of(system: str, counts: np.ndarray, done: list[StepDone], what: str, *, goal: str = "") -> list[Row]:
    """`counts`: by epoch and record.  A record that an epoch left out is lost; each time beyond the first, repeated."""
    sizes = ", ".join(str(size) for size, _ in groupby(one.processes for one in done))
    by_kind = {"lost": (counts == 0).sum(axis=1), "repeated": np.maximum(counts - 1, 0).sum(axis=1)}
    subject = f"{counts.shape[1]:,} records, {len(counts)} epochs, resized in mid epoch, {system}"
    found = [
        Row(
            name=f"{subject}: {kind}",
            value=float(number.sum()),
            unit="records",
            goal=goal,
            note=f"{what}; processes {sizes}; by epoch {', '.join(map(str, number.tolist()))}",
        )
        for kind, number in by_kind.items()
    ]
    before, after = max(pairwise(done), key=lambda pair: pair[1].at_s - pair[0].at_s)
    longest = Row(
        name=f"{subject}: longest time between two steps",
        value=after.at_s - before.at_s,
        unit="s",
        note=f"after step {before.step} of epoch {before.epoch}; a step takes 0.1 s and more; {load()}",
    )
    return [*found, longest]


if __name__ == "__main__":
    main()
