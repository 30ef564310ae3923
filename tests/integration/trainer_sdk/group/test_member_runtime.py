"""Members of a group as processes under a real master: joins, drains, losses, stops; every record counted once.

The counts are asserted from the checkpoint that the master committed, found as any reader of its folder finds it.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from master.api.checkpoints.audit import read_checkpoint
from master.api.checkpoints.storage import open_storage
from master.api.group_shares import total_steps
from master.api.master_status import JobPhase, JobStatus
from master.api.positions import EMPTY
from tests.harness.master_process import JOB, MasterProcess, running, wait_for_leader
from tests.harness.master_status import get_status, try_status
from tests.harness.waiting import wait_for_async
from tests.programs.group_counter import DATASET
from trainer_sdk.group.captured_state import read_copy

PROGRAM = Path(__file__).parents[3] / "programs" / "group_counter.py"
TRAINING = ("compute", "reduce")
BUDGET_S = 150.0
pytestmark = pytest.mark.chaos


class Group:
    """The members' processes and their master."""

    def __init__(self, folder: Path, master: MasterProcess) -> None:
        self.folder, self.master = folder, master
        self.processes: list[subprocess.Popen] = []

    def add(self, count: int = 1) -> None:
        for _ in range(count):
            ordinal = len(self.processes)
            command = [sys.executable, str(PROGRAM), str(self.folder), self.master.address, str(ordinal)]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            with (self.folder / f"{ordinal}.log").open("wb") as log:
                self.processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()

    async def status(self) -> JobStatus:
        return await get_status(self.master.address, JOB)

    async def wait_trained(self, members: int, *, above: int = 0) -> JobStatus:
        """The status in a generation above this one in which so many members train, three steps later."""
        first = await self._wait(f"{members} train", lambda now: trainers(now) == members and now.generation > above)
        step = first.group_step + 3
        return await self._wait(f"{members} train", lambda now: trainers(now) == members and now.group_step >= step)

    async def wait_committed(self) -> JobStatus:
        return await self._wait("a checkpoint", lambda now: now.head is not None)

    async def _wait(self, what: str, holds) -> JobStatus:
        async def probe() -> JobStatus | None:
            for ordinal, process in enumerate(self.processes):
                assert process.poll() in (None, 0, -signal.SIGKILL), (self.folder / f"{ordinal}.log").read_text()
            now = await try_status(self.master.address, JOB)
            return now if now is not None and holds(now) else None

        return await wait_for_async(what, probe, budget_s=BUDGET_S)

    async def finish(self, *ordinals: int) -> list[dict]:
        """The results of these members, all of which have ended by themselves."""
        for ordinal in ordinals:
            code = await asyncio.to_thread(self.processes[ordinal].wait, BUDGET_S)
            assert code == 0, (self.folder / f"{ordinal}.log").read_text()
        return [json.loads((self.folder / f"trainer-{ordinal}.json").read_text()) for ordinal in ordinals]

    async def check_exact(self, *ordinals: int) -> list[dict]:
        """Every record `epochs` times in each replica and in the last checkpoint, and the same bits everywhere."""
        (self.folder / "hurry").touch()
        results = await self.finish(*ordinals)
        for result in results:
            assert result["reason"] == "ended"
            assert result["step"] == total_steps(DATASET)
            assert result["counts"] == [DATASET.epochs] * DATASET.size
            assert result["weights"] == results[0]["weights"]
        assert (await self.status()).phase is JobPhase.COMPLETE
        audit = read_checkpoint(self.master.checkpoints)
        assert audit.is_sound, audit.problems
        assert audit.head.is_complete
        assert audit.head.quarantine == EMPTY
        (file,) = audit.head.files
        loaded = read_copy(open_storage(self.master.checkpoints), file)
        assert loaded.state == audit.head.state
        np.testing.assert_array_equal(loaded.captured.arrays["counts"], DATASET.epochs)
        assert loaded.captured.arrays["weights"].tobytes().hex().startswith(results[0]["weights"])
        return results


def trainers(status: JobStatus) -> int:
    """How many members are in a generation whose sync is over at them."""
    return sum(one.is_serving and one.is_connected and one.group_phase in TRAINING for one in status.members)


@pytest.fixture
def group(tmp_path):
    @asynccontextmanager
    async def make(**environment: str):
        (tmp_path / "sockets").mkdir(mode=0o700)
        settings = {"EDL_GROUP": "1", "EDL_CHECKPOINT_EVERY_S": "1"}
        async with running(MasterProcess(tmp_path, **settings | environment)) as (master,):
            await wait_for_leader(master)
            made = Group(tmp_path, master)
            try:
                yield made
            finally:
                made.end()

    return make


async def test_joiner_and_leaver_disturb_nobody(group):
    """Rules 79 to 83: planned changes lose no step, and the replica goes over to the joiner."""
    async with group() as members:
        members.add(2)
        before = await members.wait_trained(2)
        members.add()
        joined = await members.wait_trained(3, above=before.generation)
        members.processes[0].send_signal(signal.SIGTERM)
        (left,) = await members.finish(0)
        assert left["reason"] == "drained"
        await members.wait_trained(2, above=joined.generation)
        results = await members.check_exact(1, 2)
        assert [result["redone"] for result in (left, *results)] == [0, 0, 0]


async def test_kill_in_the_middle_of_a_step_loses_that_step_alone(group):
    """Rules 73 to 76: survivors abort, regroup, and do the same step again."""
    async with group() as members:
        members.add(3)
        before = await members.wait_trained(3)
        members.processes[1].kill()
        await members.wait_trained(2, above=before.generation)
        results = await members.check_exact(0, 2)
        assert all(result["redone"] <= 1 for result in results)


async def test_stopped_member_is_left_behind_and_returns(group):
    """Rules 74, 92: nobody waits for the stopped one, which takes the others' state when it is back."""
    async with group() as members:
        members.add(2)
        before = await members.wait_trained(2)
        members.processes[1].send_signal(signal.SIGSTOP)
        alone = await members.wait_trained(1, above=before.generation)
        members.processes[1].send_signal(signal.SIGCONT)
        await members.wait_trained(2, above=alone.generation)
        await members.check_exact(0, 1)


async def test_all_lost_go_on_from_the_head(group):
    """Rules 78, 90: no survivor is no special case; the head's file says what it contains."""
    async with group() as members:
        members.add(2)
        before = await members.wait_trained(2)
        await members.wait_committed()
        for process in members.processes:
            process.kill()
        members.add(2)
        await members.wait_trained(2, above=before.generation)
        await members.check_exact(2, 3)


async def test_master_that_is_followed_disturbs_nobody_and_goes_on_with_changes(group, etcd):
    """Rule 91: the next master reads the record, hears the rest from members, and plans and breaks as before."""
    async with group(EDL_ETCD_ENDPOINTS=",".join(etcd.endpoints)) as members:
        members.add(2)
        before = await members.wait_trained(2)
        await members.wait_committed()
        await members.master.kill()
        await members.master.start()
        await wait_for_leader(members.master)
        after = await members.wait_trained(2)
        assert after.term > before.term
        assert after.generation == before.generation
        members.add()
        joined = await members.wait_trained(3, above=after.generation)
        members.processes[0].kill()
        await members.wait_trained(2, above=joined.generation)
        results = await members.check_exact(1, 2)
        assert all(result["redone"] <= 1 for result in results)
