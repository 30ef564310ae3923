"""One run at a time writes into a folder, its children included (M11, ADR 0404)."""

import os

import pytest

from master.api import folder_lock
from master.api.errors import StorageError
from master.api.folder_lock import FolderInUseError, claim_folder, hold_as_writer
from master.api.storage import LocalStorage


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(tmp_path / "checkpoints")


@pytest.fixture
def writer(storage):
    """This process, as a master of the run that holds the folder; the kernel forgets it at its end."""

    def begin():
        hold_as_writer(storage)
        return folder_lock._held[storage.uri]

    yield begin
    descriptor = folder_lock._held.pop(storage.uri, None)
    if descriptor is not None:
        os.close(descriptor)


def test_a_folder_is_claimed_once_and_again_after_its_release(storage):
    """The second one is told who holds it."""
    first = claim_folder(storage, "tj/digits of run one")
    with pytest.raises(FolderInUseError, match="in use by tj/digits of run one"):
        claim_folder(storage, "two")
    first.release()
    first.release()
    claim_folder(storage, "two").release()


def test_a_writer_that_outlives_its_run_keeps_the_next_one_out(storage, writer):
    """The run's own lock is gone with it; its master still writes."""
    claim = claim_folder(storage, "one")
    descriptor = writer()
    claim.release()
    with pytest.raises(FolderInUseError, match="an earlier run left behind"):
        claim_folder(storage, "two")
    folder_lock._held.pop(storage.uri)
    os.close(descriptor)
    claim_folder(storage, "two").release()


def test_a_refused_claim_holds_nothing(storage, writer):
    """Else the folder would be in use by who was refused."""
    claim_folder(storage, "one").release()
    descriptor = writer()
    for _ in range(2):
        with pytest.raises(FolderInUseError, match="left behind"):
            claim_folder(storage, "two")
    assert descriptor >= 0


def test_part_files_of_dead_writers_go_with_the_claim(storage):
    """Nobody writes there: whatever is half written stays so."""
    storage.write_file("x", [b"x"])
    part = storage._folder / ".part-0123"
    part.write_bytes(b"half")
    claim_folder(storage, "one").release()
    assert not part.exists()
    assert storage.list("x") == ("x",)


def test_a_folder_that_nobody_has_claimed_knows_no_writers(storage):
    """A cluster's folder, an object store: nothing is locked, nothing is made."""
    hold_as_writer(storage)
    assert not storage._folder.exists()
    assert storage.uri not in folder_lock._held


@pytest.mark.parametrize("name", [folder_lock.RUN_LOCK, folder_lock.WRITERS_LOCK])
def test_a_lock_that_is_a_link_is_refused_and_its_target_left_alone(storage, tmp_path, name):
    """Somebody put it there: what it points to would be written over."""
    storage.write_file("x", [b"x"])
    target = tmp_path / "target"
    target.write_text("mine")
    (storage._folder / name).symlink_to(target)
    with pytest.raises(StorageError, match=name):
        claim_folder(storage, "one")
    assert target.read_text() == "mine"
