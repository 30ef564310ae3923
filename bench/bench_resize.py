"""What a resize costs: 2 servers to 3 and back, with 1 GB of tables and trainers that go on.

Real processes on one machine: a master, servers, two trainers (`programs/embedding.py`).  A stall is the time from one
batch's end to the next one's, of one trainer; a resize begins when the master has buckets to move and ends when none is
left.  The link is a bare TCP connection between two processes, measured in the same run before the job starts.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from autoscaler.clusters.local.ports import HOST, Ports
from autoscaler.jobs.masters import Door, Masters
from autoscaler.jobs.progress import JobProgress
from bench.link import link_bytes_per_s
from bench.rows import Row, print_rows

ROOT = Path(__file__).parent.parent
PROGRAM = Path(__file__).parent / "programs" / "embedding.py"
WIDTH = 64
ROWS = (1 << 30) // (4 * WIDTH)
TRAINERS = 2
STEP_S = 0.02
BUCKETS = 256
QUIET_S = 12.0  # before a resize: what it is compared with; servers say every 10 s what their buckets weigh
LOOK_EVERY_S = 0.05  # each look costs the master, and this process, a part of the cores that are measured
BUDGET_S = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """Monotonic instants, and how many buckets changed their server."""

    quiet_from_s: float
    begun_s: float
    ended_s: float
    moved: int


class Job:
    """The processes of one job; `stop` ends all of them.  `settings`: of their environments, over those of here."""

    def __init__(self, folder: Path, masters: Masters, program: Path = PROGRAM, **settings: str) -> None:
        self.times = folder / "times"
        self.times.mkdir()
        self._folder = folder
        self._masters = masters
        self._program = program
        self._settings = settings
        self._processes: list[subprocess.Popen[bytes]] = []
        self._names: list[str] = []
        self._door = Door(job="bench", address=f"{HOST}:{Ports().take()}", token="")
        self._start("master-0", "-m", "master", EDL_LISTEN=self._door.address, EDL_SERVERS="2", EDL_MAX_SERVERS="3")

    def server(self, ordinal: int) -> None:
        self._start(f"server-{ordinal}", "-m", "trainer_sdk.pserver", EDL_LISTEN=f"{HOST}:0")

    def trainer(self, ordinal: int) -> None:
        self._start(f"trainer-{ordinal}", str(self._program))

    def _start(self, name: str, *argv: str, **more: str) -> None:
        role, ordinal = name.split("-")
        self._names.append(name)
        variables = {
            **{key: value for key, value in os.environ.items() if not key.startswith("EDL_")},
            "PYTHONPATH": str(ROOT),
            "OPENBLAS_NUM_THREADS": "1",
            "EDL_JOB": self._door.job,
            "EDL_ROLE": role,
            "EDL_NAME": name,
            "EDL_ORDINAL": ordinal,
            "EDL_MASTER": self._door.address,
            "EDL_CHECKPOINT_URI": str(self._folder / "checkpoints"),
            "EDL_CHECKPOINT_EVERY_S": "3600",
            "EDL_BUCKETS": str(BUCKETS),
            "EDL_GRACE_S": "60",
            "ROWS": str(ROWS),
            "WIDTH": str(WIDTH),
            "TRAINERS": str(TRAINERS),
            "STEP_S": str(STEP_S),
            "TIMES_DIR": str(self.times),
            **more,
            **self._settings,
        }
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes.append(subprocess.Popen([sys.executable, *argv], env=variables, stdout=log, stderr=log))

    def kill_server(self, ordinal: int) -> None:
        """At once, and another process comes in its place."""
        place = next(i for i in reversed(range(len(self._processes))) if self._names[i] == f"server-{ordinal}")
        self._processes[place].kill()
        self._processes[place].wait()
        self.server(ordinal)

    async def until(self, condition: Callable[[JobProgress], bool], what: str) -> JobProgress:
        """The first progress that fulfils it.  Raises TimeoutError with the ends of the logs."""
        until_s = time.monotonic() + BUDGET_S
        while True:
            progress = await self._masters.look(self._door)
            if progress is not None and condition(progress):
                return progress
            if time.monotonic() > until_s:
                logs = "\n".join(f"{log.name}: {log.read_text()[-500:]}" for log in self._folder.glob("*.log"))
                raise TimeoutError(f"{what}: not within {BUDGET_S:g} s; the last seen: {progress}\n{logs}")
            await asyncio.sleep(LOOK_EVERY_S)

    async def set_servers(self, count: int) -> None:
        await self._masters.set_servers(self._door, count)

    def is_trained_whole(self) -> bool:
        """Every row has been trained: the tables have their size."""
        files = list(self.times.iterdir())
        return len(files) == TRAINERS and all(file.read_bytes().startswith(b"ready") for file in files)

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()


def main() -> None:
    print_rows(asyncio.run(rows()))


async def rows() -> list[Row]:
    size = ROWS * WIDTH * 4
    link = link_bytes_per_s(size // 3)
    load = f"load of the machine before: {os.getloadavg()[0]:.1f}"
    found = [Row(name="resize: a bare socket between two processes", value=round(link / 1e6), unit="MB/s", note=load)]
    async with job() as running:
        grown = await resize(running, 3)
        shrunk = await resize(running, 2)
        await asyncio.sleep(1.0)
        times = [batch_ends(file) for file in running.times.iterdir()]
    for name, one in (("2 -> 3", grown), ("3 -> 2", shrunk)):
        found += judged(f"resize {name}, 1 GB under load", one, times, link)
    return found


@asynccontextmanager
async def job(program: Path = PROGRAM, **settings: str) -> AsyncIterator[Job]:
    """Two servers with all rows on them, and trainers at work."""
    with tempfile.TemporaryDirectory() as folder:
        async with Masters() as masters:
            running = Job(Path(folder), masters, program, **settings)
            try:
                for ordinal in range(2):
                    running.server(ordinal)
                for ordinal in range(TRAINERS):
                    running.trainer(ordinal)
                await running.until(lambda _: running.is_trained_whole(), "all rows are trained")
                yield running
            finally:
                running.stop()


async def resize(running: Job, count: int) -> Resize:
    """To so many servers, after a while of quiet."""
    quiet_from_s = time.monotonic()
    await asyncio.sleep(QUIET_S)
    before = await running.until(lambda _: True, "the master answers")
    await running.set_servers(count)
    if count > before.servers:
        running.server(count - 1)
    await running.until(lambda p: p.moving > 0, "buckets move")
    begun_s = time.monotonic()
    after = await running.until(lambda p: not p.moving and owners(p) == count, "nothing moves")
    ended_s = time.monotonic()
    return Resize(quiet_from_s=quiet_from_s, begun_s=begun_s, ended_s=ended_s, moved=moved(before, after))


def owners(progress: JobProgress) -> int:
    return sum(1 for _, count in progress.buckets if count)


def moved(before: JobProgress, after: JobProgress) -> int:
    """Buckets that servers have more of than before."""
    had = dict(before.buckets)
    return sum(max(0, count - had.get(ordinal, 0)) for ordinal, count in after.buckets)


def batch_ends(file: Path) -> list[float]:
    return [float(line) for line in file.read_text().splitlines()[1:] if line]


def judged(name: str, one: Resize, times: list[list[float]], link: float) -> list[Row]:
    """The goals are those of the issue: at most one batch + 100 ms, 1.5 times the bytes' own time, 70 %."""
    quiet = [b - a for ends in times for a, b in pairwise(ends) if one.quiet_from_s <= a and b <= one.begun_s - 0.5]
    batch_s = statistics.median(quiet)
    stalls = [b - a for ends in times for a, b in pairwise(ends) if b >= one.begun_s and a <= one.ended_s]
    took_s = one.ended_s - one.begun_s
    size = one.moved * ROWS * WIDTH * 4 / BUCKETS
    before = _rate(times, one.quiet_from_s, one.begun_s - 0.5)
    during = _rate(times, one.begun_s, one.ended_s)
    told = f"{one.moved} buckets, {size / 1e6:.0f} MB in {took_s:.2f} s"
    return [
        Row(
            name=f"{name}: longest stall beyond one batch",
            value=round((max(stalls) - batch_s) * 1e3),
            unit="ms",
            goal="<= 100",
            note=f"a batch takes {batch_s * 1e3:.0f} ms; longest without a move {max(quiet) * 1e3:.0f} ms",
        ),
        Row(
            name=f"{name}: time / the bytes' own on the link",
            value=round(took_s * link / size, 2),
            unit="",
            goal="<= 1.5",
            note=told,
        ),
        Row(
            name=f"{name}: throughput during / before",
            value=round(during / before, 2),
            unit="",
            goal=">= 0.7",
            note=f"{before:.0f} and {during:.0f} batches/s",
        ),
    ]


def _rate(times: list[list[float]], from_s: float, to_s: float) -> float:
    return sum(from_s <= end < to_s for ends in times for end in ends) / (to_s - from_s)


if __name__ == "__main__":
    main()
