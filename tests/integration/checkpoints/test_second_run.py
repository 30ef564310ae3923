"""A second run never starts while a process of the first one still writes into its folder (M11, ADR 0404)."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.harness.edl_command import EDL, wait_until
from tests.integration.checkpoints.test_unreadable import JOB_YAML, ROOT, run

SLOW = JOB_YAML.replace('"2000", --epochs, "2"', '"2000", --epochs, "1000"')


def children_of(pid):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError):
            if stat.read_text().rpartition(")")[2].split()[1] == str(pid):
                found.append(int(stat.parent.name))
    return found


def command_of(pid):
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def is_alive(pid):
    with suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return state[0] not in "ZX" or int(state[17]) > 1  # its other threads may still hold what it held
    return False


@pytest.mark.chaos
def test_a_killed_run_whose_master_goes_on_keeps_the_next_one_out(tmp_path):
    """The run is killed and whoever would take its pods along stands still: its master commits on."""
    (tmp_path / "job.yaml").write_text(SLOW.replace("ROOT", str(ROOT)).replace("FOLDER", str(tmp_path)))
    argv = [EDL, "run", "job.yaml", "--no-view", "--no-etcd"]
    first = subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    supervisor = 0
    try:
        wait_until((tmp_path / "checkpoints" / "HEAD").exists, "the first checkpoint")
        (supervisor,) = [pid for pid in children_of(first.pid) if "pod_supervisor" in command_of(pid)]
        pods = children_of(supervisor)
        assert any("-m master" in command_of(pid) for pid in pods)
        os.kill(supervisor, signal.SIGSTOP)
        first.kill()
        first.wait()
        head = (tmp_path / "checkpoints" / "HEAD").read_bytes()
        wait_until(lambda: (tmp_path / "checkpoints" / "HEAD").read_bytes() != head, "the master commits on")
        code, said = run(tmp_path)
        assert code == 4, said
        assert "a process of an earlier run that still runs" in said
        os.kill(supervisor, signal.SIGKILL)  # and its pods with it
        wait_until(lambda: not any(map(is_alive, pods)), "the pods' end")
        code, said = run(tmp_path, "--duration", "3s", job=SLOW)  # of other epochs it would be refused
        assert code == 0, said
    finally:
        if supervisor:
            with suppress(ProcessLookupError):
                os.kill(supervisor, signal.SIGKILL)
        first.kill()
        first.wait()


SCRIPT = """
import sys, time
import trainer_sdk as edl
with edl.open() as session:
    for number, batch in enumerate(session.dataset("s", size=100000, epochs=1, batch_size=10)):
        if number == 0:
            print("begun", flush=True)
        time.sleep(0.02)
        batch.done()
"""


@pytest.mark.chaos
def test_a_killed_script_whose_master_stands_still_keeps_the_next_one_out(tmp_path):
    """It may wake up and write: only its end frees the folder."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("EDL_")}
    variables |= {"EDL_CHECKPOINT_URI": str(tmp_path / "c"), "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-c", SCRIPT]
    first = subprocess.Popen(argv, env=variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert first.stdout.readline() == "begun\n"
    (master,) = [pid for pid in children_of(first.pid) if "-m master" in command_of(pid)]
    os.kill(master, signal.SIGSTOP)
    try:
        first.kill()
        first.wait()
        first.stdout.close()
        second = subprocess.run(argv, env=variables, capture_output=True, text=True, timeout=240, check=False)
        assert second.returncode != 0
        assert "EDL_CHECKPOINT_URI" in second.stderr
        assert "of an earlier run" in second.stderr
    finally:
        os.kill(master, signal.SIGKILL)
    wait_until(lambda: not is_alive(master), "the master's end")
    third = subprocess.Popen(argv, env=variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert third.stdout.readline() == "begun\n"
    finally:
        third.terminate()
        third.wait(120)
        third.stdout.close()
