"""Runs that share a folder which nobody can claim, as an object store, delete nothing of each other (M11, ADR 0188)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from master.api.resuming import look_into
from master.api.storage import LocalStorage

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import os
import sys
import trainer_sdk as edl

with edl.open(master_budget_s=40) as session:
    for batch in session.dataset("s", size=4000, epochs=20, batch_size=10, seed=5):
        batch.done()
        if os.path.exists(sys.argv[1]):
            break
"""


def train(folder, until):
    """The script alone, with the folder as fsspec sees it, until a file stands there."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("EDL_")}
    variables |= {"EDL_CHECKPOINT_URI": f"local://{folder}", "EDL_CHECKPOINT_EVERY_S": "0.2", "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-c", SCRIPT, str(until)]
    done = subprocess.run(argv, env=variables, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.chaos
def test_a_second_script_keeps_what_the_first_one_has_committed(tmp_path):
    """It went on in the first one's history: a first one that still ran lost its last checkpoint, and ended with 0."""
    folder = tmp_path / "store"
    train(folder, until=folder / "HEAD")
    first = look_into(LocalStorage(folder))
    train(folder, until=folder / "never")
    both = look_into(LocalStorage(folder))
    assert both.manifests[both.head].is_complete
    assert both.manifests[both.head].history != first.manifests[first.head].history
    assert first.manifests.items() <= both.manifests.items()
