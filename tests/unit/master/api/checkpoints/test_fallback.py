"""Who was asked to fall back goes to the newest whole checkpoint and tells what that costs (M11, ADR 0189)."""

from dataclasses import replace

import pytest

from master.api.checkpoints.audit import write_head_hint
from master.api.checkpoints.checkpoint_files import write_manifest
from master.api.checkpoints.fallback import check_start, find_fallback
from master.api.checkpoints.folder_contents import RequestedStart
from master.api.checkpoints.local_storage import LocalStorage
from master.api.errors import NoFallbackError, UnreadableCheckpointError
from master.api.identities import HistoryId, ManifestId, WhenUnreadable
from master.api.positions import PositionSet
from tests.unit.master.api.checkpoints.test_manifest_codec import FILE, MANIFEST

IDS = tuple(f"000001-0000000002-00000{number}-aaaaaaaa" for number in (1, 2, 3))


def written(storage, number):
    """The checkpoint of the first `number` hundred positions."""
    name = f"cut-1-2-{number}-0-a.edl"
    done = storage.write_file(name, [bytes([number]) * 100])
    file = replace(FILE, name=name, size_bytes=done.size_bytes, digest=done.digest)
    parent = ManifestId(IDS[number - 2]) if number > 1 else None
    data = PositionSet.span(0, 100 * number)
    changes = {"parent": parent, "term": 2, "step": number, "data": data, "files": (file,)}
    manifest = replace(MANIFEST, id=ManifestId(IDS[number - 1]), **changes)
    write_manifest(storage, manifest)
    return manifest


@pytest.fixture
def storage(tmp_path):
    """Two checkpoints, the older one retired, and a newer manifest that was not committed."""
    storage = LocalStorage(tmp_path)
    for number in (1, 2, 3):
        written(storage, number)
    storage.move(f"manifest-{IDS[0]}.json", f"retired-{IDS[0]}.json")
    write_head_hint(storage, ManifestId(IDS[1]))
    return storage


def found(storage, head=IDS[1], **more):
    return find_fallback(storage, head and ManifestId(head), "the disk says no", now_s=0.0, **more)


def alter(storage, name):
    content = bytearray(storage.read(name))
    content[min(50, len(content) - 1)] ^= 1
    storage.write_file(name, [content])


def test_an_altered_data_file_costs_what_came_after_the_checkpoint_before(storage):
    """The length is right, so every byte is read; the manifest still tells how much goes back."""
    alter(storage, "cut-1-2-2-0-a.edl")
    fallback = found(storage)
    assert fallback.chosen.id == IDS[0]
    assert "100 samples are trained again" in fallback.description
    assert "the disk says no" in fallback.description
    assert IDS[1] in fallback.description


@pytest.mark.parametrize("harm", ["altered", "gone"])
def test_a_manifest_that_cannot_be_read_is_older_than_one_that_was_never_committed(storage, harm):
    """Its id tells what came before it; how much goes back only it could tell."""
    if harm == "gone":
        storage.delete(f"manifest-{IDS[1]}.json")
    else:
        alter(storage, f"manifest-{IDS[1]}.json")
    fallback = found(storage)
    assert fallback.chosen.id == IDS[0]
    assert "the number of repeated samples is unknown" in fallback.description


def test_without_a_word_which_was_last_the_newest_whole_one_is_taken(storage):
    """HEAD itself is lost, and there is no store."""
    storage.delete("HEAD")
    assert found(storage, head=None).chosen.id == IDS[2]
    alter(storage, "cut-1-2-3-0-a.edl")
    assert found(storage, head=None).chosen.id == IDS[1]


def test_a_last_checkpoint_whose_files_have_come_back_is_gone_on_from(storage):
    """Nothing goes back then; but not where servers cannot load what this process reads: they would fail again."""
    fallback = found(storage)
    assert fallback.chosen.id == IDS[1]
    assert "which is intact" in fallback.description
    with pytest.raises(UnreadableCheckpointError, match="check the mounts of the parameter servers"):
        found(storage, has_failed_to_load=True)


def test_where_no_checkpoint_is_whole_nothing_begins(storage):
    """Beginning anew by itself would train over whatever somebody could still bring back."""
    for number in (1, 2):
        alter(storage, f"cut-1-2-{number}-0-a.edl")
    before = storage.list()
    with pytest.raises(UnreadableCheckpointError, match=r"has no intact checkpoint before it\. the disk says no"):
        found(storage)
    assert storage.list() == before


def test_a_start_that_is_refused_is_left_to_the_master_where_it_may_fall_back(storage):
    """An answer is somebody's word, and is refused where it cannot be followed."""
    alter(storage, f"manifest-{IDS[1]}.json")
    check_start(storage, None, WhenUnreadable.FALL_BACK, now_s=0.0)
    with pytest.raises(UnreadableCheckpointError):
        check_start(storage, None, WhenUnreadable.FAIL, now_s=0.0)
    answer = RequestedStart(manifest=ManifestId("nowhere"), history=HistoryId("h"))
    with pytest.raises(UnreadableCheckpointError):
        check_start(storage, answer, WhenUnreadable.FALL_BACK, now_s=0.0)


def test_an_answer_that_no_longer_counts_keeps_nobody_from_falling_back(storage):
    """Something of its history was committed since: what is damaged now is damaged as anywhere else."""
    alter(storage, f"manifest-{IDS[1]}.json")
    answer = RequestedStart(manifest=ManifestId("nowhere"), history=MANIFEST.history)
    check_start(storage, answer, WhenUnreadable.FALL_BACK, now_s=0.0)


@pytest.mark.parametrize("is_damaged", [True, False])
def test_a_store_that_is_an_older_copy_is_nothing_to_fall_back_from(storage, is_damaged):
    """HEAD names the newer checkpoint, which is whole: it would be set aside (M11)."""
    storage.move(f"retired-{IDS[0]}.json", f"manifest-{IDS[0]}.json")
    write_head_hint(storage, ManifestId(IDS[2]))
    if is_damaged:
        alter(storage, f"manifest-{IDS[1]}.json")
    with pytest.raises(NoFallbackError, match="HEAD shows that it is not the last"):
        found(storage)


@pytest.mark.parametrize("is_damaged", [True, False])
def test_a_head_that_is_an_older_copy_is_nothing_to_fall_back_from(storage, is_damaged):
    """There is no store, and a manifest shows what was committed after the one that HEAD names (M11)."""
    storage.move(f"retired-{IDS[0]}.json", f"manifest-{IDS[0]}.json")
    write_head_hint(storage, ManifestId(IDS[0]))
    with pytest.raises(NoFallbackError):
        check_start(storage, None, WhenUnreadable.FALL_BACK, now_s=0.0)
    if is_damaged:
        alter(storage, f"manifest-{IDS[0]}.json")
    with pytest.raises(NoFallbackError, match=IDS[2]):
        found(storage, head=None)
