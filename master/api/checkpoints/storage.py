"""Storage of a job's checkpoint folder: plain paths, `file:` URIs, and what fsspec knows (`s3:`, `memory:`, ...).

The problem: a checkpoint is many files that several processes write while any of them may die, on folders that fill
up or turn read-only.  So a file appears under its name complete or not at all, readers compare digests, and each
failure has one of four error types (`errors.StorageError`).  Calls block; a caller in an event loop uses a thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

from master.api.checkpoints.local_storage import LocalStorage
from master.api.checkpoints.remote_storage import open_remote
from master.api.checkpoints.storage_errors import WrittenFile
from master.api.errors import StorageError

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]+:", re.IGNORECASE)  # two letters or more: C: is a drive


class Storage(Protocol):
    """A folder of immutable files.  Names are relative, with '/' between parts.  Every call may raise StorageError."""

    @property
    def uri(self) -> str: ...

    def write_file(self, name: str, chunks: Iterable[bytes | bytearray | memoryview]) -> WrittenFile:
        """Write a file atomically and durably, replacing an older one; on an error nothing has changed."""
        ...

    def read(self, name: str, *, offset: int = 0, length_bytes: int | None = None) -> bytes:
        """These bytes, or all.  Raises StorageAlteredError when the file ends before them."""
        ...

    def list(self, prefix: str = "") -> tuple[str, ...]:
        """Names of the files directly in the folder that begin with `prefix`, sorted.  No folder: none."""
        ...

    def exists(self, name: str) -> bool: ...

    def size_bytes(self, name: str) -> int | None:
        """Length of the file, without reading it; None: the storage does not report it.  Raises StorageMissingError."""
        ...

    def discard_leftovers(self, *, older_than_s: float) -> None:
        """Delete temporary files that were not written to for `older_than_s`: their writers have died."""
        ...

    def delete(self, name: str) -> None:
        """Delete a file; an absent file is not an error."""
        ...

    def move(self, name: str, to: str) -> None:
        """Rename a file, atomically where the storage supports it; an existing target is replaced."""
        ...


def open_storage(uri: str) -> Storage:
    """The storage that a path or URI names; created by the first write.  Raises StorageError for an unusable URI."""
    if not _SCHEME.match(uri):
        return LocalStorage(Path(uri))
    parts = urlsplit(uri)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise StorageError(uri, "a file URI names no other host; write file:///folder")
        return LocalStorage(Path(unquote(parts.path)))
    return open_remote(uri)


def is_path(uri: str) -> bool:
    """True if `open_storage` takes it for a folder of this machine: only those can be claimed (`folder_lock`)."""
    return not _SCHEME.match(uri) or urlsplit(uri).scheme == "file"
