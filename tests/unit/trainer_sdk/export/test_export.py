"""`python -m trainer_sdk.export`: the model of a checkpoint as a file of other tools, exact or not there at all."""

import json
from dataclasses import replace

import numpy as np
import pytest

from master.api.checkpoints.checkpoint_files import write_manifest
from master.api.checkpoints.local_storage import LocalStorage
from master.api.checkpoints.manifest import manifest_name, retired_name
from master.api.identities import Initialiser, OptimiserSpec, TableSpec
from master.api.positions import PositionSet
from tests.harness.checkpoint_folders import alter, commit_copy, commit_plain, commit_tables
from trainer_sdk.errors import CheckpointError
from trainer_sdk.export import __main__ as export_main
from trainer_sdk.export.saved_checkpoint import find_manifest, open_checkpoint
from trainer_sdk.group.port import CapturedState
from trainer_sdk.pserver.tables.initialisers import initial_elements

BITS = np.array([0x3F80, 0xC049, 0x7F80, 0x0001], dtype=np.uint16)  # 1.0, -3.140625, infinity, 2**-133
ARRAYS = {
    "model.0.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "model.0.half": BITS,
    "model.0.flags": np.array([True, False, True]),
    "model.1.count": np.array(7),
    "model.1.none": np.zeros((0, 4), np.float16),
    "optimizer.state.0.mean": np.ones(6),
}
META = {
    "version": 1,
    "parts": {
        "model": {
            "dict": [
                ["0.weight", {"tensor": "model.0.weight"}],
                ["0.half", {"tensor": "model.0.half"}],
                ["0.flags", {"tensor": "model.0.flags"}],
                ["1.count", {"tensor": "model.1.count"}],
                ["1.none", {"tensor": "model.1.none"}],
                ["head.weight", {"tensor": "model.0.weight"}],
                ["0._extra_state", "text"],
            ]
        },
        "optimizer": {
            "dict": [
                ["state", {"dict": [[0, {"dict": [["mean", {"tensor": "optimizer.state.0.mean"}]]}]]}],
                ["param_groups", [{"dict": [["lr", 0.1]]}]],
            ]
        },
        "schedule": {"dict": [["last_epoch", 3]]},
    },
}
REPLICA = CapturedState(arrays=ARRAYS, meta=json.dumps(META), dtypes={"model.0.half": "bfloat16"})
TENSORS = {name.removeprefix("model."): array for name, array in ARRAYS.items() if name.startswith("model.")}
TENSORS["head.weight"] = TENSORS["0.weight"]


@pytest.fixture
def folder(tmp_path):
    storage = LocalStorage(tmp_path / "checkpoints")
    first = commit_copy(storage, CapturedState(arrays={"w": np.zeros(2)}), step=1)
    commit_copy(storage, REPLICA, step=4, parent=first)
    return storage


def run(capsys, *words, code=0):
    """What the command printed; of an error, standard error."""
    assert export_main.main([str(word) for word in words]) == code
    said = capsys.readouterr()
    return said.err if code else said.out


def read_safetensors(path):
    """Header and tensors, as strictly as the format's own readers: aligned, in order, without a hole or a rest."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    assert length % 8 == 0
    assert content[8:9] == b"{"
    about, at, tensors = header.pop("__metadata__"), 0, {}
    dtypes = {"F32": "<f4", "BF16": "<u2", "BOOL": "?", "I64": "<i8", "F16": "<f2", "F64": "<f8"}
    for name, place in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = place["data_offsets"]
        dtype = np.dtype(dtypes[place["dtype"]])
        assert begin == at
        assert begin % dtype.itemsize == 0
        tensors[name] = np.frombuffer(data[begin:end], dtype).reshape(place["shape"])
        at = end
    assert at == len(data)
    return about, {name: place["dtype"] for name, place in header.items()}, tensors


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_safetensors_hold_the_state_dict_bit_for_bit(folder, tmp_path, capsys):
    """Names without the part, tied weights under each name, bfloat16 kept, scalars and empty tensors."""
    out = tmp_path / "model.safetensors"
    said = run(capsys, folder.uri, out)
    about, dtypes, tensors = read_safetensors(out)
    assert_same(tensors, TENSORS)
    assert dtypes["0.half"] == "BF16"
    assert about == {"format": "pt", "checkpoint": "000002-0000000001-000004-0a", "part": "model", "step": "4"}
    assert f"exported     {out}, {out.stat().st_size:,} bytes" in said
    assert "step         4 (10 of 14 samples)" in said
    assert "left out     0._extra_state" in said


def test_npz_holds_bfloat16_as_the_same_numbers(folder, tmp_path, capsys):
    """float32 has each value of bfloat16 exactly."""
    run(capsys, folder.uri, tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as archive:
        found = dict(archive)
    assert found["0.half"].tolist() == [1.0, -3.140625, np.inf, 2.0**-133]
    assert_same(found, TENSORS | {"0.half": found["0.half"]})
    assert found["0.half"].dtype == np.float32


def test_another_part_and_an_older_checkpoint_are_chosen_by_name(folder, tmp_path, capsys):
    """A retired checkpoint too; paths of a nested state are joined by dots."""
    out = tmp_path / "out.safetensors"
    run(capsys, folder.uri, out, "--part", "optimizer")
    assert_same(read_safetensors(out)[2], {"state.0.mean": np.ones(6)})
    older = "000002-0000000001-000001-0a"
    folder.move(manifest_name(older), retired_name(older))
    run(capsys, folder.uri, out, "--checkpoint", older, "--force")
    about, _, tensors = read_safetensors(out)
    assert_same(tensors, {"w": np.zeros(2)})
    assert about["checkpoint"] == older


def test_list_tells_parts_and_writes_nothing(folder, tmp_path, capsys):
    """As a table and as JSON; the digest is that of the replica."""
    assert "optimizer                   1               48" in run(capsys, folder.uri, "--list")
    content = json.loads(run(capsys, folder.uri, tmp_path / "x.npz", "--list", "--json", "--digest"))
    assert (content["checkpoint"], content["step"]) == ("000002-0000000001-000004-0a", 4)
    assert [part["part"] for part in content["parts"]] == ["model", "optimizer", "schedule"]
    assert {"name": "0.half", "dtype": "bfloat16", "shape": [4]} in content["parts"][0]["tensors"]
    assert content["parts"][1]["left_out"] == ["param_groups.0.lr"]
    assert len(content["digest"]) == 64
    assert not (tmp_path / "x.npz").exists()


class CountingStorage(LocalStorage):
    """A folder that counts requests and bytes, as an object store charges for them."""

    requests = read_bytes = 0

    def read(self, name, *, offset=0, length_bytes=None):
        content = super().read(name, offset=offset, length_bytes=length_bytes)
        self.requests, self.read_bytes = self.requests + 1, self.read_bytes + len(content)
        return content


def test_only_what_is_asked_for_is_read(tmp_path):
    """Names and shapes cost no tensors; a tensor costs itself, in large pieces."""
    storage = CountingStorage(tmp_path)
    arrays = {f"{number}.weight": np.full(1_000_000, number, np.float32) for number in range(20)}
    manifest = commit_copy(storage, CapturedState(arrays=arrays), step=1)
    part = open_checkpoint(storage, manifest).parts["model"]
    assert storage.read_bytes < 3_000_000
    before = storage.requests, storage.read_bytes
    np.testing.assert_array_equal(part.tensors["7.weight"].load(), arrays["7.weight"])
    assert storage.requests - before[0] <= 3
    assert storage.read_bytes - before[1] < 4_000_000 + 200_000


def test_a_file_that_is_there_is_replaced_only_by_force(folder, tmp_path, capsys):
    """Exit code 4, and its content stays."""
    out = tmp_path / "model.npz"
    out.write_bytes(b"mine")
    assert "--force replaces it" in run(capsys, folder.uri, out, code=4)
    assert out.read_bytes() == b"mine"
    run(capsys, folder.uri, out, "--force")
    assert out.read_bytes()[:2] == b"PK"


def test_a_damaged_checkpoint_is_not_exported(folder, tmp_path, capsys):
    """One byte of a part that is not asked for: exit code 1, no file, nothing half written."""
    alter(folder, commit_copy(folder, REPLICA, step=5))
    assert "does not match the digest" in run(capsys, folder.uri, tmp_path / "model.npz", code=1)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


def test_a_write_that_fails_leaves_nothing(folder, tmp_path, capsys):
    """The tensor that the format cannot hold comes after others were written."""
    float8 = CapturedState(arrays={"a": np.ones(3), "b": np.zeros(2, np.uint8)}, dtypes={"b": "float8_e5m2"})
    commit_copy(folder, float8, step=5)
    assert "b: is float8_e5m2; .npz cannot hold it" in run(capsys, folder.uri, tmp_path / "model.npz", code=4)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (["model.bin"], 4, "write one of .safetensors, .pt, .npz"),
        (["none/model.npz"], 4, "there is no folder"),
        (["model.npz", "--part", "average"], 4, "no part 'average'; choose one of model, optimizer, schedule"),
        (["model.npz", "--part", "schedule"], 4, "part 'schedule' has no tensors"),
        (["model.npz", "--checkpoint", "000009"], 3, "manifest-000009.json: is not in"),
        (["model.npz", "--checkpoint", "../x"], 1, "has other characters"),
    ],
)
def test_what_cannot_be_done_is_said(folder, tmp_path, monkeypatch, capsys, words, code, problem):
    """The sentence names what to write instead, and there is no file."""
    monkeypatch.chdir(tmp_path)
    assert problem in run(capsys, folder.uri, *words, code=code)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


def test_a_folder_whose_last_checkpoint_is_not_known_is_refused(folder, tmp_path, capsys):
    """Exit code 1 and the way out, which works."""
    folder.write_file("HEAD", [b"torn"])
    assert "--checkpoint ID chooses one" in run(capsys, folder.uri, tmp_path / "model.npz", code=1)
    run(capsys, folder.uri, tmp_path / "model.npz", "--checkpoint", "000002-0000000001-000004-0a")
    assert run(capsys, tmp_path / "empty", tmp_path / "x.npz", code=3)


TABLES = (
    TableSpec(
        name="w",
        shape=(40, 30),
        optimiser=OptimiserSpec(kind="adam", learning_rate=0.1),
        initialiser=Initialiser(kind="normal", scale=0.1, seed=3),
    ),
    TableSpec(name="e", shape=(10, 2), kind="sparse"),
    TableSpec(
        name="counts",
        shape=(3,),
        dtype="int64",
        optimiser=OptimiserSpec(kind="sgd", learning_rate=-1.0),
        initialiser=Initialiser(kind="constant", scale=5.0),
    ),
)
SERVERS = (PositionSet.span(0, 5) | PositionSet.of(9), PositionSet.span(5, 9) | PositionSet.span(10, 16))


def test_dense_tables_of_parameter_servers_are_exported(tmp_path, capsys):
    """Blocks of all servers' buckets in their places, without slots; a sparse table is named as left out."""
    storage = LocalStorage(tmp_path / "checkpoints")
    commit_tables(storage, TABLES, SERVERS)
    assert "left out     e (sparse)" in run(capsys, storage.uri, tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as archive:
        found = dict(archive)
    weights = initial_elements(TABLES[0], 0, 1200).reshape(40, 30)
    assert_same(found, {"w": weights, "counts": initial_elements(TABLES[2], 0, 3)})
    assert weights.std() > 0.05


def test_tables_of_a_checkpoint_that_lacks_buckets_are_refused(tmp_path, capsys):
    """A manifest without one server's file: exit code 1, and no model with holes."""
    storage = LocalStorage(tmp_path / "checkpoints")
    commit_tables(storage, TABLES, SERVERS)
    manifest = find_manifest(storage, None)
    with pytest.raises(CheckpointError, match="holds buckets 0-4,9"):
        open_checkpoint(storage, replace(manifest, files=manifest.files[1:])).parts["model"].tensors["w"].load()
    write_manifest(storage, replace(manifest, files=manifest.files[1:]))
    assert "the files hold 10 buckets of 16" in run(capsys, storage.uri, tmp_path / "model.npz", code=1)


def test_a_model_of_another_kind_is_refused(tmp_path, capsys):
    """A file that is neither of servers nor of a group."""
    storage = LocalStorage(tmp_path / "checkpoints")
    files = commit_copy(storage, REPLICA, step=3).files
    write_manifest(storage, replace(commit_plain(storage), files=files, bucket_count=1))
    assert "neither tables nor a replica" in run(capsys, storage.uri, tmp_path / "model.npz", code=4)


def test_a_checkpoint_without_a_model_is_refused(tmp_path, capsys):
    """Its script saves what it has learned by itself."""
    storage = LocalStorage(tmp_path / "checkpoints")
    commit_plain(storage)
    assert "holds no model" in run(capsys, storage.uri, tmp_path / "model.npz", code=4)


def test_a_checkpoint_that_its_job_replaces_meanwhile_is_read_again(folder, tmp_path, monkeypatch, capsys):
    """The newer one is exported."""
    files = [commit_copy(folder, REPLICA, step=5).files[0].name]
    check_files = export_main.check_files

    def replace_once(*given):
        if files:
            commit_copy(folder, REPLICA, step=6)
            folder.delete(files.pop())
        check_files(*given)

    monkeypatch.setattr(export_main, "check_files", replace_once)
    assert "step         6 " in run(capsys, folder.uri, tmp_path / "model.npz")
