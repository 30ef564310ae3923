"""Models on an accelerator train as on the CPU: the tests of groups again, on each accelerator that can be had here.

Everywhere a device whose copies are as late as they may be (`tests/harness/deferred_device`), which the C++ compiler
builds at its first use; and the GPU of this machine, if it has one.  Each in a process of its own, since torch has one
accelerator a process.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import TORCH_LEFT_OUT

torch = pytest.importorskip("torch", reason=TORCH_LEFT_OUT)

from tests.harness.deferred_device import can_be_built  # noqa: E402

pytestmark = pytest.mark.timeout(900)
HERE = Path(__file__).parent
ON_THE_DEVICE = (
    "test_gradient_buckets.py",
    "test_model_buffers.py",
    "test_group_training.py",
    "test_group_reading.py",
    "test_group_epochs.py",
    "test_loop_misuse.py",
    "device_cases.py",
)
GPU_LEFT_OUT = "LEFT OUT: no GPU here; `python -m tests.gpu` where there is one"
COMPILER_LEFT_OUT = "LEFT OUT: no g++ or ninja to build a device with"


@pytest.mark.parametrize(
    "device",
    [
        pytest.param("deferred", marks=pytest.mark.skipif(not can_be_built(), reason=COMPILER_LEFT_OUT)),
        pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason=GPU_LEFT_OUT)),
    ],
)
def test_groups_train_on_an_accelerator_as_on_the_cpu(device):
    """Gradients, buffers, states, aborts, joins and a failing device (M10, rule 68)."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *(str(HERE / name) for name in ON_THE_DEVICE),
    ]
    done = subprocess.run(
        command, env=os.environ | {"EDL_TEST_DEVICE": device}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
