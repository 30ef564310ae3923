"""Temporary folders of scripts that run alone; those of killed scripts are removed by the next script of the same user.

The problem: a script that gets SIGKILL deletes nothing.  So a script and its children hold a `flock` on the file
`OWNER` of each of its folders, and the kernel releases it when the last of them has ended.  A folder whose file
nobody holds is left over.  A folder without that file is never touched: it belongs to another program, or its script is
just making it.  One with a checkpoint, which may be all that is left of the work, stays for a week.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, time
from typing import Final

from master.api.checkpoints.folder_contents import HEAD
from master.api.host.file_ownership import ForeignUserError, check_path

PREFIX: Final = "edl-"
OWNER: Final = "owner.lock"
CHECKPOINTS: Final = "checkpoints"
CHECKPOINT_KEPT_S: Final = 7 * 86_400.0  # after it was written; the system clears such folders after some ten days
SWEEP_LIMIT_S: Final = 3.0  # a script's start waits for it; what is left is for the next start
_DRAFT: Final = ".owner"
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def hold_folder(folder: Path) -> int:
    """A descriptor that keeps the folder from `remove_left_over`, as long as any process has it open.

    The file gets its name when it is locked, so it is never seen unlocked.  Raises OSError, also where the file system
    has no locks; then the folder has no such file.
    """
    draft = folder / _DRAFT
    descriptor = os.open(draft, _LOCK | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        draft.rename(folder / OWNER)
    except OSError:
        os.close(descriptor)
        draft.unlink(missing_ok=True)
        raise
    return descriptor


def remove_folder(folder: Path) -> None:
    """Removes the folder of this process, its lock file last; what cannot be removed stays."""
    with suppress(OSError), _opened(folder) as descriptor:
        _empty(descriptor)
        folder.rmdir()


def remove_left_over(parent: Path, *, limit_s: float = SWEEP_LIMIT_S) -> None:
    """Removes this user's folders in `parent` whose scripts and children have ended; begins none after `limit_s`.

    Where another user could replace a folder in `parent`, nothing is removed.
    """
    deadline_s = monotonic() + limit_s
    with suppress(OSError, ForeignUserError):
        check_path(parent)
        with os.scandir(parent) as entries:
            for entry in entries:
                if monotonic() > deadline_s:
                    return
                if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False):
                    _remove_if_left_over(Path(entry.path))


def _remove_if_left_over(folder: Path) -> None:
    """The lock is held until the folder is gone, so that one process removes it."""
    with suppress(OSError), _opened(folder) as descriptor:
        lock = os.open(OWNER, _LOCK, dir_fd=descriptor)
        try:
            found = os.fstat(lock)
            if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not _has_checkpoint(descriptor):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _empty(descriptor)
                folder.rmdir()
        finally:
            os.close(lock)


def _has_checkpoint(folder: int) -> bool:
    """True if its script has left a checkpoint within the last `CHECKPOINT_KEPT_S`."""
    try:
        head = os.stat(f"{CHECKPOINTS}/{HEAD}", dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return time() - head.st_mtime < CHECKPOINT_KEPT_S


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """A descriptor of the folder.  Raises OSError, PermissionError if it is another user's."""
    descriptor = os.open(folder, _FOLDER)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError(f"{folder} is another user's")
        yield descriptor
    finally:
        os.close(descriptor)


def _empty(folder: int) -> None:
    """Removes what can be removed, the lock file last: a folder that keeps something is still known as left over."""
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries if entry.name != OWNER]
    for name, is_folder in found:
        if is_folder:
            shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
        else:
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)
    if os.listdir(folder) == [OWNER]:
        os.unlink(OWNER, dir_fd=folder)
