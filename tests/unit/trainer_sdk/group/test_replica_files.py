"""A copy of a replica as files: the same replica from any number of shards, or refused by name."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from master.api.checkpoints.storage import open_storage
from master.api.group_shares import data_of
from master.api.messages.generations import StateId
from master.api.positions import PositionSet
from tests.unit.trainer_sdk.group.group_world import DATASET, LINEAGE
from tests.unit.trainer_sdk.group.test_captured_state import STATE, assert_same
from trainer_sdk.errors import CheckpointError, UsageError
from trainer_sdk.group import array_cuts
from trainer_sdk.group.array_cuts import WHOLE_BELOW_BYTES, cut_rows, shard_of
from trainer_sdk.group.port import ArrayShape, CapturedState
from trainer_sdk.group.replica_files import read_copy, write_shard

AT = StateId(lineage=LINEAGE, generation=2, step=4)
SKIPPED = PositionSet.of(2)


def write(storage, captured, shards=1, *, state=AT):
    """The records of all shards, and what each says of the whole."""
    written = [
        write_shard(
            storage,
            f"copy-{shard}.safetensors",
            shard_of(captured, shard, shards),
            dataset=DATASET,
            state=state,
            skipped=SKIPPED,
        )
        for shard in range(shards)
    ]
    assert len({contents for _, contents in written}) == 1
    return [record for record, _ in written]


def test_files_give_back_replica_and_position(tmp_path):
    """Rule 90: the position of a checkpoint is that of its files; the marks say what each has trained."""
    storage = open_storage(str(tmp_path))
    for shards in (1, 2, 5):
        records = write(storage, STATE, shards)
        loaded = read_copy(storage, records)
        assert (loaded.state, loaded.skipped) == (AT, SKIPPED)
        assert_same(loaded.captured, STATE)
        for shard, record in enumerate(records):
            (marks,) = record.marks
            assert (marks.buckets, marks.applied) == (PositionSet.of(shard), data_of(DATASET, 4) - SKIPPED)


@given(
    arrays=st.dictionaries(
        st.text(min_size=1, max_size=5).filter(lambda name: name != "__metadata__"),
        hnp.arrays(
            dtype=st.sampled_from(["<f4", ">f8", "<f2", "<i8", "<u2", "?", "<c8", "<c16", "<f16"]),
            shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9),
        ),
        max_size=4,
    ),
    shards=st.integers(1, 7),
    whole_below=st.sampled_from([0, 8, WHOLE_BELOW_BYTES]),
)
def test_any_arrays_come_back_from_any_number_of_shards(tmp_path_factory, arrays, shards, whole_below):
    """Names, dtypes, scalars and arrays without numbers; cut between rows, or kept whole."""
    storage = open_storage(str(tmp_path_factory.mktemp("copy")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(array_cuts, "WHOLE_BELOW_BYTES", whole_below)
        records = write(storage, CapturedState(arrays=arrays), shards)
    assert_same(read_copy(storage, records).captured, CapturedState(arrays=arrays))


def test_shards_are_equal_parts_of_the_bytes():
    """Rule 84: within the largest row, and the largest array that is not cut."""
    arrays = {
        "embedding": ArrayShape(dtype="<f4", shape=(50_000, 512)),
        "bias": ArrayShape(dtype="<f4", shape=(512,)),
        **{f"layer.{n}": ArrayShape(dtype="<f4", shape=(2048, 512)) for n in range(10)},
    }
    total = sum(one.nbytes for one in arrays.values())
    for shards in (2, 3, 8):
        sizes = [
            sum(arrays[name].cut(rows).nbytes for name, rows in cut_rows(arrays, shard, shards).items())
            for shard in range(shards)
        ]
        assert sum(sizes) == total
        assert max(sizes) - min(sizes) < 2 * WHOLE_BELOW_BYTES


def test_altered_file_is_refused(tmp_path):
    """A byte of the file changed after the commit."""
    storage = open_storage(str(tmp_path))
    records = write(storage, STATE, 2)
    path = tmp_path / records[1].name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"copy-1\.safetensors"):
        read_copy(storage, records)


def test_shards_that_do_not_fit_are_refused(tmp_path):
    """Rule 88: of another state, of other arrays, twice the same, or not all."""
    storage, other = open_storage(str(tmp_path / "a")), open_storage(str(tmp_path / "b"))
    records = write(storage, STATE, 2)
    for shard in write(other, STATE, 2, state=replace(AT, generation=3)):
        storage.write_file(f"later-{shard.name}", [other.read(shard.name)])
    later = [replace(shard, name=f"later-{shard.name}") for shard in write(other, STATE, 2, state=replace(AT, step=3))]
    storage.write_file(later[1].name, [other.read("copy-1.safetensors")])
    for files, problem in (
        ([records[0], later[1]], "another state"),
        ([records[0], records[0]], "shard 0 of 2, not 1"),
        ([records[0]], "shard 0 of 2, not 0 of 1"),
        ([records[1], records[0]], "shard 1 of 2, not 0"),
    ):
        with pytest.raises(CheckpointError, match=problem):
            read_copy(storage, files)


@pytest.mark.parametrize("content", [b"", b"12345678", b"\x02" + bytes(7) + b"[]", b"\x02" + bytes(7) + b"{}"])
def test_what_is_no_replica_is_refused(tmp_path, content):
    """Whoever wrote it, also with the digest that was committed."""
    storage = open_storage(str(tmp_path))
    (record,) = write(storage, STATE)
    done = storage.write_file(record.name, [content])
    with pytest.raises(CheckpointError, match=r"holds no replica|no file of arrays"):
        read_copy(storage, [replace(record, digest=done.digest, size_bytes=done.size_bytes)])


def test_objects_are_refused_at_the_source(tmp_path):
    """What capture() gave is named."""
    captured = CapturedState(arrays={"names": np.array(["a", None], dtype=object)})
    with pytest.raises(UsageError, match="'names'"):
        write(open_storage(str(tmp_path)), captured)
