"""The folder keeps what is needed and adopts only what is whole (rules 24, 25)."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace

import pytest

from master.api.checkpoints.audit import try_head_hint
from master.api.checkpoints.local_storage import LocalStorage
from master.api.checkpoints.manifest import Manifest
from master.api.errors import StorageError
from master.api.identities import HistoryId, Lineage, ManifestId, Term
from master.api.messages.generations import StateId
from master.durable.checkpoint_folder import CheckpointFolder, call_with_timeout
from tests.unit.master.api.checkpoints.test_manifest_codec import FILE, MANIFEST
from tests.unit.master.api.checkpoints.test_storage_folder import leave_a_temporary_file, temporary_files


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(tmp_path)


@pytest.fixture
def folder(storage):
    return CheckpointFolder(storage)


def written(storage, folder, name: str, **changes) -> Manifest:
    """A manifest with a true file of its own."""
    done = storage.write_file(f"{name}/server-0.edl", [name.encode() * 100])
    file = replace(FILE, name=f"{name}/server-0.edl", size_bytes=done.size_bytes, digest=done.digest)
    manifest = replace(MANIFEST, id=ManifestId(name), files=(file,), **changes)
    folder.write(manifest)
    return manifest


def test_a_whole_manifest_of_this_parent_and_lineage_is_adopted(storage, folder):
    """The newest of those that fit."""
    parent = ManifestId("head")
    written(storage, folder, "other-parent", parent=None)
    written(storage, folder, "other-lineage", parent=parent, lineage=Lineage(9))
    written(storage, folder, "older", parent=parent, term=Term(6), step=500)
    newest = written(storage, folder, "newest", parent=parent, term=Term(8))
    assert folder.find_adoptable(parent, Lineage(1)) == newest
    assert folder.find_adoptable(ManifestId("nobody"), Lineage(1)) is None


def test_a_manifest_with_a_broken_file_is_not_adopted(storage, folder):
    """Every digest verifies, or the next one is looked at; none is always safe."""
    older = written(storage, folder, "older", term=Term(6))
    newest = written(storage, folder, "newest", term=Term(8))
    storage.write_file(newest.files[0].name, [b"x" * newest.files[0].size_bytes])
    assert folder.find_adoptable(None, Lineage(1)) == older
    storage.delete(older.files[0].name)
    assert folder.find_adoptable(None, Lineage(1)) is None


def test_what_another_job_has_committed_is_not_adopted(storage, folder):
    """Two jobs that began in one empty folder: the same parent, the same lineage, and a model of somebody else (M1)."""
    mine, other = HistoryId("mine"), HistoryId("another")
    theirs = written(storage, folder, "theirs", history=other, term=Term(8))
    assert folder.find_adoptable(None, Lineage(1), mine) is None
    assert folder.find_adoptable(None, Lineage(1), other) == theirs
    ours = written(storage, folder, "ours", history=mine, term=Term(6))
    assert folder.find_adoptable(None, Lineage(1), mine) == ours


def test_what_is_not_wanted_is_retired_and_goes_with_its_files_later(storage, folder):
    """Head, base and what is newer stay, for a while also what was before head; shared files stay with their namers."""
    base = written(storage, folder, "base", step=1)
    orphan = written(storage, folder, "orphan", step=2)
    head = written(storage, folder, "head", step=4)
    coming = written(storage, folder, "coming", step=9)
    shares = replace(orphan, id=ManifestId("shares"), step=3, files=(orphan.files[0], head.files[0]))
    folder.write(shares)
    folder.retain(frozenset({base.id, head.id}))
    assert {m.id for m in folder.all()} == {base.id, head.id, coming.id}
    assert storage.list("retired-") == ("retired-shares.json",)
    assert all(storage.exists(m.files[0].name) for m in (base, head, coming, orphan))
    newer = written(storage, folder, "newer", step=5)
    folder.retain(frozenset({newer.id}))
    assert {m.id for m in folder.all()} == {newer.id, coming.id}
    assert storage.list("retired-") == ("retired-head.json",)
    assert not storage.exists(orphan.files[0].name)
    assert not storage.exists(base.files[0].name)
    assert all(storage.exists(m.files[0].name) for m in (head, newer, coming))


def test_part_files_of_dead_writers_go_with_old_files(storage, folder):
    """A folder that many writers died in does not fill up."""
    head = written(storage, folder, "head", step=4)
    leave_a_temporary_file(storage)
    (part,) = temporary_files(storage)
    os.utime(part, (0, 0))
    folder.retain(frozenset({head.id}))
    assert not temporary_files(storage)
    assert storage.exists(head.files[0].name)


def test_what_another_history_wrote_is_never_deleted(storage, folder):
    """Manifests of another beginning, their files, and cut files from before this one stay for ever (M11)."""
    ours = {"history": HistoryId("ours"), "founded": Lineage(5)}
    foreign = written(storage, folder, "foreign", step=1)
    old_cut, given_up = "cut-4-9-9-0-a.edl", "cut-5-1-1-0-a.edl"
    for name in (old_cut, given_up):
        storage.write_file(name, [b"x"])
    done = storage.write_file("cut-5-2-1-0-a.edl", [b"x"])
    file = replace(FILE, name="cut-5-2-1-0-a.edl", size_bytes=done.size_bytes, digest=done.digest)
    for step in (2, 3, 4):
        head = replace(MANIFEST, id=ManifestId(f"head-{step}"), lineage=Lineage(5), step=step, files=(file,), **ours)
        folder.write(head)
        folder.retain(frozenset({head.id}))
    assert {m.id for m in folder.all()} == {foreign.id, head.id}
    assert storage.exists(foreign.files[0].name)
    assert storage.exists(old_cut)
    assert not storage.exists(given_up)


def test_what_another_jobs_servers_have_just_written_stays(storage, folder):
    """No manifest names it yet, and lineages of two jobs in one folder overlap (M11)."""
    ours = {"history": HistoryId("ours"), "lineage": Lineage(3)}
    done = storage.write_file("cut-3-2-1-0-a.edl", [b"x"])
    file = replace(FILE, name="cut-3-2-1-0-a.edl", size_bytes=done.size_bytes, digest=done.digest)
    head = replace(MANIFEST, id=ManifestId("head"), step=4, files=(file,), **ours)
    folder.write(head)
    written(storage, folder, "theirs", history=HistoryId("another"), founded=Lineage(2), lineage=Lineage(2))
    storage.write_file("cut-2-9-9-0-a.edl", [b"x"])
    folder.retain(frozenset({head.id}))
    assert storage.exists("cut-2-9-9-0-a.edl")


@pytest.mark.parametrize("name", ["manifest-lost.json", "retired-lost.json"])
def test_nothing_is_deleted_while_a_manifest_cannot_be_read(storage, folder, name):
    """What it names is not known: its files might look like nobody's (M11)."""
    older = [written(storage, folder, f"older-{step}", step=step) for step in (1, 2)]
    lost = written(storage, folder, "lost", step=3)
    head = written(storage, folder, "head", step=4)
    storage.delete("manifest-lost.json")
    storage.write_file(name, [b"{"])
    folder.retain(frozenset({head.id}))
    assert all(storage.exists(m.files[0].name) for m in (*older, lost, head))


def test_what_head_names_stays_until_head_is_written_anew(storage, folder):
    """Noting the head and clearing away run side by side: a reader that follows HEAD always finds its manifest."""
    before = written(storage, folder, "before", step=1)
    after = written(storage, folder, "after", step=2)
    folder.write_head(before.id)
    folder.retain(frozenset({after.id}))
    assert {m.id for m in folder.all()} == {before.id, after.id}
    folder.write_head(after.id)
    folder.retain(frozenset({after.id}))
    assert {m.id for m in folder.all()} == {after.id}


def test_files_of_cuts_that_were_given_up_go(storage, folder):
    """A server wrote, another one died: no manifest names the file.  Newer ones may be a commit under way and stay."""
    done = storage.write_file("cut-1-7-5-0-a.edl", [b"x"])
    file = replace(FILE, name="cut-1-7-5-0-a.edl", size_bytes=done.size_bytes, digest=done.digest)
    head = replace(MANIFEST, files=(file,))
    folder.write(head)
    for name in ("cut-1-7-4-0-a.edl", "cut-1-6-9-0-a.edl", "cut-1-7-6-0-a.edl", "cut-2-1-1-0-a.edl", "cut-note.txt"):
        storage.write_file(name, [b"x"])
    folder.retain(frozenset({head.id}))
    assert storage.list("cut-") == ("cut-1-7-5-0-a.edl", "cut-1-7-6-0-a.edl", "cut-2-1-1-0-a.edl", "cut-note.txt")


def test_copies_of_a_group_that_can_no_more_be_committed_go(storage, folder):
    """Rule 87: a copy is committed above the head's step alone; one that is newer may be on its way (M11)."""
    state = StateId(lineage=Lineage(2), generation=3, step=40, is_stopped=True)
    done = storage.write_file("replica-2-3-40-a-1.npz", [b"x"])
    file = replace(FILE, name="replica-2-3-40-a-1.npz", size_bytes=done.size_bytes, digest=done.digest)
    head = replace(MANIFEST, id=ManifestId("head"), files=(file,), lineage=state.lineage, step=40, state=state)
    folder.write(head)
    gone = ("replica-2-3-40-b-1.npz", "replica-2-4-39-b-1.npz", "replica-1-9-99-a-7.npz")
    kept = ("replica-2-2-41-b-1.npz", "replica-2-3-40-a-1.npz", "replica-3-1-1-c-1.npz", "replica-note.txt")
    for name in {*gone, *kept} - {file.name}:
        storage.write_file(name, [b"x"])
    folder.retain(frozenset({head.id}))
    assert storage.list("replica-") == kept


def test_copy_that_ends_training_at_heads_step_may_be_on_its_way(storage, folder):
    """Rules 87, 97: a script has stopped where a checkpoint was just made; the last one has the same step (M11)."""
    state = StateId(lineage=Lineage(2), generation=3, step=40)
    head = written(storage, folder, "head", lineage=state.lineage, step=40, state=state)
    for name in ("replica-2-3-40-b-2.safetensors", "replica-2-3-39-b-1.safetensors"):
        storage.write_file(name, [b"x"])
    folder.retain(frozenset({head.id}))
    assert storage.list("replica-") == ("replica-2-3-40-b-2.safetensors",)


def test_copies_of_another_history_of_the_folder_stay(storage, folder):
    """Files of lineages before this job's first one are another job's."""
    state = StateId(lineage=Lineage(5), generation=3, step=40)
    head = written(storage, folder, "head", lineage=state.lineage, founded=Lineage(5), step=40, state=state)
    storage.write_file("replica-4-1-2-a-1.npz", [b"x"])
    storage.write_file("replica-5-1-2-a-1.npz", [b"x"])
    folder.retain(frozenset({head.id}))
    assert storage.list("replica-") == ("replica-4-1-2-a-1.npz",)


def test_nothing_goes_while_head_cannot_be_read(storage, folder):
    """A wanted manifest that is missing or torn is no reason to delete the others."""
    other = written(storage, folder, "other")
    folder.retain(frozenset({ManifestId("head")}))
    assert storage.exists(other.files[0].name)


def test_a_torn_manifest_hides_no_other(storage, folder):
    """One bad file in the folder is logged, the rest is read."""
    good = written(storage, folder, "good")
    storage.write_file("manifest-bad.json", [b"{"])
    assert folder.all() == (good,)


class Slow(LocalStorage):
    """A folder whose first file waits until told."""

    def __init__(self, folder):
        super().__init__(folder)
        self.begun, self.go_on = threading.Event(), threading.Event()

    def write_file(self, name, chunks):
        if not self.begun.is_set():
            self.begun.set()
            assert self.go_on.wait(60)
        return super().write_file(name, chunks)


def test_an_older_commit_never_notes_head_last(tmp_path):
    """HEAD is what a job goes on from when the store is lost (M8): a slow folder must not turn it back."""
    storage = Slow(tmp_path)
    folder = CheckpointFolder(storage)
    with ThreadPoolExecutor() as pool:
        older = pool.submit(folder.write_head, ManifestId("older"))
        assert storage.begun.wait(60)
        newer = pool.submit(folder.write_head, ManifestId("newer"))
        assert not wait([newer], timeout=0.05).done
        storage.go_on.set()
        assert wait([older, newer], timeout=60).not_done == set()
    assert try_head_hint(storage) == "newer"


async def test_a_folder_that_hangs_is_given_up(tmp_path):
    """A commit that waits for it fails with that reason, and is tried again; it never waits for ever."""
    storage = Slow(tmp_path)
    try:
        with pytest.raises(StorageError, match="did not answer"):
            await call_with_timeout(CheckpointFolder(storage).write, MANIFEST, budget_s=0.05)
    finally:
        storage.go_on.set()


def test_a_folder_that_cannot_be_listed_keeps_what_it_has(tmp_path, caplog):
    """Retention is tried again after the next commit; the user reads one line, no traceback."""
    (tmp_path / "file").touch()
    CheckpointFolder(LocalStorage(tmp_path / "file")).retain(frozenset({ManifestId("head")}))
    assert "old checkpoints could not be deleted" in caplog.text
