"""The one door to a job's checkpoint folder: plain paths, `file:` URIs, and what fsspec knows (`s3:`, `memory:`, ...).

The problem: a checkpoint is many files that several processes write while any of them may die, on folders that fill
up or turn read-only.  So a file appears under its name complete or not at all, whoever reads compares digests, and
what goes wrong has one of four names (`errors.StorageError`).  Calls block; a caller in an event loop uses a thread.

fsspec is imported only for a URI with another scheme than `file`, so a training image with plain paths needs none.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final, Protocol, cast
from urllib.parse import unquote, urlsplit

from master.api.checkpoints.manifest import Manifest, decode_manifest, encode_manifest, manifest_name, retired_name
from master.api.errors import (
    StorageAlteredError,
    StorageError,
    StorageFullError,
    StorageMissingError,
    StorageReadOnlyError,
)
from master.api.host.file_ownership import make_folder, open_new
from master.api.identities import ManifestId
from master.api.messages import FileRecord

_PIECE_BYTES: Final = 4 * 1024 * 1024
_TEMPORARY: Final = ".part-"  # leftovers of writers that died; never listed
_WRITTEN_ELSEWHERE: Final = (
    " as the master sees it, though whoever wrote it said that it is whole: its process sees another folder there (a "
    "volume that is not mounted, an emptyDir), or the master does, or somebody deleted the file. Servers, trainers and "
    "master must see the same checkpoint.uri: check their mounts. No older checkpoint is deleted meanwhile"
)
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]+:", re.IGNORECASE)  # two letters or more: C: is a drive


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """What now stands under the name.  `digest`: SHA-256 in hexadecimal."""

    size_bytes: int
    digest: str


class Storage(Protocol):
    """A folder of immutable files.  Names are relative, with '/' between parts.  Every call may raise StorageError."""

    @property
    def uri(self) -> str: ...

    def write_file(self, name: str, chunks: Iterable[bytes | bytearray | memoryview]) -> WrittenFile:
        """The file stands complete and durable under its name, replacing an older one; on an error nothing changed."""
        ...

    def read(self, name: str, *, offset: int = 0, length_bytes: int | None = None) -> bytes:
        """These bytes, or all.  Raises StorageAlteredError when the file ends before them."""
        ...

    def list(self, prefix: str = "") -> tuple[str, ...]:
        """Names of the files directly in the folder that begin with `prefix`, sorted.  No folder: none."""
        ...

    def exists(self, name: str) -> bool: ...

    def size_bytes(self, name: str) -> int | None:
        """How long the file is, without reading it; None: the store does not say.  Raises StorageMissingError."""
        ...

    def discard_leftovers(self, *, older_than_s: float) -> None:
        """Temporary files in the folder that nobody has written to for so long are gone: their writers died."""
        ...

    def delete(self, name: str) -> None:
        """Afterwards no file has this name; one that is absent already is no error."""
        ...

    def move(self, name: str, to: str) -> None:
        """The file has the other name, in one step where the folder can; what stood there is replaced."""
        ...


def open_storage(uri: str) -> Storage:
    """The folder that a path or URI names; made when first written to.  Raises StorageError for an unusable URI."""
    if not _SCHEME.match(uri):
        return LocalStorage(Path(uri))
    parts = urlsplit(uri)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise StorageError(uri, "a file URI names no other host; write file:///folder")
        return LocalStorage(Path(unquote(parts.path)))
    return _open_remote(uri)


def is_path(uri: str) -> bool:
    """Whether `open_storage` takes it for a folder of this machine: only those can be claimed (`folder_lock`)."""
    return not _SCHEME.match(uri) or urlsplit(uri).scheme == "file"


def write_manifest(storage: Storage, manifest: Manifest) -> None:
    """The manifest stands complete under its name.  It is committed only when `head` names it (rule 23)."""
    storage.write_file(manifest_name(manifest.id), [encode_manifest(manifest)])


def read_manifest(storage: Storage, manifest_id: ManifestId) -> Manifest:
    """Raises StorageError when it cannot be read, ManifestError when it does not say what a manifest says."""
    return _read_as(storage, manifest_name(manifest_id), manifest_id)


def read_retired(storage: Storage, manifest_id: ManifestId) -> Manifest:
    """As `read_manifest`, of one that a newer one has replaced."""
    return _read_as(storage, retired_name(manifest_id), manifest_id)


def _read_as(storage: Storage, name: str, manifest_id: ManifestId) -> Manifest:
    manifest = decode_manifest(storage.read(name))
    if manifest.id != manifest_id:
        raise StorageAlteredError(name, f"says that it is manifest {manifest.id!r}")
    return manifest


def file_digest(
    storage: Storage,
    name: str,
    *,
    size_bytes: int,
    give_up_s: float | None = None,
    tell: Callable[[int], None] = lambda _: None,
) -> str:
    """SHA-256 of the first `size_bytes`, read in pieces.  Raises StorageAlteredError when the file is shorter.

    `give_up_s`: an instant of `time.monotonic` after which it is not read further, but StorageError raised.
    `tell`: hears after each piece how many bytes were read.
    """
    digest = hashlib.sha256()
    for offset in range(0, size_bytes, _PIECE_BYTES):
        if give_up_s is not None and time.monotonic() > give_up_s:
            raise StorageError(name, "could not be read in the time that there was")
        piece = storage.read(name, offset=offset, length_bytes=min(_PIECE_BYTES, size_bytes - offset))
        digest.update(piece)
        tell(offset + len(piece))
    return digest.hexdigest()


def check_file(
    storage: Storage,
    file: FileRecord,
    *,
    give_up_s: float | None = None,
    tell: Callable[[int], None] = lambda _: None,
) -> None:
    """Holds when the file has the size and digest of its record.  Raises StorageError.

    `give_up_s`: an instant of `time.monotonic` after which it is not read further; `tell`: hears how far it is.
    """
    found = file_digest(storage, file.name, size_bytes=file.size_bytes, give_up_s=give_up_s, tell=tell)
    if _is_longer(storage, file):
        raise StorageAlteredError(file.name, f"is longer than the {file.size_bytes:,} bytes that its manifest says")
    if found != file.digest:
        raise StorageAlteredError(file.name, "has another digest than its manifest says: the file was altered")


def _is_longer(storage: Storage, file: FileRecord) -> bool:
    try:
        storage.read(file.name, offset=file.size_bytes, length_bytes=1)
    except StorageError:  # it ends there; some stores refuse to read behind the end
        return False
    return True


def check_written(storage: Storage, file: FileRecord) -> None:
    """Holds when the file that its writer says it has written is in this folder, as long as it says; nothing is read.

    Raises StorageError, of a file that is not as it was said with what to do: its writer sees another folder.
    """
    try:
        size_bytes = storage.size_bytes(file.name)
    except StorageMissingError:
        raise StorageMissingError(file.name, f"is not in {storage.uri}{_WRITTEN_ELSEWHERE}") from None
    if size_bytes not in (None, file.size_bytes):
        problem = f"has {size_bytes:,} bytes in {storage.uri} and not the {file.size_bytes:,} that were written"
        raise StorageAlteredError(file.name, f"{problem}{_WRITTEN_ELSEWHERE}")


def _checked(name: str) -> str:
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or any(p.startswith(_TEMPORARY) for p in parts):
        raise StorageError(name, "is no relative name of a checkpoint file")
    return name


@contextmanager
def _as_storage_error(name: str, uri: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _translated(name, uri, error) from error


class _ChunksError(Exception):
    """What was to be written could not be made: the caller's failure, not the storage's."""

    def __init__(self, made_of: Exception) -> None:
        super().__init__()
        self.made_of = made_of


def _apart(chunks: Iterable[bytes | bytearray | memoryview]) -> Iterator[bytes | bytearray | memoryview]:
    try:
        yield from chunks
    except OSError:
        raise
    except Exception as error:
        raise _ChunksError(error) from error


@contextmanager
def _as_remote_error(name: str, uri: str) -> Iterator[None]:
    """Of a driver for somebody's object store: it may raise whatever its HTTP client raises."""
    try:
        yield
    except OSError as error:
        raise _translated(name, uri, error) from error
    except StorageError:
        raise
    except _ChunksError as error:
        raise error.made_of from None
    except Exception as error:
        raise StorageError(name, f"{uri} failed ({type(error).__name__}: {error})") from error


def _translated(name: str, uri: str, error: OSError) -> StorageError:
    reason = error.strerror or str(error) or type(error).__name__
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            return StorageFullError(name, f"no room in {uri} ({reason}): free some, or extend the volume")
        case errno.EROFS | errno.EACCES | errno.EPERM:
            return StorageReadOnlyError(name, f"{uri} may not be used so ({reason}): check its mount and its owner")
        case errno.ENOENT | errno.ENOTDIR:
            return StorageMissingError(name, f"is not in {uri}")
        case _ if isinstance(error, FileNotFoundError):
            return StorageMissingError(name, f"is not in {uri}")
        case _ if isinstance(error, PermissionError):
            return StorageReadOnlyError(name, f"{uri} may not be used so ({reason}): check the credentials")
        case _:
            return StorageError(name, f"{uri} failed ({reason})")


def _copy_hashed(chunks: Iterable[bytes | bytearray | memoryview], out: BinaryIO) -> WrittenFile:
    digest, size_bytes = hashlib.sha256(), 0
    for chunk in chunks:
        digest.update(chunk)
        out.write(chunk)
        size_bytes += chunk.nbytes if isinstance(chunk, memoryview) else len(chunk)
    return WrittenFile(size_bytes=size_bytes, digest=digest.hexdigest())


def _exactly(data: bytes, name: str, length_bytes: int | None) -> bytes:
    if length_bytes is not None and len(data) != length_bytes:
        raise StorageAlteredError(name, f"ends {length_bytes - len(data)} bytes too early: it was cut short")
    return data


class LocalStorage:
    """A folder of this machine, or one that is mounted like one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def uri(self) -> str:
        return str(self._folder)

    def errors_of(self, name: str) -> AbstractContextManager[None]:
        """Inside, what the system says of this file becomes a StorageError."""
        return _as_storage_error(name, self.uri)

    def write_file(self, name: str, chunks: Iterable[bytes | bytearray | memoryview]) -> WrittenFile:
        target = self._folder / _checked(name)
        temporary = target.with_name(f"{_TEMPORARY}{uuid.uuid4().hex}")
        with _as_storage_error(name, self.uri):
            _make_folder(target.parent)
            try:
                with open_new(temporary) as out:
                    written = _copy_hashed(chunks, out)
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
        with _as_storage_error(name, self.uri), (self._folder / _checked(name)).open("rb") as file:
            file.seek(offset)
            return _exactly(file.read() if length_bytes is None else file.read(length_bytes), name, length_bytes)

    def list(self, prefix: str = "") -> tuple[str, ...]:
        with _as_storage_error(prefix or ".", self.uri):
            try:
                entries = [entry.name for entry in os.scandir(self._folder) if entry.is_file()]
            except FileNotFoundError:
                return ()
        return tuple(sorted(n for n in entries if n.startswith(prefix) and not n.startswith(_TEMPORARY)))

    def exists(self, name: str) -> bool:
        return (self._folder / _checked(name)).is_file()

    def size_bytes(self, name: str) -> int | None:
        with _as_storage_error(name, self.uri):
            return (self._folder / _checked(name)).stat().st_size

    def discard_leftovers(self, *, older_than_s: float) -> None:
        with _as_storage_error(_TEMPORARY, self.uri):
            for path in self._folder.glob(f"{_TEMPORARY}*"):
                with suppress(FileNotFoundError):  # another one was quicker
                    if time.time() - path.stat().st_mtime > older_than_s:
                        path.unlink()

    def delete(self, name: str) -> None:
        with _as_storage_error(name, self.uri):
            (self._folder / _checked(name)).unlink(missing_ok=True)

    def move(self, name: str, to: str) -> None:
        target = self._folder / _checked(to)
        with _as_storage_error(name, self.uri):
            _make_folder(target.parent)
            source = self._folder / _checked(name)
            source.replace(target)
            for folder in {target.parent, source.parent}:
                _sync_folder(folder)


def _make_folder(folder: Path) -> None:
    """The folder and those above it are there, after a power cut too: what a new folder holds would go with it."""
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


# ---- fsspec ---------------------------------------------------------------------------------------------------------


def _open_remote(uri: str) -> Storage:
    try:
        import fsspec  # noqa: PLC0415  lazily: plain paths need no fsspec

        filesystem, root = fsspec.core.url_to_fs(uri)
    except ImportError as error:
        raise StorageError(uri, f"needs a package that is not installed ({error}); or use a plain path") from error
    except ValueError as error:
        raise StorageError(uri, f"is no URI that fsspec knows ({error})") from error
    return RemoteStorage(uri, filesystem, root)


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
        return f"{self._root}/{_checked(name)}"

    def write_file(self, name: str, chunks: Iterable[bytes | bytearray | memoryview]) -> WrittenFile:
        folder, _, _ = self._path(name).rpartition("/")
        temporary = f"{folder}/{_TEMPORARY}{uuid.uuid4().hex}"
        with _as_remote_error(name, self._uri):
            self._filesystem.makedirs(folder, exist_ok=True)
            try:
                with self._filesystem.open(temporary, "wb") as out:
                    written = _copy_hashed(_apart(chunks), out)
                self._filesystem.mv(temporary, self._path(name))
            except BaseException:
                with suppress(Exception):  # the first failure is the one to tell
                    self._filesystem.rm_file(temporary)
                raise
        return written

    def read(self, name: str, *, offset: int = 0, length_bytes: int | None = None) -> bytes:
        end = None if length_bytes is None else offset + length_bytes
        with _as_remote_error(name, self._uri):
            data = cast(bytes, self._filesystem.cat_file(self._path(name), start=offset, end=end))
        return _exactly(data, name, length_bytes)

    def list(self, prefix: str = "") -> tuple[str, ...]:
        with _as_remote_error(prefix or ".", self._uri):
            self._filesystem.invalidate_cache()
            try:
                found = self._filesystem.ls(self._root, detail=True)
            except FileNotFoundError:
                return ()
        names = (str(entry["name"]).rpartition("/")[2] for entry in found if entry["type"] == "file")
        return tuple(sorted(n for n in names if n.startswith(prefix) and not n.startswith(_TEMPORARY)))

    def exists(self, name: str) -> bool:
        with _as_remote_error(name, self._uri):
            self._filesystem.invalidate_cache()
            return bool(self._filesystem.exists(self._path(name)))

    def size_bytes(self, name: str) -> int | None:
        with _as_remote_error(name, self._uri):
            self._filesystem.invalidate_cache()
            return cast("int | None", self._filesystem.size(self._path(name)))

    def discard_leftovers(self, *, older_than_s: float) -> None:
        with _as_remote_error(_TEMPORARY, self._uri), suppress(FileNotFoundError, NotImplementedError):
            self._filesystem.invalidate_cache()
            for path in self._filesystem.glob(f"{self._root}/{_TEMPORARY}*"):
                if time.time() - self._filesystem.modified(path).timestamp() > older_than_s:
                    self._filesystem.rm_file(path)

    def delete(self, name: str) -> None:
        with _as_remote_error(name, self._uri), suppress(FileNotFoundError):
            self._filesystem.rm_file(self._path(name))

    def move(self, name: str, to: str) -> None:
        source, target = self._path(name), self._path(to)
        with _as_remote_error(name, self._uri):
            self._filesystem.makedirs(target.rpartition("/")[0], exist_ok=True)
            self._filesystem.mv(source, target)
