"""Harmed folders under real processes: a script, its master and its server go on rightly, or refuse by name (M11)."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.master.api.checkpoints.test_damage import HARMS, harmed

ROOT = Path(__file__).resolve().parents[3]
CASES = 24
SCRIPT = """
import hashlib
import numpy as np
import trainer_sdk as edl

with edl.open(master_budget_s=40, server_budget_s=40) as session:
    model = session.tables({"w": edl.dense((16, 4))}, optimiser=edl.adam(0.1))
    for batch in session.dataset("s", size=200, epochs=2, batch_size=10, seed=5):
        weights = model.pull()
        model.push({"w": np.full((16, 4), 0.25, np.float32)})
        batch.done()
    print("ended", hashlib.sha256(model.pull()["w"].tobytes()).hexdigest())
"""


def train(folder):
    """The script, alone, to its end: exit code, the model's digest, what it said."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("EDL_")}
    variables |= {
        "EDL_CHECKPOINT_URI": str(folder),
        "EDL_CHECKPOINT_EVERY_S": "0.2",
        "EDL_UNREADABLE_S": "1",
        "PYTHONPATH": str(ROOT),
        "OPENBLAS_NUM_THREADS": "1",
    }
    argv = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(argv, env=variables, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout.strip(), done.stderr


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "checkpoints"
    code, model, said = train(folder)
    assert code == 0, said
    assert model.startswith("ended ")
    return folder, model


@pytest.mark.chaos
@pytest.mark.parametrize("case", range(CASES))
def test_a_harmed_folder_ends_in_the_trained_model_or_a_refusal(trained, tmp_path, case):
    """Everything was trained: whoever starts there has that model, or says which file it could not read."""
    good, model = trained
    folder = tmp_path / "checkpoints"
    shutil.copytree(good, folder)
    rng = random.Random(case)
    kind = ("cut-*", "HEAD", "manifest-*")[case % 3]
    files = sorted(path for pattern in ("cut-*", "HEAD", "manifest-*") for path in folder.glob(pattern))
    harm = HARMS[(case // 3) % len(HARMS)]
    names, _, _ = harmed(rng, harm, rng.choice(sorted(folder.glob(kind))), files)
    before = {path.name for path in folder.iterdir()}
    code, found, said = train(folder)
    if code == 0:
        assert found == model, f"{harm} of {names}: another model\n{said}"
    else:
        assert any(name in said for name in names), f"{harm} of {names}: refused without a name\n{said}"
        assert before <= {path.name for path in folder.iterdir()}, "something was deleted"
