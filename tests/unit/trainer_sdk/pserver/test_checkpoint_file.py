"""One server's checkpoint file: what is written is read back, bucket by bucket, and nothing else is read."""

import pytest

from master.api.checkpoints.local_storage import LocalStorage
from master.api.identities import CutId, Incarnation, Lineage, MemberName, TableSpec, Term
from master.api.messages.checkpoint_files import BucketMarks
from master.api.positions import PositionSet
from trainer_sdk.errors import CheckpointError
from trainer_sdk.pserver.transfer import checkpoint_file
from trainer_sdk.pserver.transfer.checkpoint_file import CheckpointAuthor, read_buckets, read_index, write_checkpoint

AUTHOR = CheckpointAuthor(
    server=MemberName("s0"),
    incarnation=Incarnation("i"),
    bucket_count=8,
    tables=(TableSpec(name="w", shape=(4,)),),
)
CUT = CutId(term=Term(7), lineage=Lineage(2), sequence=3)
MARKS = (
    BucketMarks(buckets=PositionSet.span(0, 2), applied=PositionSet.span(0, 5)),
    BucketMarks(buckets=PositionSet.of(4, 7), applied=PositionSet.span(0, 5)),
)
CONTENT = {bucket: bytes([bucket]) * (bucket + 1) * 10 for bucket in (0, 1, 4, 7)}


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(tmp_path)


@pytest.fixture
def record(storage):
    return write_checkpoint(storage, AUTHOR, CUT, MARKS, lambda bucket: [memoryview(CONTENT[bucket])])


@pytest.mark.parametrize("together", [1, 1 << 20], ids=["one at a time", "neighbours together"])
@pytest.mark.parametrize("asked", [(0, 1, 4, 7), (1, 7), (4,), (3, 5), (0, 3)])
def test_the_buckets_asked_for_are_read_whole(storage, record, monkeypatch, together, asked):
    """Those that the file has of them, however reads are joined."""
    monkeypatch.setattr(checkpoint_file, "_READ_BYTES", together)
    read = {bucket: bytes(data) for bucket, data in read_buckets(storage, record, PositionSet.of(*asked))}
    assert read == {bucket: CONTENT[bucket] for bucket in asked if bucket in CONTENT}


def test_only_what_was_asked_for_is_verified(storage, record):
    """A bucket that is another server's by now does not keep this one from restoring."""
    path = storage._folder / record.name
    data = bytearray(path.read_bytes())
    (begin,) = (offset for bucket, offset, _, _ in record.extents if bucket == 4)
    data[begin] ^= 1
    path.write_bytes(data)
    assert [bucket for bucket, _ in read_buckets(storage, record, PositionSet.of(0, 7))] == [0, 7]
    with pytest.raises(CheckpointError, match="bucket 4 does not have its digest"):
        list(read_buckets(storage, record, PositionSet.of(4)))


def test_a_file_says_by_itself_what_it_holds(storage, record):
    """All that the manifest has of it, and whose it is."""
    index = read_index(storage, record.name, record.size_bytes)
    assert (index.cut, index.server, index.incarnation) == (CUT, AUTHOR.server, AUTHOR.incarnation)
    assert (index.bucket_count, index.tables) == (AUTHOR.bucket_count, AUTHOR.tables)
    assert index.marks == record.marks == MARKS
    assert index.extents == record.extents
    assert (record.lineage, record.size_bytes) == (CUT.lineage, (storage._folder / record.name).stat().st_size)


@pytest.mark.parametrize("size", [0, 8, 20, 100])
def test_a_file_that_was_cut_short_is_refused(storage, record, size):
    """Before anything of it is believed."""
    path = storage._folder / record.name
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CheckpointError, match="cut short"):
        read_index(storage, record.name, size)
