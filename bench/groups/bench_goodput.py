"""Benchmark of goodput: steps of a group whose members are killed, beside steps of the same group left alone.

Measured: four processes on the cores of this machine, torch; a step takes 0.1 s, most of it asleep, so
that four trainers need no four cores.  Every 30 s one of them is killed by SIGKILL and its successor begins; a fork
server starts it, so starts of processes are left out.  Windows with and without a fault take turns.

Simulated: the product's own cores in virtual time (`bench.simulation`), four members with the times of the measured
group, to compare, and 256 members with the parameters of `LARGE`.  `--short`: a minute, with fewer and shorter windows.
"""

from __future__ import annotations

import asyncio
import importlib.util
import signal
import statistics
import sys
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Final

from bench.groups.simulation.cluster_model import Charge, ClusterModel, cpu_of
from bench.groups.simulation.simulated_group import SimulatedGroup, SimulatedRun
from bench.reporting.result_rows import Row, load, print_rows
from tests.chaos.group.member_pool import MemberPool, running_pool
from tests.harness.master_process import MasterProcess, running
from tests.harness.waiting import wait_for_async

PROGRAM: Final = Path(__file__).parent / "programs" / "paced_torch.py"
EVERY_S: Final = 30.0
MEMBERS: Final = 4
GOAL: Final = ">= 0.98"
WARM_S: Final = 5.0
RECENT_S: Final = 5.0  # shorter than any window: the diary of a killed member is older


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How long it is measured.  What a fault costs is counted in a window, and laid on `EVERY_S` seconds."""

    pairs: int
    window_s: float
    simulated_faults: int


FULL: Final = Extent(pairs=5, window_s=EVERY_S, simulated_faults=3)
SHORT: Final = Extent(pairs=2, window_s=8.0, simulated_faults=1)

LARGE: Final = ClusterModel(
    members=256,
    compute_s=0.9,
    reduce_s=0.1,
    network_s=0.0005,
    connect_s=0.25,
    commit_s=0.005,
    message_s=0.0002,
    state_bytes=1.2e9,
    bytes_per_s=1.0e9,
    capture_s=0.25,
    start_s=15.0,
)
"""`commit_s` and `message_s`: above what `accounts` and `dispatch` measured (docs/reports/benchmarks.md).
Assumed: 10 Gbit/s between nodes, steps of a second, 100 M parameters with Adam's moments.
"""


def main() -> None:
    extent = SHORT if "--short" in sys.argv else FULL
    if importlib.util.find_spec("torch") is None:
        print("LEFT OUT: torch is not installed (make frameworks)", flush=True)
    else:
        print_rows(asyncio.run(measured(extent)))
    print_rows(simulated(LARGE, extent, cpu_of))


# ---- measured -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Windows:
    """Steps per second in windows of equal length, without and with a fault, and the pauses after the faults."""

    calm: list[float]
    faulty: list[float]
    pauses_s: list[float]
    step_s: float  # median, undisturbed


async def measured(extent: Extent) -> list[Row]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("sockets", "checkpoints", "diaries", "logs"):
            (folder / part).mkdir(mode=0o700)
        settings = {"EDL_JOB": "goodput", "EDL_GROUP": "1", "EDL_CHECKPOINT_EVERY_S": "600"}
        async with (
            running(MasterProcess(folder, **settings)) as (master,),
            running_pool(folder, master.address, "goodput", PROGRAM) as pool,
        ):
            windows = await _watch(folder, pool, extent)
    first = simulated_like(windows.step_s, extent)
    return [*rows_of(windows, extent), first]


async def _watch(folder: Path, pool: MemberPool, extent: Extent) -> Windows:
    for _ in range(MEMBERS):
        await pool.add()
    await _until_all_train(folder)
    await asyncio.sleep(WARM_S)
    calm, faulty, pauses_s = [], [], []
    begun_s = monotonic()
    await asyncio.sleep(extent.window_s)
    step_s = statistics.median(after - before for before, after in pairwise(completed(folder, begun_s, monotonic())))
    for number in range(extent.pairs):
        calm.append(await _rate(folder, extent.window_s))
        killed_s = monotonic()
        victim = pool.present[number % MEMBERS]
        victim.was_killed = True
        victim.signal(signal.SIGKILL)
        await pool.add()
        faulty.append(await _rate(folder, extent.window_s))
        pauses_s.append(max(after - before for before, after in pairwise(completed(folder, killed_s - 1, monotonic()))))
        await _until_all_train(folder)
    return Windows(calm, faulty, pauses_s, step_s)


async def _until_all_train(folder: Path) -> None:
    def all_train() -> bool:
        lines = [_lines(file)[-1:] for file in (folder / "diaries").iterdir()]
        return (
            sum(bool(line) and line[0][2] == MEMBERS and line[0][0] > monotonic() - RECENT_S for line in lines)
            == MEMBERS
        )

    await wait_for_async("steps of all", all_train, budget_s=300.0)


async def _rate(folder: Path, window_s: float) -> float:
    begun_s = monotonic()
    await asyncio.sleep(window_s)
    return len(completed(folder, begun_s, begun_s + window_s)) / window_s


def completed(folder: Path, begin_s: float, end_s: float) -> list[float]:
    """When each step was first completed by a member, of those in this time; a step that was redone counts once."""
    first: dict[int, float] = {}
    for file in (folder / "diaries").iterdir():
        for at_s, step, _ in _lines(file):
            first[step] = min(at_s, first.get(step, at_s))
    return sorted(at_s for at_s in first.values() if begin_s <= at_s < end_s)


def _lines(file: Path) -> list[tuple[float, int, int]]:
    """A last line that was cut short counts as none."""
    parts = [line.split() for line in file.read_text().split("\n")[:-1]]
    return [(float(at_s), int(step), int(trainers)) for at_s, step, trainers in parts]


def goodput_of(calm: float, faulty: float, window_s: float) -> float:
    """Share of undisturbed steps with a fault every `EVERY_S`, by the steps that one fault costs in a window."""
    lost_s = window_s * (1.0 - faulty / calm)
    return 1.0 - lost_s / EVERY_S


def rows_of(windows: Windows, extent: Extent) -> list[Row]:
    shares = [
        goodput_of(calm, faulty, extent.window_s) for calm, faulty in zip(windows.calm, windows.faulty, strict=True)
    ]
    value = goodput_of(statistics.mean(windows.calm), statistics.mean(windows.faulty), extent.window_s)
    spread = f"{min(shares):.3f} to {max(shares):.3f} in {len(shares)} pairs of windows of {extent.window_s:g} s"
    pauses = f"pauses {1e3 * min(windows.pauses_s):.0f} to {1e3 * max(windows.pauses_s):.0f} ms"
    return [
        Row(
            name=f"goodput, {MEMBERS} ranks, SIGKILL of one every {EVERY_S:g} s, starts aside",
            value=value,
            unit="of undisturbed",
            goal=GOAL,
            note=f"{spread}; a step {1e3 * windows.step_s:.0f} ms, most of it asleep; {pauses}; {load()}",
        )
    ]


# ---- simulated ------------------------------------------------------------------------------------------------------


def simulated_like(step_s: float, extent: Extent) -> Row:
    """Four members with the measured step: beside the measured goodput it shows what the model leaves out."""
    model = replace(
        LARGE,
        members=MEMBERS,
        compute_s=step_s,
        reduce_s=0.0,
        connect_s=0.01,
        commit_s=0.0,  # the measured master keeps its records in memory
        state_bytes=2.5e6,
        capture_s=0.001,
        start_s=0.05,
    )
    run = SimulatedGroup(model, cpu_of).run(faults=extent.simulated_faults, every_s=EVERY_S)
    return Row(
        name=f"goodput, the same {MEMBERS} ranks, simulated",
        value=run.goodput,
        unit="of undisturbed",
        note=f"to compare with the measured one; pauses {_pauses(run)}",
    )


def simulated(model: ClusterModel, extent: Extent, charge: Charge) -> list[Row]:
    """The product's cores decide; what the model assumes stands in the note."""
    run = SimulatedGroup(model, charge).run(faults=extent.simulated_faults, every_s=EVERY_S)
    costs = [fault.master for fault in run.faults]
    ranks = f"{model.members} ranks, simulated"
    assumed = (
        f"assumed: step {model.compute_s + model.reduce_s:g} s, replica {model.state_bytes / 1e9:g} GB at "
        f"{model.bytes_per_s / 1e9:g} GB/s, connecting {model.connect_s:g} s, a message {1e3 * model.network_s:g} ms, "
        f"a start {model.start_s:g} s; no checkpoints, no jitter"
    )
    spent = f"{len(run.faults)} faults; CPU time of the real cores here, {load()}"
    messages = statistics.median(cost.events + cost.sent for cost in costs)
    return [
        Row(
            name=f"goodput, {ranks}, SIGKILL of one every {EVERY_S:g} s",
            value=run.goodput,
            unit="of undisturbed",
            goal=GOAL,
            note=assumed,
        ),
        Row(
            name=f"pause after SIGKILL, {ranks}",
            value=statistics.median(fault.pause_s for fault in run.faults),
            unit="s",
            note=f"{_pauses(run)}, with the step that is redone; {spent}",
        ),
        Row(
            name=f"pause as its successor joins, {ranks}",
            value=statistics.median(fault.join_pause_s for fault in run.faults),
            unit="s",
            note=f"it takes the replica in {model.state_bytes / model.bytes_per_s:g} s, as the others compute a step",
        ),
        Row(name=f"messages of a regroup, to and from the master, {ranks}", value=messages, unit=""),
        Row(
            name=f"master's time in a regroup, {ranks}",
            value=statistics.median(cost.busy_s for cost in costs),
            unit="s",
            note=f"core's CPU time and {1e3 * model.message_s:g} ms a message; {spent}",
        ),
        Row(name=f"share of time that the master is occupied, {ranks}", value=run.master_share, unit="", note=spent),
    ]


def _pauses(run: SimulatedRun) -> str:
    pauses_s = [fault.pause_s for fault in run.faults]
    return f"{min(pauses_s):.2f} to {max(pauses_s):.2f} s"


if __name__ == "__main__":
    main()
