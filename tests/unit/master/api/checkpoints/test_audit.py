"""A checkpoint is readable, and its lies are found, without a running job (M1, M8)."""

import re
from dataclasses import replace

import pytest

from master.api.checkpoints.audit import audit_storage, read_checkpoint, write_head_hint
from master.api.checkpoints.checkpoint_files import write_manifest
from master.api.checkpoints.local_storage import LocalStorage
from master.api.errors import StorageAlteredError, StorageMissingError
from master.api.identities import ManifestId, Term
from master.api.positions import PositionSet
from tests.unit.master.api.checkpoints.test_manifest_codec import FILE, MANIFEST


@pytest.fixture
def folder(tmp_path):
    """Two checkpoints in a row, each with one true file, and a manifest beside them."""
    storage = LocalStorage(tmp_path)
    written = storage.write_file(FILE.name, [bytes(4096)])
    file = replace(FILE, size_bytes=written.size_bytes, digest=written.digest)
    first = replace(MANIFEST, files=(file,))
    write_manifest(storage, first)
    write_manifest(storage, replace(first, id=ManifestId("l1-t7-2"), parent=first.id, step=62))
    write_manifest(storage, replace(first, id=ManifestId("l1-t5-9"), term=Term(5), step=90, parent=ManifestId("gone")))
    write_head_hint(storage, ManifestId("l1-t7-2"))
    return storage


def test_a_sound_checkpoint_is_told_by_epoch(folder):
    """Positions per epoch, the chain, and what stands beside it."""
    audit = read_checkpoint(folder.uri)
    assert audit.is_sound, audit.problems
    assert (audit.head.id, audit.chain, audit.orphans) == ("l1-t7-2", ("l1-t7-2", "l1-t7-1"), ("l1-t5-9",))
    first, second = audit.epochs
    assert (len(first.trained), first.quarantined, first.missing) == (500, PositionSet(), PositionSet())
    assert second.quarantined == PositionSet.of(450)
    assert second.missing == PositionSet.span(400, 450) | PositionSet.span(451, 460)


def test_the_hint_outranks_the_newest_end(folder):
    """A user who restored an older checkpoint sees that one (M8)."""
    write_head_hint(folder, MANIFEST.id)
    assert read_checkpoint(folder.uri).head.id == MANIFEST.id
    assert read_checkpoint(folder.uri, head=ManifestId("l1-t5-9")).head.id == "l1-t5-9"


@pytest.mark.parametrize(
    ("content", "problem"),
    [(bytes(4095) + b"x", "does not match the digest"), (bytes(100), "too early"), (None, "is not in")],
)
def test_a_file_that_is_not_what_was_written_is_named(folder, content, problem):
    """Altered, truncated and missing files each have their sentence."""
    if content is None:
        folder.delete(FILE.name)
    else:
        folder.write_file(FILE.name, [content])
    audit = read_checkpoint(folder.uri)
    assert problem in audit.files[0].problem
    assert any(FILE.name in line for line in audit.problems)


def test_files_that_disagree_with_the_data_state_are_found(folder):
    """A checkpoint's data state is what its files say (rule 22)."""
    false = replace(MANIFEST, id=ManifestId("l9-t9-1"), data=MANIFEST.data | PositionSet.of(955), files=(FILE,))
    write_manifest(folder, false)
    audit = read_checkpoint(folder.uri, head=false.id, verifies_files=False)
    assert audit.problems == (f"{FILE.name}: buckets 0-3 have other marks than the manifest's data state",)


def test_a_torn_manifest_is_a_problem_and_no_obstacle(folder):
    """The rest of the folder is still told."""
    folder.write_file("manifest-l1-t7-3.json", [b'{"format": "edl-man'])
    audit = read_checkpoint(folder.uri)
    assert audit.head.id == "l1-t7-2"
    assert "manifest-l1-t7-3.json" in audit.problems[0]


def test_a_folder_whose_manifests_are_all_harmed_is_not_taken_for_an_empty_one(tmp_path):
    """Something was committed there, and cannot be read."""
    storage = LocalStorage(tmp_path)
    storage.write_file("manifest-l1-t7-3.json", [b'{"format": "edl-man'])
    with pytest.raises(StorageAlteredError, match=r"manifest-l1-t7-3\.json"):
        read_checkpoint(storage.uri)


def test_an_empty_folder_has_no_checkpoint(tmp_path):
    """Said so, with the folder's name."""
    with pytest.raises(StorageMissingError, match=f"^{re.escape(str(tmp_path))}: no checkpoint was committed"):
        read_checkpoint(str(tmp_path))


class Busy(LocalStorage):
    """The folder of a job that goes on: what new checkpoints have replaced is collected while somebody reads."""

    def read(self, name, *, offset=0, length_bytes=None):
        if name == f"manifest-{MANIFEST.id}.json":
            self.delete(name)
        return super().read(name, offset=offset, length_bytes=length_bytes)


def test_what_a_job_collects_while_its_checkpoint_is_read_is_no_problem(folder, tmp_path):
    """It is not lost: nobody needs it any more."""
    audit = audit_storage(Busy(tmp_path))
    assert (audit.problems, audit.head.id, audit.chain) == ((), "l1-t7-2", ("l1-t7-2",))


class Committing(LocalStorage):
    """The folder of a job that commits once, between a reader's listing and its first look into a manifest."""

    def read(self, name, *, offset=0, length_bytes=None):
        only = f"manifest-{MANIFEST.id}.json"
        if name == only and self.exists(only):
            write_manifest(self, replace(MANIFEST, id=ManifestId("l1-t7-2"), parent=MANIFEST.id))
            write_head_hint(self, ManifestId("l1-t7-2"))
            self.move(only, f"retired-{MANIFEST.id}.json")
        return super().read(name, offset=offset, length_bytes=length_bytes)


def test_a_job_that_replaces_its_only_manifest_while_it_is_read_is_not_damaged(tmp_path):
    """A running job's folder has one manifest, and each commit renames it: the reader begins anew."""
    storage = Committing(tmp_path)
    write_manifest(storage, MANIFEST)
    write_head_hint(storage, MANIFEST.id)
    audit = audit_storage(storage, verifies_files=False)
    assert (audit.problems, audit.head.id) == ((), "l1-t7-2")


@pytest.mark.parametrize("content", [b"l1-t9-9\n", b"l1-t7-2", b""])
def test_nothing_is_called_sound_that_head_does_not_name(folder, content):
    """HEAD names what is gone, or nothing: another manifest is told of, and said to stand beside the chain (M11)."""
    folder.write_file("HEAD", [content])
    audit = read_checkpoint(folder.uri)
    assert audit.head.id == "l1-t7-2"
    assert not audit.is_sound
    assert "outside the chain" in audit.problems[0]


def test_a_missing_head_beside_two_ends_is_a_problem(folder):
    """Which of them was the last is a guess."""
    folder.delete("HEAD")
    assert "2 manifests may have been the last" in read_checkpoint(folder.uri).problems[0]


def test_a_file_that_is_longer_than_its_record_is_found(folder):
    """The bytes behind its end are covered by no digest."""
    folder.write_file(FILE.name, [bytes(4096), b"x"])
    assert "is longer than the 4,096 bytes" in read_checkpoint(folder.uri).files[0].problem
