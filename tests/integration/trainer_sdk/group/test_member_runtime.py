"""Members of a group as processes, with real collectives: joins, drains, losses, stops; every record counted once."""

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from master.api.checkpoints.storage import open_storage
from master.api.group_shares import total_steps
from tests.harness.group_records_master import serving_records
from tests.harness.waiting import wait_for
from tests.programs.group_counter import DATASET
from trainer_sdk.group.captured_state import read_copy

PROGRAM = Path(__file__).parents[3] / "programs" / "group_counter.py"


class Group:
    """The members' processes and their master."""

    def __init__(self, folder: Path, stack: ExitStack, *, start: int) -> None:
        self.folder, self._stack = folder, stack
        self.master = stack.enter_context(serving_records(DATASET, start=start))
        self.processes: list[subprocess.Popen] = []
        for _ in range(start):
            self.add()

    def add(self) -> subprocess.Popen:
        command = [sys.executable, str(PROGRAM), str(self.folder), self.master.address, str(len(self.processes))]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        log = self._stack.enter_context((self.folder / f"{len(self.processes)}.log").open("wb"))
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self._stack.callback(end, process)
        self.processes.append(process)
        return process

    def wait_step(self, step: int) -> None:
        wait_for(f"step {step}", lambda: max(self.master.steps().values(), default=0) >= step)

    def wait_synced(self, members: int) -> None:
        wait_for(
            f"a generation of {members}",
            lambda: self.master.synced() and len(self.master.newest.members) == members,
        )

    def finish(self, *ordinals: int) -> list[dict]:
        """The results of these members, all of which have ended by themselves."""
        for ordinal in ordinals:
            assert self.processes[ordinal].wait(timeout=120) == 0, (self.folder / f"{ordinal}.log").read_text()
        return [json.loads((self.folder / f"trainer-{ordinal}.json").read_text()) for ordinal in ordinals]

    def check_exact(self, *ordinals: int) -> list[dict]:
        """Every record `epochs` times in each replica and in the last checkpoint, and the same bits everywhere."""
        (self.folder / "hurry").touch()
        results = self.finish(*ordinals)
        for result in results:
            assert result["reason"] == "ended"
            assert result["counts"] == [DATASET.epochs] * DATASET.size
            assert result["weights"] == results[0]["weights"]
        head = self.master.head
        assert head.state.step == total_steps(DATASET)
        loaded = read_copy(open_storage(str(self.folder / "checkpoints")), head.files[0])
        assert loaded.state == head.state
        np.testing.assert_array_equal(loaded.captured.arrays["counts"], DATASET.epochs)
        return results


def end(process: subprocess.Popen) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()


@pytest.fixture
def group(tmp_path):
    @contextmanager
    def make(*, start: int):
        (tmp_path / "sockets").mkdir(mode=0o700)
        with ExitStack() as stack:
            yield Group(tmp_path, stack, start=start)

    return make


def test_joiner_and_leaver_disturb_nobody(group):
    """Rules 79 to 83: planned changes lose no step, and the replica goes over to the joiner."""
    with group(start=2) as running:
        running.wait_step(3)
        running.add()
        running.wait_synced(3)
        running.processes[0].send_signal(signal.SIGTERM)
        (left,) = running.finish(0)
        assert left["reason"] == "drained"
        results = running.check_exact(1, 2)
        assert all(result["redone"] == 0 for result in results)
        assert not running.master.broken


def test_kill_in_the_middle_of_a_step_loses_that_step_alone(group):
    """Rules 73 to 76: survivors abort, regroup, and do the same step again."""
    with group(start=3) as running:
        running.wait_step(5)
        running.processes[1].kill()
        running.check_exact(0, 2)
        assert running.master.broken


def test_stopped_member_is_left_behind_and_returns(group):
    """Rules 74, 92: nobody waits for the stopped one, which takes the others' state when it is back."""
    with group(start=2) as running:
        running.wait_step(5)
        running.processes[1].send_signal(signal.SIGSTOP)
        running.wait_synced(1)
        running.processes[1].send_signal(signal.SIGCONT)
        running.check_exact(0, 1)
        assert running.master.broken


def test_all_lost_go_on_from_the_head(group):
    """Rules 78, 90: no survivor is no special case; the head's file says what it contains."""
    with group(start=2) as running:
        wait_for("a checkpoint", lambda: running.master.head.state.step)
        for process in running.processes:
            process.kill()
        running.add()
        running.add()
        running.check_exact(2, 3)
