"""A job of real processes for measurements: a master, servers, trainers (`programs`)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from autoscaler.clusters.local.machine.ports import PortAllocator
from autoscaler.jobs.master_connections import MasterConnections, MasterEndpoint
from autoscaler.jobs.progress import JobProgress
from bench.servers.network_nodes import HERE, Node

ROOT: Final = Path(__file__).parents[2]
PROGRAM: Final = Path(__file__).parent / "programs" / "embedding.py"
WIDTH: Final = 64
ROWS: Final = (1 << 30) // (4 * WIDTH)
TRAINERS: Final = 2
STEP_S: Final = 0.02
BUCKETS: Final = 256
LOOK_EVERY_S: Final = 0.05  # each look costs the master, and this process, a part of the cores that are measured
BUDGET_S: Final = 240.0


class Job:
    """The processes of one job, each on a node of its own; `stop` ends all of them.

    `program`: the trainers'; `settings`: of all environments, over those of here.
    """

    def __init__(
        self, folder: Path, masters: MasterConnections, program: Path, new_node: Callable[[], Node], **settings: str
    ) -> None:
        self.times = folder / "times"
        self.times.mkdir()
        self._folder = folder
        self._masters = masters
        self._program = program
        self._new_node = new_node
        self._settings = settings
        self._processes: list[subprocess.Popen[bytes]] = []
        self._names: list[str] = []
        node = new_node()
        self._door = MasterEndpoint(job="bench", address=f"{node.address}:{PortAllocator().allocate()}", token="")
        counts = {"EDL_SERVERS": "2", "EDL_MAX_SERVERS": "3"}
        self._start("master-0", node, "-m", "master", EDL_LISTEN=self._door.address, **counts)

    def server(self, ordinal: int) -> None:
        node = self._new_node()
        self._start(f"server-{ordinal}", node, "-m", "trainer_sdk.pserver", EDL_LISTEN=f"{node.address}:0")

    def trainer(self, ordinal: int) -> None:
        self._start(f"trainer-{ordinal}", self._new_node(), str(self._program))

    def _start(self, name: str, node: Node, *argv: str, **more: str) -> None:
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
            command = [*node.prefix, sys.executable, *argv]
            self._processes.append(subprocess.Popen(command, env=variables, stdout=log, stderr=log))

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
            progress = await self._masters.try_poll(self._door)
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


@asynccontextmanager
async def job(
    program: Path = PROGRAM, new_node: Callable[[], Node] = lambda: HERE, **settings: str
) -> AsyncIterator[Job]:
    """Two servers with all rows on them, and trainers at work."""
    with tempfile.TemporaryDirectory() as folder:
        async with MasterConnections() as masters:
            running = Job(Path(folder), masters, program, new_node, **settings)
            try:
                for ordinal in range(2):
                    running.server(ordinal)
                for ordinal in range(TRAINERS):
                    running.trainer(ordinal)
                await running.until(lambda _: running.is_trained_whole(), "all rows are trained")
                yield running
            finally:
                running.stop()


def batch_ends(file: Path) -> list[float]:
    return [float(line) for line in file.read_text().splitlines()[1:] if line]
