"""Checkpoint storage in a folder of this machine or of a mounted volume.

A file is written under a temporary name, synced and renamed; the folder is synced too, so that a power cut loses
neither the file nor its name.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from master.api.checkpoints.storage_errors import (
    TEMPORARY,
    WrittenFile,
    as_storage_error,
    checked_name,
    copy_hashed,
    exactly,
)
from master.api.errors import StorageError
from master.api.host.file_ownership import make_folder, open_new


class LocalStorage:
    """A folder of this machine, or one that is mounted like one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def uri(self) -> str:
        return str(self._folder)

    def errors_of(self, name: str) -> AbstractContextManager[None]:
        """Context in which system errors about this file are raised as StorageErrors."""
        return as_storage_error(name, self.uri)

    def write_file(self, name: str, chunks: Iterable[bytes | bytearray | memoryview]) -> WrittenFile:
        target = self._folder / checked_name(name)
        temporary = target.with_name(f"{TEMPORARY}{uuid.uuid4().hex}")
        with as_storage_error(name, self.uri):
            _make_folder(target.parent)
            try:
                with open_new(temporary) as out:
                    written = copy_hashed(chunks, out)
                    out.flush()
                    os.fsync(out.fileno())
                temporary.replace(target)
                _sync_folder(target.parent)
            except BaseException:
                with suppress(OSError):
                    temporary.unlink(missing_ok=True)
                raise
        return written

    def read(self, name: str, *, offset: int = 0, length_bytes: int | None = None) -> bytes:
        with as_storage_error(name, self.uri), (self._folder / checked_name(name)).open("rb") as file:
            file.seek(offset)
            return exactly(file.read() if length_bytes is None else file.read(length_bytes), name, length_bytes)

    def list(self, prefix: str = "") -> tuple[str, ...]:
        with as_storage_error(prefix or ".", self.uri):
            try:
                entries = [entry.name for entry in os.scandir(self._folder) if entry.is_file()]
            except FileNotFoundError:
                return ()
            except NotADirectoryError:
                raise StorageError(self.uri, "is no folder: name the folder that has the checkpoints") from None
        return tuple(sorted(n for n in entries if n.startswith(prefix) and not n.startswith(TEMPORARY)))

    def exists(self, name: str) -> bool:
        return (self._folder / checked_name(name)).is_file()

    def size_bytes(self, name: str) -> int | None:
        with as_storage_error(name, self.uri):
            return (self._folder / checked_name(name)).stat().st_size

    def discard_leftovers(self, *, older_than_s: float) -> None:
        with as_storage_error(TEMPORARY, self.uri):
            for path in self._folder.glob(f"{TEMPORARY}*"):
                with suppress(FileNotFoundError):  # another process deleted it first
                    if time.time() - path.stat().st_mtime > older_than_s:
                        path.unlink()

    def delete(self, name: str) -> None:
        with as_storage_error(name, self.uri):
            (self._folder / checked_name(name)).unlink(missing_ok=True)

    def move(self, name: str, to: str) -> None:
        target = self._folder / checked_name(to)
        with as_storage_error(name, self.uri):
            _make_folder(target.parent)
            source = self._folder / checked_name(name)
            source.replace(target)
            for folder in {target.parent, source.parent}:
                _sync_folder(folder)


def _make_folder(folder: Path) -> None:
    """Create the folder and its parents durably (fsync), since a lost folder loses its files."""
    missing = [one for one in (folder, *folder.parents) if not one.is_dir()]
    make_folder(folder)
    for made in missing:
        _sync_folder(made.parent)


def _sync_folder(folder: Path) -> None:
    """Make a change of the folder's names durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
