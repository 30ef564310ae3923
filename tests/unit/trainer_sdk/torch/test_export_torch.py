"""The exported model of a torch replica is what its own state_dict() holds, and loads into a fresh model."""

import json
import subprocess
import sys

import pytest

from master.api.checkpoints.local_storage import LocalStorage
from tests.harness.checkpoint_folders import commit_copy
from trainer_sdk.export.__main__ import main

torch = pytest.importorskip("torch", reason="LEFT OUT: torch is not installed (make frameworks)")

from trainer_sdk.torch.replica_state import TorchReplica  # noqa: E402

nn = torch.nn


class Network(nn.Module):
    """Tied weights, running statistics, a layer in bfloat16, and a buffer of 16-bit whole numbers."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.body = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
        self.low = nn.Linear(3, 3, dtype=torch.bfloat16)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("counts", torch.tensor([65535, 1], dtype=torch.uint16))


@pytest.fixture
def trained(tmp_path):
    """A model after a step of Adam, committed to the folder."""
    torch.manual_seed(3)
    model = Network()
    optimizer = torch.optim.Adam(model.parameters())
    hidden = model.body(model.embedding(torch.tensor([0, 1, 4])))
    (model.head(hidden).sum() + model.low(hidden.bfloat16()).sum().float()).backward()
    optimizer.step()
    captured = TorchReplica({"model": model, "optimizer": optimizer}).capture()
    commit_copy(LocalStorage(tmp_path / "checkpoints"), captured, step=2)
    return model


def assert_equal(found, expected):
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


def test_pt_loads_into_a_fresh_model(trained, tmp_path):
    """Without unpickling code; names, dtypes and bits are those of state_dict(), and tied weights stay one tensor."""
    assert main([str(tmp_path / "checkpoints"), str(tmp_path / "model.pt")]) == 0
    found = torch.load(tmp_path / "model.pt", weights_only=True)
    assert_equal(found, trained.state_dict())
    assert found["head.weight"].data_ptr() == found["embedding.weight"].data_ptr()
    fresh = Network()
    fresh.load_state_dict(found)
    assert_equal(fresh.state_dict(), trained.state_dict())


def test_safetensors_have_the_dtypes_and_bits_of_the_state_dict(trained, tmp_path):
    """Read as torch would: each tensor from its place, by its name of a dtype."""
    assert main([str(tmp_path / "checkpoints"), str(tmp_path / "model.safetensors")]) == 0
    content = (tmp_path / "model.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__")
    dtypes = {"F32": torch.float32, "BF16": torch.bfloat16, "I64": torch.int64, "U16": torch.uint16}
    found = {}
    for name, place in header.items():
        begin, end = place["data_offsets"]
        data = bytearray(content[8 + length + begin : 8 + length + end])
        found[name] = torch.frombuffer(data, dtype=dtypes[place["dtype"]]).reshape(place["shape"])
    expected = trained.state_dict()
    assert_equal({name: found[name] for name in expected}, expected)
    assert found.keys() == expected.keys()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, as its compiler is imported
def test_model_that_was_compiled_loads_into_one_that_was_not(tmp_path):
    """Also where parts of it were: torch.compile(module) returns another one, which holds it by a name of its own."""
    model = Network()
    expected = model.state_dict()
    model.body = torch.compile(model.body)
    captured = TorchReplica({"model": torch.compile(model)}).capture()
    commit_copy(LocalStorage(tmp_path / "checkpoints"), captured, step=2)
    assert main([str(tmp_path / "checkpoints"), str(tmp_path / "model.pt")]) == 0
    assert_equal(torch.load(tmp_path / "model.pt", weights_only=True), expected)


def test_slots_of_an_optimizer_are_a_part(trained, tmp_path):
    """By the paths of its state_dict(); numbers that are no tensors are left out."""
    assert main([str(tmp_path / "checkpoints"), str(tmp_path / "slots.pt"), "--part", "optimizer"]) == 0
    found = torch.load(tmp_path / "slots.pt", weights_only=True)
    assert {name.rsplit(".", 1)[1] for name in found} == {"step", "exp_avg", "exp_avg_sq"}


def test_torch_is_loaded_for_pt_alone(trained, tmp_path):
    """Where torch is missing, .safetensors works, and .pt is refused with what to do; exit code 4."""
    without = "import sys; sys.modules['torch'] = None; from trainer_sdk.export.__main__ import main; "

    def export(out):
        code = f"{without} sys.exit(main([{str(tmp_path / 'checkpoints')!r}, {str(tmp_path / out)!r}]))"
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert export("model.safetensors").returncode == 0
    done = export("model.pt")
    assert (done.returncode, "write .safetensors" in done.stderr) == (4, True)
    assert not (tmp_path / "model.pt").exists()
