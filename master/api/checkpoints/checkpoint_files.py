"""Manifests and data files in a checkpoint storage: written, read back, and compared with their digests."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Final

from master.api.checkpoints.manifest import Manifest, decode_manifest, encode_manifest, manifest_name, retired_name
from master.api.checkpoints.storage import Storage
from master.api.errors import StorageAlteredError, StorageError, StorageMissingError
from master.api.identities import ManifestId
from master.api.messages.checkpoint_files import FileRecord

_PIECE_BYTES: Final = 4 * 1024 * 1024
_WRITTEN_ELSEWHERE: Final = (
    " for the master, although its writer reported it complete: writer and master see different folders under this "
    "path (a volume that is not mounted, an emptyDir), or the file was deleted. Servers, trainers and master must see "
    "the same checkpoint.uri: check their mounts. No older checkpoint is deleted meanwhile"
)


def write_manifest(storage: Storage, manifest: Manifest) -> None:
    """Write the manifest atomically under its name.  It is committed only when `head` names it (rule 23)."""
    storage.write_file(manifest_name(manifest.id), [encode_manifest(manifest)])


def read_manifest(storage: Storage, manifest_id: ManifestId) -> Manifest:
    """Read a manifest.  Raises StorageError if it cannot be read, ManifestError if its content is invalid."""
    return _read_as(storage, manifest_name(manifest_id), manifest_id)


def read_retired(storage: Storage, manifest_id: ManifestId) -> Manifest:
    """Read a retired manifest, as `read_manifest`."""
    return _read_as(storage, retired_name(manifest_id), manifest_id)


def _read_as(storage: Storage, name: str, manifest_id: ManifestId) -> Manifest:
    manifest = decode_manifest(storage.read(name))
    if manifest.id != manifest_id:
        raise StorageAlteredError(name, f"contains manifest {manifest.id!r}")
    return manifest


def file_digest(
    storage: Storage,
    name: str,
    *,
    size_bytes: int,
    deadline_s: float | None = None,
    on_progress: Callable[[int], None] = lambda _: None,
) -> str:
    """SHA-256 of the first `size_bytes`, read in pieces.  Raises StorageAlteredError when the file is shorter.

    `deadline_s` (of `time.monotonic`): StorageError is raised after it.  `on_progress` is called with the bytes read
    after each piece.
    """
    digest = hashlib.sha256()
    for offset in range(0, size_bytes, _PIECE_BYTES):
        if deadline_s is not None and time.monotonic() > deadline_s:
            raise StorageError(name, "could not be read before the deadline")
        piece = storage.read(name, offset=offset, length_bytes=min(_PIECE_BYTES, size_bytes - offset))
        digest.update(piece)
        on_progress(offset + len(piece))
    return digest.hexdigest()


def check_file(
    storage: Storage,
    file: FileRecord,
    *,
    deadline_s: float | None = None,
    on_progress: Callable[[int], None] = lambda _: None,
) -> None:
    """Check that the file has the size and digest of its record.  Raises StorageError.

    `deadline_s`: an instant of `time.monotonic` after which it is not read further; `on_progress`: see `file_digest`.
    """
    found = file_digest(storage, file.name, size_bytes=file.size_bytes, deadline_s=deadline_s, on_progress=on_progress)
    if _is_longer(storage, file):
        raise StorageAlteredError(file.name, f"is longer than the {file.size_bytes:,} bytes in its manifest")
    if found != file.digest:
        raise StorageAlteredError(file.name, "does not match the digest in its manifest: the file was altered")


def _is_longer(storage: Storage, file: FileRecord) -> bool:
    try:
        storage.read(file.name, offset=file.size_bytes, length_bytes=1)
    except StorageError:  # it ends there; some stores refuse to read behind the end
        return False
    return True


def check_written(storage: Storage, file: FileRecord) -> None:
    """Check that a reported file exists in this folder with the reported length, without reading it.

    Raises StorageError with advice if not: its writer may see another folder.
    """
    try:
        size_bytes = storage.size_bytes(file.name)
    except StorageMissingError:
        raise StorageMissingError(file.name, f"is not in {storage.uri}{_WRITTEN_ELSEWHERE}") from None
    if size_bytes not in (None, file.size_bytes):
        problem = f"has {size_bytes:,} bytes in {storage.uri} and not the {file.size_bytes:,} that were written"
        raise StorageAlteredError(file.name, f"{problem}{_WRITTEN_ELSEWHERE}")
