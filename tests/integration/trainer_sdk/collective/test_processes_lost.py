"""Members that are killed, or stopped, in the middle of an all-reduce: all others leave at once (rules 73, 74)."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness.waiting import wait_for

ROOT = Path(__file__).parents[4]
PROGRAM = ROOT / "tests" / "programs" / "collective_member.py"
SIZE = 4


@contextmanager
def members(tmp_path, *words):
    """Four members that have made a few steps; the longest time of an operation is an hour."""
    started = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(tmp_path), str(rank), str(SIZE), *words],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        for rank in range(SIZE)
    ]
    try:
        for rank in range(SIZE):
            file = tmp_path / f"step-{rank}"
            wait_for(f"steps of rank {rank}", lambda file=file: file.exists() and int(file.read_text()) >= 3)
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()
        for file in tmp_path.glob("worker-*"):
            os.kill(int(file.read_text()), signal.SIGKILL)


@pytest.fixture
def processes(tmp_path):
    with members(tmp_path) as started:
        yield started


@pytest.fixture
def processes_with_workers(tmp_path):
    with members(tmp_path, "worker") as started:
        yield started


def reasons(folder, processes, victim):
    """Why each of the others has left; it ended without an error."""
    found = {}
    for rank in set(range(SIZE)) - {victim}:
        file = folder / f"aborted-{rank}"
        wait_for(f"rank {rank} to leave", file.exists)
        found[rank] = file.read_text()
        wait_for(f"rank {rank} to end", lambda rank=rank: processes[rank].poll() is not None)
        assert processes[rank].returncode == 0
    return found


def test_survivors_of_a_killed_member_leave_unasked(processes, tmp_path):
    """Also the one that is no neighbour in the ring; gloo's waits for its time-out."""
    processes[1].send_signal(signal.SIGKILL)
    assert all("rank" in text for text in reasons(tmp_path, processes, 1).values())


def test_survivors_leave_a_killed_member_whose_workers_live_on(processes_with_workers, tmp_path):
    """They were forked with its sockets, and nothing ends them: its connections have to close all the same."""
    processes_with_workers[1].send_signal(signal.SIGKILL)
    reasons(tmp_path, processes_with_workers, 1)


def test_members_leave_a_stopped_one_when_they_are_told(processes, tmp_path):
    """Nobody waits for it; it leaves when it goes on."""
    processes[2].send_signal(signal.SIGSTOP)
    (tmp_path / "abort").touch()
    reasons(tmp_path, processes, 2)
    assert processes[2].poll() is None
    processes[2].send_signal(signal.SIGCONT)
    wait_for("the stopped one to leave", (tmp_path / "aborted-2").exists)
