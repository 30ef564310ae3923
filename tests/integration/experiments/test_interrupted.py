"""A run of experiments that is stopped from outside: said in one line, nothing half-written, nobody left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.experiments.test_result_store import SMALL

DEADLINE_S = 120.0


@pytest.fixture
def running(tmp_path):
    """A run of more short passes than it will ever end, with two processes, after its first pass."""
    scenario = tmp_path / "small.yaml"
    scenario.write_text(json.dumps({**SMALL, "passes": 5_000}))
    command = [sys.executable, "-m", "experiments", "run", str(scenario), "--workers", "2", "--json"]
    command += ["--results", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert json.loads(process.stdout.readline())["error"] == ""
            yield process
        finally:
            process.kill()


def workers_of(process):
    pids = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    return [pid for pid in pids if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except OSError:
        return True


def wait_until_gone(pids):
    until = time.monotonic() + DEADLINE_S
    while not all(is_gone(pid) for pid in pids):
        assert time.monotonic() < until, f"still there: {pids}"
        time.sleep(0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="children are found in /proc")
@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (signal.SIGTERM, 130, "experiments: interrupted; the same command resumes\n"),
        (signal.SIGKILL, -signal.SIGKILL, ""),
    ],
)
def test_a_run_that_is_stopped_leaves_nobody_behind(running, tmp_path, number, code, words):
    """However it ends, its processes end too, and what was kept is whole."""
    workers = workers_of(running)
    assert len(workers) == 2
    running.send_signal(number)
    error = running.communicate(timeout=DEADLINE_S)[1]
    assert running.returncode == code
    assert error == words or code < 0
    wait_until_gone(workers)
    assert [json.loads(file.read_text()) for file in tmp_path.glob("passes/*/*/*.json")]


@pytest.mark.skipif(sys.platform != "linux", reason="children are found in /proc")
def test_a_process_that_is_killed_ends_the_run_with_one_line(running):
    """Out of memory, say: exit code 1, no traceback."""
    workers = workers_of(running)
    os.kill(workers[0], signal.SIGKILL)
    error = running.communicate(timeout=DEADLINE_S)[1]
    assert running.returncode == 1
    assert error == "experiments: a process that ran a pass was killed; the same command resumes\n"
    wait_until_gone(workers)
