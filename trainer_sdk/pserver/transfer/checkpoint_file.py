"""One server's checkpoint file of one cut: written once, complete or not at all, and read bucket by bucket.

    magic | extent of each bucket | index (JSON) | trailer: offset, length, digest of the index, magic

An extent is a bucket as `tables.bucket_codec` encodes it.  The index has cut, lineage, marks, tables, and place and
digest of each bucket; `FileRecord` reports the same to the master for the manifest.  Files go through the storage
port: a temporary name, fsync, atomic rename; a full disk leaves nothing behind.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from master.api.checkpoints.storage import Storage
from master.api.document import encode_document, from_plain, parse_json
from master.api.format_version import check_version
from master.api.identities import BucketId, CutId, Incarnation, MemberName, TableSpec
from master.api.messages.checkpoint_files import BucketMarks, FileRecord
from master.api.positions import PositionSet
from trainer_sdk.errors import CheckpointError
from trainer_sdk.pserver.tables.bucket_codec import bucket_digest

MAGIC: Final = b"EDLCKPT1"
_TRAILER: Final = struct.Struct("<QQ64s8s")
_READ_BYTES: Final = 16 * 1024 * 1024  # neighbouring extents are read together up to this

INDEX_VERSION: Final = 1

Extent = tuple[BucketId, int, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIndex:
    """Index of a checkpoint file."""

    version: int
    cut: CutId
    server: MemberName
    incarnation: Incarnation
    bucket_count: int
    tables: tuple[TableSpec, ...]
    marks: tuple[BucketMarks, ...]
    extents: tuple[Extent, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointAuthor:
    """The server that writes a file, and the layout of its buckets."""

    server: MemberName
    incarnation: Incarnation
    bucket_count: int
    tables: tuple[TableSpec, ...]


def file_name(author: CheckpointAuthor, cut: CutId) -> str:
    """The file's name, with cut id and incarnation: no two attempts write one name (rule 58)."""
    return f"cut-{cut.lineage}-{cut.term}-{cut.sequence}-{author.server}-{author.incarnation}.edl"


def write_checkpoint(
    storage: Storage,
    author: CheckpointAuthor,
    cut: CutId,
    marks: tuple[BucketMarks, ...],
    read_bucket: Callable[[int], list[memoryview]],
) -> FileRecord:
    """Writes the file and returns its record.  Raises StorageError, and what `read_bucket` raises."""
    extents: list[Extent] = []
    name = file_name(author, cut)
    written = storage.write_file(name, _chunks(author, cut, marks, read_bucket, extents))
    return FileRecord(
        name=name,
        size_bytes=written.size_bytes,
        digest=written.digest,
        lineage=cut.lineage,
        marks=marks,
        extents=tuple(extents),
    )


def read_index(storage: Storage, name: str, size_bytes: int) -> FileIndex:
    """Index of the file.

    Raises StorageError, CheckpointError when it is no such file or was altered, DocumentError for a newer version.
    """
    at = size_bytes - _TRAILER.size
    if at < len(MAGIC):
        raise CheckpointError(name, f"{size_bytes} bytes are too few for a checkpoint file: it was cut short")
    offset, length, digest, magic = _TRAILER.unpack(storage.read(name, offset=at, length_bytes=_TRAILER.size))
    if magic != MAGIC or offset + length != at:
        raise CheckpointError(name, "does not end like a checkpoint file: it was cut short or altered")
    text = storage.read(name, offset=offset, length_bytes=length)
    if bucket_digest([memoryview(text)]).encode() != digest:
        raise CheckpointError(name, "its index does not have the digest that it should have: it was altered")
    plain = parse_json(text)
    version = plain.get("version") if isinstance(plain, dict) else None
    check_version("index of a checkpoint file", version, known=INDEX_VERSION)
    return from_plain(FileIndex, plain)


def read_buckets(storage: Storage, record: FileRecord, buckets: PositionSet) -> Iterator[tuple[int, memoryview]]:
    """Verified bytes of those buckets that the file holds.  Raises StorageError, or CheckpointError if altered."""
    wanted = sorted((extent for extent in record.extents if extent[0] in buckets), key=lambda extent: extent[1])
    for together in _neighbours(wanted):
        first, last = together[0], together[-1]
        length = last[1] + last[2] - first[1]
        data = memoryview(storage.read(record.name, offset=first[1], length_bytes=length))
        for bucket, offset, size, digest in together:
            piece = data[offset - first[1] : offset - first[1] + size]
            if bucket_digest([piece]) != digest:
                raise CheckpointError(record.name, f"bucket {bucket} does not have its digest: the file was altered")
            yield bucket, piece


def _chunks(
    author: CheckpointAuthor,
    cut: CutId,
    marks: tuple[BucketMarks, ...],
    read_bucket: Callable[[int], list[memoryview]],
    extents: list[Extent],
) -> Iterator[bytes | memoryview]:
    """The file from front to back; `extents` is filled on the way."""
    yield MAGIC
    at = len(MAGIC)
    for group in marks:
        for bucket in group.buckets:
            pieces = read_bucket(bucket)
            size = sum(piece.nbytes for piece in pieces)
            extents.append((BucketId(bucket), at, size, bucket_digest(pieces)))
            at += size
            yield from pieces
    index = encode_document(
        FileIndex(
            version=INDEX_VERSION,
            cut=cut,
            server=author.server,
            incarnation=author.incarnation,
            bucket_count=author.bucket_count,
            tables=author.tables,
            marks=marks,
            extents=tuple(extents),
        )
    )
    yield index
    yield _TRAILER.pack(at, len(index), bucket_digest([memoryview(index)]).encode(), MAGIC)


def _neighbours(extents: list[Extent]) -> Iterator[list[Extent]]:
    together: list[Extent] = []
    for extent in extents:
        if together and (
            extent[1] != together[-1][1] + together[-1][2] or extent[1] + extent[2] - together[0][1] > _READ_BYTES
        ):
            yield together
            together = []
        together.append(extent)
    if together:
        yield together
