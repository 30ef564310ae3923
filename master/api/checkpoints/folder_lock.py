"""Locks of a checkpoint folder of this machine: one run at a time writes, its children included (M11, ADR 0404).

The problem: two runs have two stores, so neither fences the other's commits.  A lock of the run alone is gone once
the run is killed, while its master or a server still writes.  So there are two `flock` locks, which the kernel
releases when their holder ends:

    .edl-run       exclusive: the run, or the script that runs alone
    .edl-writers   shared: every process that writes there, as long as it may

A run claims a folder by taking the first lock and checking that no process holds the second; it makes both files.
Where they are missing (another machine's folder, an object store, a cluster) nothing is locked.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final

from master.api.checkpoints.local_storage import LocalStorage
from master.api.checkpoints.storage import Storage
from master.api.errors import StorageError
from master.api.host.file_ownership import ForeignUserError, check_path, make_folder

log: Final = logging.getLogger(__name__)

RUN_LOCK: Final = ".edl-run"
WRITERS_LOCK: Final = ".edl-writers"
_FOR_OWNER: Final = 0o600
"""File mode: a user who can read a lock file can lock it, and so block every run."""

_MOST_BYTES: Final = 512  # of the line that says who holds a folder
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})


class CheckpointFolderInUseError(StorageError):
    """Another process writes there.  `holder`: which, for people."""

    def __init__(self, folder: str, holder: str) -> None:
        super().__init__(folder, f"is in use by {holder}: use another folder, or stop it first")
        self.holder = holder


class FolderLock:
    """One of the two locks of a folder, held by this process until `release` or its end."""

    def __init__(self, folder: str, descriptor: int) -> None:
        self.folder = folder
        self._descriptor = descriptor

    def keep_as_writer(self) -> None:
        """Re-acquire the writers' lock if its file was deleted or replaced.

        Raises CheckpointFolderInUseError where another run has claimed the folder since, StorageError.
        """
        with _as_errors_of(self.folder):
            try:
                there = (Path(self.folder) / WRITERS_LOCK).lstat()
            except FileNotFoundError:
                log.warning("%s: its locks were deleted; this writer holds a new one", self.folder)
                make_folder(Path(self.folder))
                before, self._descriptor = self._descriptor, _lock(self.folder, WRITERS_LOCK, fcntl.LOCK_SH, makes=True)
                os.close(before)
            else:
                if not os.path.samestat(there, os.fstat(self._descriptor)):
                    raise CheckpointFolderInUseError(
                        self.folder, "another run, which claimed it after its locks were deleted"
                    )

    def release(self) -> None:
        """Release the lock.  Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):  # a forked child that has the descriptor too would keep the lock
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _as_errors_of(folder: str) -> AbstractContextManager[None]:
    return LocalStorage(Path(folder)).errors_of(WRITERS_LOCK)


def claim_folder(storage: Storage, holder: str, *, allows_shared: bool = False) -> FolderLock | None:
    """Claim the folder for this run, unless another run or its child still writes there; delete old part files.

    None: the folder has no locks.  `allows_shared`: other users may write to it, which is only logged; a single
    user's mount may look so (ADR 0170).  Raises CheckpointFolderInUseError, StorageError.
    """
    if not isinstance(storage, LocalStorage):
        return None
    with storage.errors_of(f"{RUN_LOCK} or {WRITERS_LOCK}"):
        try:
            _check_other_users(storage.uri, allows_shared=allows_shared)
            make_folder(Path(storage.uri))
        except (FileNotFoundError, FileExistsError, NotADirectoryError) as error:
            problem = f"is no folder, and none can be made there ({error.strerror}): name another one"
            raise StorageError(storage.uri, problem) from error
        claim = FolderLock(storage.uri, _lock_alone(storage.uri))
        try:
            _check_no_writers(storage.uri)
            _write_holder(storage.uri, holder)
            storage.discard_leftovers(older_than_s=0.0)
        except BaseException:
            claim.release()
            raise
    return claim


def hold_as_writer(storage: Storage) -> FolderLock | None:
    """Hold the folder's writers' lock until its release.

    None if the folder is unclaimed or has no locks.  Raises CheckpointFolderInUseError if another run is starting
    there.
    """
    if not isinstance(storage, LocalStorage):
        return None
    try:
        return FolderLock(storage.uri, _lock(storage.uri, WRITERS_LOCK, fcntl.LOCK_SH, makes=False))
    except BlockingIOError:
        raise CheckpointFolderInUseError(storage.uri, "another run, which begins there now") from None
    except OSError:  # not there; a file system without locks
        return None


def _lock(folder: str, name: str, kind: int, *, makes: bool) -> int:
    """A descriptor of the locked file.  Raises BlockingIOError if another process holds the lock, OSError.

    It is opened for reading, since one for writing would hold up a remount.  NFSv4 answers EBADF to that for an
    exclusive lock (flock(2)), so there it is opened for both.
    """
    try:
        return _open_locked(folder, name, kind, os.O_RDONLY, makes=makes)
    except OSError as error:
        if error.errno != errno.EBADF:
            raise
    return _open_locked(folder, name, kind, os.O_RDWR, makes=makes)


def _open_locked(folder: str, name: str, kind: int, access: int, *, makes: bool) -> int:
    """Raises as `_lock`, and StorageError for no plain file; nothing stays open then."""
    flags = access | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_CREAT if makes else 0)
    descriptor = os.open(Path(folder) / name, flags, _FOR_OWNER)
    try:
        _check_plain(folder, name, descriptor)
        if makes and stat.S_IMODE(os.fstat(descriptor).st_mode) & ~_FOR_OWNER:  # made by hand
            os.fchmod(descriptor, _FOR_OWNER)
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_plain(folder: str, name: str, descriptor: int) -> None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:  # a hard link may lead to a file of another user
        raise StorageError(name, f"in {folder} is no plain file: remove it")


def _check_other_users(folder: str, *, allows_shared: bool) -> None:
    """Check that no other user created or can replace the lock files.  Raises StorageError, or logs where allowed."""
    try:
        for name in (RUN_LOCK, WRITERS_LOCK):
            check_path(Path(folder) / name)
    except ForeignUserError as error:
        if not allows_shared:
            raise StorageError(folder, f"{error}; `edl run --shared-folders` accepts this") from error
        log.warning("checkpoint folder %s: %s, if others use this machine", folder, error)


def _lock_alone(folder: str) -> int:
    try:
        return _lock(folder, RUN_LOCK, fcntl.LOCK_EX, makes=True)
    except BlockingIOError:
        raise CheckpointFolderInUseError(folder, _read_holder(folder) or "another run") from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        problem = f"its file system does not support locks ({error.strerror}), so a second run could not be excluded"
        raise StorageError(folder, f"{problem}: mount it with locks, or use another folder") from error


def _read_holder(folder: str) -> str:
    with suppress(OSError):
        descriptor = os.open(Path(folder) / RUN_LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            lines = file.read(_MOST_BYTES).decode(errors="replace").splitlines()
        return "".join(c for c in (lines or [""])[0] if c.isprintable())
    return ""


def _check_no_writers(folder: str) -> None:
    try:
        os.close(_lock(folder, WRITERS_LOCK, fcntl.LOCK_EX, makes=True))
    except BlockingIOError:
        writer = "a process of an earlier run that still runs (master, server or script)"
        raise CheckpointFolderInUseError(folder, writer) from None


def _write_holder(folder: str, holder: str) -> None:
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(Path(folder) / RUN_LOCK, flags)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        _check_plain(folder, RUN_LOCK, descriptor)  # another file may have its name by now
        file.truncate(0)
        file.write(f"{holder}\n")
