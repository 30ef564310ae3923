"""Checkpoint storage in any fsspec file system (`s3:`, `gs:`, `memory:`, ...).  Nothing else imports fsspec."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, cast

from master.api.checkpoints.storage_errors import (
    TEMPORARY,
    WrittenFile,
    as_remote_error,
    checked_name,
    copy_hashed,
    exactly,
    wrap_chunk_errors,
)
from master.api.errors import StorageError


class RemoteStorage:
    """Anything with an fsspec file system.  The upload goes to a temporary name, then is moved."""

    def __init__(self, uri: str, filesystem: Any, root: str) -> None:
        self._uri = uri
        self._filesystem = filesystem
        self._root = root.rstrip("/")

    @property
    def uri(self) -> str:
        return self._uri

    def _path(self, name: str) -> str:
        return f"{self._root}/{checked_name(name)}"

    def write_file(self, name: str, chunks: Iterable[bytes | bytearray | memoryview]) -> WrittenFile:
        folder, _, _ = self._path(name).rpartition("/")
        temporary = f"{folder}/{TEMPORARY}{uuid.uuid4().hex}"
        with as_remote_error(name, self._uri):
            self._filesystem.makedirs(folder, exist_ok=True)
            try:
                with self._filesystem.open(temporary, "wb") as out:
                    written = copy_hashed(wrap_chunk_errors(chunks), out)
                self._filesystem.mv(temporary, self._path(name))
            except BaseException:
                with suppress(Exception):  # report the first error
                    self._filesystem.rm_file(temporary)
                raise
        return written

    def read(self, name: str, *, offset: int = 0, length_bytes: int | None = None) -> bytes:
        end = None if length_bytes is None else offset + length_bytes
        with as_remote_error(name, self._uri):
            data = cast(bytes, self._filesystem.cat_file(self._path(name), start=offset, end=end))
        return exactly(data, name, length_bytes)

    def list(self, prefix: str = "") -> tuple[str, ...]:
        with as_remote_error(prefix or ".", self._uri):
            self._filesystem.invalidate_cache()
            try:
                found = self._filesystem.ls(self._root, detail=True)
            except FileNotFoundError:
                return ()
        names = (str(entry["name"]).rpartition("/")[2] for entry in found if entry["type"] == "file")
        return tuple(sorted(n for n in names if n.startswith(prefix) and not n.startswith(TEMPORARY)))

    def exists(self, name: str) -> bool:
        with as_remote_error(name, self._uri):
            self._filesystem.invalidate_cache()
            return bool(self._filesystem.exists(self._path(name)))

    def size_bytes(self, name: str) -> int | None:
        with as_remote_error(name, self._uri):
            self._filesystem.invalidate_cache()
            return cast("int | None", self._filesystem.size(self._path(name)))

    def discard_leftovers(self, *, older_than_s: float) -> None:
        with as_remote_error(TEMPORARY, self._uri), suppress(FileNotFoundError, NotImplementedError):
            self._filesystem.invalidate_cache()
            for path in self._filesystem.glob(f"{self._root}/{TEMPORARY}*"):
                if time.time() - self._filesystem.modified(path).timestamp() > older_than_s:
                    self._filesystem.rm_file(path)

    def delete(self, name: str) -> None:
        with as_remote_error(name, self._uri), suppress(FileNotFoundError):
            self._filesystem.rm_file(self._path(name))

    def move(self, name: str, to: str) -> None:
        source, target = self._path(name), self._path(to)
        with as_remote_error(name, self._uri):
            self._filesystem.makedirs(target.rpartition("/")[0], exist_ok=True)
            self._filesystem.mv(source, target)


def open_remote(uri: str) -> RemoteStorage:
    try:
        import fsspec  # noqa: PLC0415  lazily: plain paths need no fsspec

        filesystem, root = fsspec.core.url_to_fs(uri)
    except ImportError as error:
        raise StorageError(
            uri,
            f"needs a package that is not installed ({error}); install it (s3fs for s3://, gcsfs for gs://) for "
            "trainers, servers and master, on a cluster in their images, or use a folder",
        ) from error
    except ValueError as error:
        raise StorageError(uri, f"is not a URI that fsspec supports ({error})") from error
    return RemoteStorage(uri, filesystem, root)
