"""Ownership checks of folders and files that other users of this machine could have made or replaced (ADR 0170).

Root is trusted, and so is the owner of a folder that only its owner and group may write to.  A folder that everybody
may write to is not, nor what another user has made inside it.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

from master.api.errors import ContractError

_FOLDER_MODE: Final = 0o775
_FILE_MODE: Final = 0o664
"""Less what the umask takes away: a umask of 0, as some daemons and containers have it, opens nothing to everybody."""


class ForeignUserError(ContractError):
    """A folder or a peer belongs to another user of this machine, or is open to others."""


def check_private(folder: Path) -> None:
    """Check that only this user and root can access the folder.  Raises ForeignUserError, OSError."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise ForeignUserError(f"{folder} is not a folder, or a symbolic link to one: remove it")
    if found.st_uid != os.geteuid():
        raise ForeignUserError(f"{folder} belongs to user {found.st_uid}, not to {os.geteuid()}: use a folder of yours")
    if found.st_mode & 0o077:
        raise ForeignUserError(f"{folder} is open to other users: chmod 700 {folder}")


def check_path(path: Path) -> None:
    """Nobody else can replace what is made or read at the path.  Raises ForeignUserError, OSError.

    Checked is the path as far as it exists: no folder that everybody may write to, except those with the sticky bit
    (as /tmp), and in those nothing that another user has made, links too.
    """
    is_shared = False
    for found in (*reversed(path.absolute().parents), path.absolute()):
        try:
            status = found.lstat()
        except FileNotFoundError:
            return
        if is_shared and status.st_uid not in {os.geteuid(), 0}:
            raise ForeignUserError(f"{found} belongs to user {status.st_uid}: use another path")
        if stat.S_ISLNK(status.st_mode):
            check_path(found.resolve())
            status = found.stat()
        is_shared = bool(status.st_mode & stat.S_IWOTH) and stat.S_ISDIR(status.st_mode)
        if is_shared and not status.st_mode & stat.S_ISVTX:
            raise ForeignUserError(f"every user may write to {found}: use another path, or chmod o-w {found}")


def make_folder(folder: Path) -> None:
    """Makes the folder and those above it, not writable by everybody.  Raises OSError."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    try:
        folder.mkdir(_FOLDER_MODE)
    except FileExistsError as error:
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from error


def open_new(path: Path) -> BinaryIO:
    """A new file for writing, not writable by everybody.  Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, _FILE_MODE), "wb")


def check_file(path: Path) -> None:
    """Only this user, root or a trusted group can have written the file.  Raises ForeignUserError, OSError."""
    check_path(path)
    for found in (path.parent, path):
        status = found.stat()
        if status.st_uid not in {os.geteuid(), 0} or status.st_mode & stat.S_IWOTH:
            raise ForeignUserError(f"{found} can be written by other users: chmod o-w {found}, or remove it")
