"""One run at a time writes into a folder, its children included (M11, ADR 0404)."""

import errno
import fcntl
import logging
import os
import shutil
import stat
from pathlib import Path

import pytest

from master.api.checkpoints import folder_lock
from master.api.checkpoints.folder_lock import CheckpointFolderInUseError, claim_folder, hold_as_writer
from master.api.checkpoints.local_storage import LocalStorage
from master.api.errors import StorageError
from master.api.identities import ManifestId
from master.durable.checkpoint_folder import CheckpointFolder


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(tmp_path / "checkpoints")


def test_a_folder_is_claimed_once_and_again_after_its_release(storage):
    """The second one is told who holds it."""
    first = claim_folder(storage, "tj/digits of run one")
    with pytest.raises(CheckpointFolderInUseError, match="in use by tj/digits of run one"):
        claim_folder(storage, "two")
    first.release()
    first.release()
    claim_folder(storage, "two").release()


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/nowhere"])
def test_a_path_at_which_no_folder_can_be_is_told(tmp_path, place):
    """It was told by the names of the lock files, which nobody has heard of."""
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"is no folder, and none can be made there .*: name another one"):
        claim_folder(LocalStorage(tmp_path / place), "one")


def test_a_writer_that_outlives_its_run_keeps_the_next_one_out(storage):
    """The run's own lock is gone with it; its master still writes."""
    claim = claim_folder(storage, "one")
    writer = hold_as_writer(storage)
    claim.release()
    for _ in range(2):  # a refused claim holds nothing: else the folder would be in use by who was refused
        with pytest.raises(CheckpointFolderInUseError, match="a process of an earlier run"):
            claim_folder(storage, "two")
    writer.release()
    claim_folder(storage, "two").release()


def test_each_writer_of_a_process_holds_for_itself(storage):
    """Two sessions, one after the other or at once: the end of one is not the other's."""
    claim_folder(storage, "one").release()
    first, second = hold_as_writer(storage), hold_as_writer(storage)
    first.release()
    with pytest.raises(CheckpointFolderInUseError, match="of an earlier run"):
        claim_folder(storage, "two")
    second.release()
    claim_folder(storage, "two").release()


def test_a_release_counts_though_a_forked_child_has_the_descriptor(storage):
    """A data loader's worker inherits it, and lives on."""
    claim_folder(storage, "one").release()
    writer = hold_as_writer(storage)
    copy = os.dup(writer._descriptor)
    writer.release()
    claim_folder(storage, "two").release()
    os.close(copy)


def test_a_claim_that_fails_at_its_last_step_holds_nothing(storage, monkeypatch):
    """The disk refuses to delete part files: the folder is nobody's."""

    def refuse(self, *, older_than_s):
        raise StorageError(".part-", "the disk failed")

    before = len(list(Path("/proc/self/fd").iterdir()))
    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "discard_leftovers", refuse)
        with pytest.raises(StorageError, match="the disk failed"):
            claim_folder(storage, "one")
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    claim_folder(storage, "two").release()


def as_on_nfs(descriptor, operation, *, flock=fcntl.flock):
    """NFSv4 makes record locks of them: an exclusive one wants a descriptor that may write (flock(2), NFS details)."""
    is_for_reading = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    if operation & fcntl.LOCK_EX and is_for_reading:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    flock(descriptor, operation)


def test_a_folder_on_nfs_is_claimed_and_held(storage, monkeypatch):
    """There a lock for writing is refused with EBADF on a descriptor for reading."""
    monkeypatch.setattr(folder_lock.fcntl, "flock", as_on_nfs)
    claim = claim_folder(storage, "one")
    writer = hold_as_writer(storage)
    with pytest.raises(CheckpointFolderInUseError, match="in use by one"):
        claim_folder(storage, "two")
    claim.release()
    with pytest.raises(CheckpointFolderInUseError, match="of an earlier run"):
        claim_folder(storage, "two")
    writer.release()
    claim_folder(storage, "two").release()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_refused_with_the_folders_name(storage, monkeypatch, number):
    """Nothing would keep a second run out of it."""

    def refuse(descriptor, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(folder_lock.fcntl, "flock", refuse)
    with pytest.raises(StorageError, match="does not support locks") as caught:
        claim_folder(storage, "one")
    assert storage.uri in str(caught.value)


def test_a_folder_that_every_user_may_write_to_is_refused_or_warned_of_once(storage, caplog):
    """A Kubernetes emptyDir is one, with a single user: a script goes on there; a run has to be told so (ADR 0170)."""
    storage._folder.mkdir()
    storage._folder.chmod(0o777)
    with pytest.raises(StorageError, match=r"every user may write to .* --shared-folders"):
        claim_folder(storage, "a run")
    with caplog.at_level(logging.WARNING):
        claim_folder(storage, "a script", allows_shared=True).release()
    (warned,) = caplog.messages
    assert str(storage._folder) in warned


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
    assert hold_as_writer(storage) is None
    assert not storage._folder.exists()


@pytest.mark.parametrize("link", ["symlink_to", "hardlink_to"])
@pytest.mark.parametrize("name", [folder_lock.RUN_LOCK, folder_lock.WRITERS_LOCK])
def test_a_lock_that_is_a_link_is_refused_and_its_target_left_alone(storage, tmp_path, name, link):
    """Somebody put it there: what it points to would be written over."""
    storage.write_file("x", [b"x"])
    target = tmp_path / "target"
    target.write_text("mine")
    getattr(storage._folder / name, link)(target)
    with pytest.raises(StorageError, match=name):
        claim_folder(storage, "one")
    assert target.read_text() == "mine"


def test_a_writer_whose_locks_were_deleted_keeps_the_next_run_out_all_the_same(tmp_path):
    """`rm -rf` of a running job's folder took its locks along: the folder came back, and a second run was let in."""
    storage, manifest = LocalStorage(tmp_path / "c"), ManifestId("m")
    first = claim_folder(storage, "the first")
    folder = CheckpointFolder(storage, hold_as_writer(storage))
    folder.write_head(manifest)
    shutil.rmtree(tmp_path / "c")
    folder.write_head(manifest)
    with pytest.raises(CheckpointFolderInUseError, match="of an earlier run"):
        claim_folder(storage, "the second")
    shutil.rmtree(tmp_path / "c")
    second = claim_folder(storage, "the second")
    with pytest.raises(CheckpointFolderInUseError, match="claimed it after its locks were deleted"):
        folder.write_head(manifest)
    assert not storage.exists("HEAD")
    folder._lock.release()
    first.release()
    second.release()


def test_a_folder_that_its_writer_makes_anew_is_not_everybodys(storage, tmp_path):
    """Whatever the umask (ADR 0193)."""
    claim_folder(storage, "one")
    writer, folder = hold_as_writer(storage), tmp_path / "checkpoints"
    shutil.rmtree(folder)
    before = os.umask(0)
    try:
        writer.keep_as_writer()
    finally:
        os.umask(before)
    assert not folder.stat().st_mode & stat.S_IWOTH
    writer.release()
