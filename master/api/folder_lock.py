"""Who may write into a checkpoint folder of this machine: one run at a time, its children included (M11, ADR 0404).

The problem: two runs have two stores, so neither fences the other's commits.  A lock of the run alone is gone once the
run is killed, while its master or a server still writes.  So there are two locks, both the kernel's (`flock`), gone
with whoever held them however it ended:

    .edl-run       exclusive: the run, or the script that runs alone
    .edl-writers   shared: every process that writes there, from its start to its end

A folder is claimed by taking the first, and seeing that nobody holds the second.  Whoever claims it makes both files;
where they are not (another machine's folder, an object store, a cluster) nothing is locked.
"""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from master.api.errors import StorageError
from master.api.storage import LocalStorage, Storage
from master.api.strangers import ForeignUserError, check_path

RUN_LOCK: Final = ".edl-run"
WRITERS_LOCK: Final = ".edl-writers"
_FOR_OWNER: Final = 0o600
"""Who can read a file can lock it: another user could hold up every run."""

_MOST_BYTES: Final = 512  # of the line that says who holds a folder
_held: Final[dict[str, int]] = {}


class FolderInUseError(StorageError):
    """Somebody else writes there.  `holder`: who, for people."""

    def __init__(self, folder: str, holder: str) -> None:
        super().__init__(folder, f"is in use by {holder}: name another folder, or end that first")
        self.holder = holder


class FolderClaim:
    """One folder, held by this process until `release` or its end."""

    def __init__(self, folder: str, descriptor: int) -> None:
        self.folder = folder
        self._descriptor = descriptor

    def release(self) -> None:
        """Somebody else may claim it.  A second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def claim_folder(storage: Storage, holder: str) -> FolderClaim | None:
    """This process alone has the folder, and nobody's child writes there; part files of dead writers are gone.

    None for a folder that has no locks.  Raises FolderInUseError, StorageError.
    """
    if not isinstance(storage, LocalStorage):
        return None
    with storage.errors_of(f"{RUN_LOCK} or {WRITERS_LOCK}"):
        _check_strangers(storage.uri)
        Path(storage.uri).mkdir(parents=True, exist_ok=True)
        run = _open(storage.uri, RUN_LOCK, makes=True)
        try:
            _lock_alone(storage.uri, run)
            writers = _open(storage.uri, WRITERS_LOCK, makes=True)
            try:
                _check_nobody_writes(storage.uri, writers)
            finally:
                os.close(writers)
            _write_holder(storage.uri, holder)
        except BaseException:
            os.close(run)
            raise
    storage.discard_leftovers(older_than_s=0.0)
    return FolderClaim(storage.uri, run)


def hold_as_writer(storage: Storage) -> None:
    """From now to its end this process counts as one that writes there.  Raises FolderInUseError: a run begins there.

    Does nothing for a folder that nobody has claimed, or that knows no locks.
    """
    if not isinstance(storage, LocalStorage) or storage.uri in _held:
        return
    with suppress(OSError):  # not there; a file system without locks
        descriptor = _open(storage.uri, WRITERS_LOCK, makes=False)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise FolderInUseError(storage.uri, "another run, which begins there now") from None
        except OSError:
            os.close(descriptor)
            raise
        _held[storage.uri] = descriptor


def _open(folder: str, name: str, *, makes: bool) -> int:
    """For reading, since one for writing would hold up a remount.  Raises OSError, StorageError for no plain file."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_CREAT if makes else 0)
    descriptor = os.open(Path(folder) / name, flags, _FOR_OWNER)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise StorageError(name, f"in {folder} is no plain file: remove it")
    if makes and stat.S_IMODE(mode) & ~_FOR_OWNER:  # of an earlier version
        os.fchmod(descriptor, _FOR_OWNER)
    return descriptor


def _check_strangers(folder: str) -> None:
    """No other user has made, or can replace, what is locked.  Raises StorageError."""
    try:
        for name in (RUN_LOCK, WRITERS_LOCK):
            check_path(Path(folder) / name)
    except ForeignUserError as error:
        raise StorageError(folder, str(error)) from error


def _lock_alone(folder: str, run: int) -> None:
    try:
        fcntl.flock(run, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        told = os.read(run, _MOST_BYTES).decode(errors="replace").splitlines()
        holder = "".join(c for c in (told or [""])[0] if c.isprintable())
        raise FolderInUseError(folder, holder or "another run") from None


def _check_nobody_writes(folder: str, writers: int) -> None:
    try:
        fcntl.flock(writers, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        left = "a master, server or script that an earlier run left behind and that still runs"
        raise FolderInUseError(folder, left) from None


def _write_holder(folder: str, holder: str) -> None:
    descriptor = os.open(Path(folder) / RUN_LOCK, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{holder}\n")
