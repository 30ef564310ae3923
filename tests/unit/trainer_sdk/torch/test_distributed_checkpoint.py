"""A group's checkpoint is one of torch's distributed checkpoints, without EDL, at any number of ranks."""

import os
import subprocess
import sys
from pathlib import Path
from shutil import copyfile

import pytest

from master.api.checkpoints.local_storage import LocalStorage
from tests.harness.checkpoint_folders import commit_copy
from tests.harness.master_process import free_port
from trainer_sdk.export.__main__ import main

torch = pytest.importorskip("torch", reason="LEFT OUT: torch is not installed (make frameworks)")
pytest.importorskip("safetensors", reason="LEFT OUT: safetensors is not installed (make frameworks)")

from trainer_sdk.torch.replica_state import TorchReplica  # noqa: E402

PROGRAM = Path(__file__).parents[3] / "programs/plain_dcp_load.py"
BUDGET_S = 300


@pytest.fixture
def trained(tmp_path):
    """Model and optimizer after two steps, committed in three shards."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(700, 900), torch.nn.Linear(900, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.rand(4, 700)).sum().backward()
        optimizer.step()
    captured = TorchReplica({"model": model, "optimizer": optimizer}).capture()
    manifest = commit_copy(LocalStorage(tmp_path / "checkpoints"), captured, step=2, shards=3)
    slots = optimizer.state_dict()["state"].items()
    tensors = model.state_dict() | {f"{n}.{key}": slot for n, held in slots for key, slot in held.items()}
    return manifest, tensors


def load_plainly(folder, out, *, ranks):
    """What processes of torch alone load."""
    port = str(free_port())
    environment = {
        "PATH": os.environ["PATH"],
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-P", str(PROGRAM), str(folder), str(out)],
            env=environment | {"RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    errors = [process.communicate(timeout=BUDGET_S)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * ranks, errors
    return torch.load(out, weights_only=True)


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize("ranks", [1, 2])
def test_export_is_loaded_without_edl(trained, tmp_path, ranks):
    """Model and optimizer's slots, bit for bit, each rank its rows."""
    _, tensors = trained
    out = tmp_path / "replica"
    assert main([str(tmp_path / "checkpoints"), str(out), "--format", "dcp"]) == 0
    assert_same(load_plainly(out, tmp_path / "loaded.pt", ranks=ranks), tensors)


def test_shards_themselves_are_loaded_without_edl(trained, tmp_path):
    """The files of one checkpoint in a folder of their own: the header names the rows that each has."""
    manifest, tensors = trained
    (tmp_path / "files").mkdir()
    for file in manifest.files:
        copyfile(tmp_path / "checkpoints" / file.name, tmp_path / "files" / file.name)
    assert_same(load_plainly(tmp_path / "files", tmp_path / "loaded.pt", ranks=2), tensors)


def test_folder_that_exists_is_refused(trained, tmp_path, capsys):
    """Its reader would take the files of both; nothing is changed, and no partial folder is left."""
    (tmp_path / "there").mkdir()
    code = main([str(tmp_path / "checkpoints"), str(tmp_path / "there"), "--format", "dcp"])
    assert (code, "name a new folder" in capsys.readouterr().err) == (4, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints", "there"]


def test_one_part_is_exported_alone(trained, tmp_path):
    """Its names keep the part's, so the script's state is the same as for all."""
    assert main([str(tmp_path / "checkpoints"), str(tmp_path / "m"), "--format", "dcp", "--part", "model"]) == 0
    (file,) = (tmp_path / "m").iterdir()
    from safetensors.torch import load_file  # noqa: PLC0415

    assert sorted(load_file(file)) == ["model.0.bias", "model.0.weight", "model.1.bias", "model.1.weight"]
