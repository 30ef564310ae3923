"""Common parts of both kinds of checkpoint storage: name checks, hashing, system errors as StorageErrors."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import BinaryIO, Final

from master.api.errors import (
    StorageAlteredError,
    StorageError,
    StorageFullError,
    StorageMissingError,
    StorageReadOnlyError,
)

TEMPORARY: Final = ".part-"  # leftovers of writers that died; never listed


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A written file: size, and SHA-256 in hexadecimal."""

    size_bytes: int
    digest: str


def checked_name(name: str) -> str:
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or any(p.startswith(TEMPORARY) for p in parts):
        raise StorageError(name, "is not a relative name of a checkpoint file")
    return name


@contextmanager
def as_storage_error(name: str, uri: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _translated(name, uri, error) from error


class ChunksError(Exception):
    """The iterable of chunks raised: the caller failed, not the storage."""

    def __init__(self, made_of: Exception) -> None:
        super().__init__()
        self.made_of = made_of


def wrap_chunk_errors(chunks: Iterable[bytes | bytearray | memoryview]) -> Iterator[bytes | bytearray | memoryview]:
    try:
        yield from chunks
    except OSError:
        raise
    except Exception as error:
        raise ChunksError(error) from error


@contextmanager
def as_remote_error(name: str, uri: str) -> Iterator[None]:
    """Context that maps any error of an object store's driver to a StorageError."""
    try:
        yield
    except OSError as error:
        raise _translated(name, uri, error) from error
    except StorageError:
        raise
    except ChunksError as error:
        raise error.made_of from None
    except Exception as error:
        raise StorageError(name, f"{uri} failed ({type(error).__name__}: {error})") from error


def _translated(name: str, uri: str, error: OSError) -> StorageError:
    reason = error.strerror or str(error) or type(error).__name__
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            return StorageFullError(name, f"no space left in {uri} ({reason}): free some, or extend the volume")
        case errno.EROFS | errno.EACCES | errno.EPERM:
            return StorageReadOnlyError(name, f"{uri} denies access ({reason}): check its mount and owner")
        case errno.ENOTDIR:
            return StorageMissingError(name, f"{uri} is no folder, or lies below a file: move that file away")
        case errno.ENOENT:
            return StorageMissingError(name, f"is not in {uri}")
        case _ if isinstance(error, FileNotFoundError):
            return StorageMissingError(name, f"is not in {uri}")
        case _ if isinstance(error, PermissionError):
            return StorageReadOnlyError(name, f"{uri} denies access ({reason}): check the credentials")
        case _:
            return StorageError(name, f"{uri} failed ({reason})")


def copy_hashed(chunks: Iterable[bytes | bytearray | memoryview], out: BinaryIO) -> WrittenFile:
    digest, size_bytes = hashlib.sha256(), 0
    for chunk in chunks:
        digest.update(chunk)
        out.write(chunk)
        size_bytes += chunk.nbytes if isinstance(chunk, memoryview) else len(chunk)
    return WrittenFile(size_bytes=size_bytes, digest=digest.hexdigest())


def exactly(data: bytes, name: str, length_bytes: int | None) -> bytes:
    if length_bytes is not None and len(data) != length_bytes:
        raise StorageAlteredError(name, f"ends {length_bytes - len(data)} bytes too early: it was cut short")
    return data
