"""The script of the demo's torch group, and the process that judges its model."""

import subprocess
import sys

import numpy as np
import pytest

from experiments.demo.baseline import EXAMPLES
from tests.harness.lone_script import run_alone

pytestmark = pytest.mark.torch
EPOCHS = 2


def test_the_script_counts_each_digit_and_its_model_is_as_good_as_plain_torch_makes_it(tmp_path):
    """Also in the last step of an epoch, which has fewer digits than the others."""
    done = run_alone(
        tmp_path,
        str(EXAMPLES / "digits_torch_ledger.py"),
        f"--epochs={EPOCHS}",
        f"--out={tmp_path / 'model'}",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert np.load(tmp_path / "model" / "ledger.npy").tolist() == [EPOCHS] * 1437

    words = (EXAMPLES / "digits.npz", "7", str(EPOCHS), tmp_path / "model" / "model.pt")
    judged = subprocess.run(
        [sys.executable, "-m", "experiments.demo.torch_baseline", *words],
        cwd=EXAMPLES.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    alone, group = map(float, judged.stdout.split())
    assert alone > 0.9
    assert group == pytest.approx(alone, abs=0.03)
