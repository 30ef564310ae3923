"""Runs that share a folder which nobody can claim, as an object store, delete nothing of each other (M11, ADR 0188)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from master.api.checkpoints.folder_contents import read_contents
from master.api.checkpoints.local_storage import LocalStorage
from tests.harness.edl_command import wait_until

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = """
import os
import sys
import time
import trainer_sdk as edl

with edl.open(master_budget_s=40) as session:
    for batch in session.dataset("s", size=4000, epochs=20, batch_size=10, seed=5):
        time.sleep(float(sys.argv[2]))
        batch.done()
        if os.path.exists(sys.argv[1]):
            break
"""


def script(folder, until, pause_s=0.0):
    """The script alone, with the folder as fsspec sees it, until a file stands there: its command and variables."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("EDL_")}
    variables |= {"EDL_CHECKPOINT_URI": f"local://{folder}", "EDL_CHECKPOINT_EVERY_S": "0.2", "PYTHONPATH": str(ROOT)}
    return [sys.executable, "-c", SCRIPT, str(until), str(pause_s)], variables


def train(folder, until):
    argv, variables = script(folder, until)
    done = subprocess.run(argv, env=variables, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.chaos
def test_a_second_script_keeps_what_the_first_one_has_committed(tmp_path):
    """It went on in the first one's history: a first one that still ran lost its last checkpoint, and ended with 0."""
    folder = tmp_path / "store"
    train(folder, until=folder / "HEAD")
    first = read_contents(LocalStorage(folder))
    train(folder, until=folder / "never")
    both = read_contents(LocalStorage(folder))
    assert both.manifests[both.head].is_complete
    assert both.manifests[both.head].history != first.manifests[first.head].history
    assert first.manifests.items() <= both.manifests.items()


@pytest.mark.chaos
def test_of_two_scripts_at_once_one_is_told_and_the_other_commits_on(tmp_path):
    """Each went on in the other's history, and deleted its commits; neither said a word."""
    folder, words = tmp_path / "store", [tmp_path / "first.log", tmp_path / "second.log"]
    scripts = []
    try:
        for log in words:
            argv, variables = script(folder, until=tmp_path / "never", pause_s=0.05)
            with log.open("wb") as said:
                scripts.append(subprocess.Popen(argv, env=variables, stdout=said, stderr=said))
            wait_until((folder / "HEAD").exists, "the first checkpoint")
        wait_until(lambda: any("two jobs write into" in log.read_text() for log in words), "one of them to be told")
        before = committed(folder)
        wait_until(lambda: committed(folder).id != before.id, "the other one's next checkpoint")
        assert committed(folder).history == before.history
    finally:
        for one in scripts:
            one.terminate()
        for one in scripts:
            one.wait(30)


def committed(folder):
    """What HEAD names, which is retired at the most once it has been replaced."""
    while True:
        contents = read_contents(LocalStorage(folder))
        if contents.head in contents.known:
            return contents.known[contents.head]
