"""Members of a group as processes of a program of `tests/programs` under a master process, and what they trained.

The counts are read from the checkpoint that the master committed, found as any reader of its folder finds it.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from master.api.checkpoints.audit import read_checkpoint
from master.api.checkpoints.storage import open_storage
from master.api.group_shares import total_steps
from master.api.identities import DatasetSpec
from master.api.master_status import JobPhase, JobStatus
from tests.harness.forked_programs import ForkedProgram, ForkedPrograms
from tests.harness.master_process import JOB, MasterProcess
from tests.harness.master_status import get_status, try_status
from tests.harness.waiting import wait_for_async
from tests.programs.group_counter import DATASET
from trainer_sdk.group.replica_files import read_copy

PROGRAMS = Path(__file__).parents[1] / "programs"
TRAINING = ("compute", "warm_up", "load", "reduce", "script")
BUDGET_S = 150.0


class GroupMembers:
    """The members' processes and their master."""

    def __init__(
        self,
        folder: Path,
        master: MasterProcess,
        program: str = "group_counter.py",
        arrays: tuple[str, str] = ("counts", "weights"),
        dataset: DatasetSpec = DATASET,
        forks: ForkedPrograms | None = None,
    ) -> None:
        """`arrays`: names of the program's counts and weights in a checkpoint; `dataset`: what it trains.

        `forks`: begins the program's processes, of a program that imports torch.
        """
        self.folder, self.master, self._dataset = folder, master, dataset
        self._program, self._arrays = PROGRAMS / program, arrays
        self._forks = forks
        self.processes: list[subprocess.Popen | ForkedProgram] = []

    def add(self, count: int = 1) -> None:
        for _ in range(count):
            self.processes.append(self._start(len(self.processes)))

    def replace(self, ordinal: int) -> None:
        """A new process of this member's name, once the old one has ended."""
        self.processes[ordinal].wait()
        self.processes[ordinal] = self._start(ordinal)

    def _start(self, ordinal: int) -> subprocess.Popen | ForkedProgram:
        command = [str(self._program), str(self.folder), self.master.address, str(ordinal)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        log_file = self.folder / f"{ordinal}.log"
        if self._forks is not None:
            return self._forks.start(command, log=log_file, environment=environment)
        with log_file.open("ab") as log:
            return subprocess.Popen([sys.executable, *command], env=environment, stdout=log, stderr=log)

    def hooked(self) -> list[int]:
        """The members that began the final hook, in that order."""
        file = self.folder / "hooked"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()

    async def status(self) -> JobStatus:
        return await get_status(self.master.address, JOB)

    async def wait_trained(self, members: int, *, above: int = 0) -> JobStatus:
        """The status in a generation above this one in which so many members train, three steps later."""
        first = await self.wait_for(f"{members} train", lambda now: trainers(now) == members and now.generation > above)
        step = first.group_step + 3
        return await self.wait_for(f"{members} train", lambda now: trainers(now) == members and now.group_step >= step)

    async def wait_committed(self) -> JobStatus:
        return await self.wait_for("a checkpoint", lambda now: now.head is not None)

    async def wait_for(self, what: str, holds: Callable[[JobStatus], bool], *, replaces: bool = False) -> JobStatus:
        """The first status of which `holds` is true; `replaces`: new processes come for those that were killed."""

        async def probe() -> JobStatus | None:
            for ordinal, process in enumerate(self.processes):
                code = process.poll()
                assert code in (None, 0, -signal.SIGKILL), (self.folder / f"{ordinal}.log").read_text()
                if replaces and code == -signal.SIGKILL:
                    self.processes[ordinal] = self._start(ordinal)
            now = await try_status(self.master.address, JOB)
            return now if now is not None and holds(now) else None

        return await wait_for_async(what, probe, budget_s=BUDGET_S)

    async def finish(self, *ordinals: int) -> list[dict]:
        """The results of these members, all of which have ended by themselves."""
        for ordinal in ordinals:
            code = await asyncio.to_thread(self.processes[ordinal].wait, BUDGET_S)
            assert code == 0, (self.folder / f"{ordinal}.log").read_text()
        return [json.loads((self.folder / f"trainer-{ordinal}.json").read_text()) for ordinal in ordinals]

    async def check_exact(self, *ordinals: int, skipped: Sequence[int] = ()) -> list[dict]:
        """Every record `epochs` times in each replica and in the last checkpoint, and the same bits everywhere.

        `skipped`: these records once less.  Returns the members' results.
        """
        (self.folder / "hurry").touch()
        results = await self.finish(*ordinals)
        counts = np.full(self._dataset.size, self._dataset.epochs)
        counts[list(skipped)] -= 1
        for result in results:
            assert result["reason"] == "ended"
            assert result["step"] == total_steps(self._dataset)
            assert result["counts"] == counts.tolist()
            assert result["weights"] == results[0]["weights"]
        assert (await self.status()).phase is JobPhase.COMPLETE
        audit = read_checkpoint(self.master.checkpoints)
        assert audit.is_sound, audit.problems
        assert audit.head.is_complete
        assert len(audit.head.quarantine) == len(skipped)
        loaded = read_copy(open_storage(self.master.checkpoints), audit.head.files)
        assert loaded.state == audit.head.state
        counted, weights = (loaded.captured.arrays[name] for name in self._arrays)
        np.testing.assert_allclose(counted, counts, atol=1e-6)
        assert weights.tobytes().hex().startswith(results[0]["weights"])
        return results


def trainers(status: JobStatus) -> int:
    """How many members are in a generation whose sync is over at them."""
    return sum(one.is_serving and one.is_connected and one.group_phase in TRAINING for one in status.members)
