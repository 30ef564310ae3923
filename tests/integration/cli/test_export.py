"""`edl export` by the installed command: a job that is over, found by its name, and a folder."""

import json
import subprocess
from pathlib import Path

import numpy as np

from autoscaler.clusters.local.run_files.run_folder import RunFolder
from tests.harness.edl_command import DEADLINE_S, EDL, edl

TRAIN = """
import numpy as np
import trainer_sdk as edl

seen = np.zeros(40, np.int64)

def restore(arrays):
    if arrays is not None:
        seen[:] = arrays["seen"]

with edl.open() as session:
    session.own_model(save=lambda: {"seen": seen}, restore=restore)
    for batch in session.dataset("numbers", size=40, epochs=2, batch_size=8, seed=1):
        seen[batch.indices] += 1
        batch.done()
"""
FAST = ("--no-etcd", "--no-view", "--cpu", "250m", "--memory", "64Mi")


def test_the_model_of_a_job_that_is_over_is_exported(tmp_path):
    """By tj/NAME in the folder of its run, and by its checkpoint folder: each record was trained once an epoch."""
    (tmp_path / "train.py").write_text(TRAIN)
    argv = [EDL, "launch", *FAST, "--trainers", "1", "train.py"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    run = Path(done.stdout.splitlines()[0].removeprefix("run folder: ").strip())
    assert not RunFolder(root=tmp_path / run).control_socket().exists()
    out = tmp_path / "model.npz"
    told = json.loads(edl("export", "tj/train", str(out), "--json", run=tmp_path / run))
    assert (told["part"], told["trained"], told["samples"]) == ("model", 80, 80)
    with np.load(out) as archive:
        assert archive["seen"].tolist() == [2] * 40
    folder = str(tmp_path / run / "checkpoints" / "train")
    assert "--force replaces it" in edl("export", folder, str(out), code=4)
    edl("export", folder, str(out), "--force")


def test_what_is_wrong_is_the_exit_code(tmp_path):
    """2: the command line; 3: no checkpoint; 4: refused.  Nothing is written."""
    assert "name a file" in edl("export", str(tmp_path), code=2)
    assert "no checkpoint was committed" in edl("export", str(tmp_path), str(tmp_path / "m.npz"), code=3)
    assert "there is no folder" in edl("export", str(tmp_path), str(tmp_path / "none" / "m.npz"), code=4)
    assert not list(tmp_path.iterdir())
