"""Heads of frames between servers: a bucket's copy, the answer to it, and a push for a backup.

The body of a copy is the bucket as in a checkpoint (`tables.bucket_codec`).  Its digest is a CRC-32 with the length,
which finds damage by links or memory in a copy that lives for seconds; the handshake decides who may send.  Pure.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from master.api.identities import BucketId, Incarnation, Lineage, Version
from master.api.positions import PositionSet
from trainer_sdk.errors import WireError
from trainer_sdk.pserver.core.messages import CopyHead
from trainer_sdk.pserver.wire.heads import (
    HeadReader,
    PushHead,
    buckets_in,
    decode_push,
    encode_push,
    encoded_buckets,
    length_prefixed,
    positions_in,
)

_COPY: Final = struct.Struct("<qqqB")  # lineage, bucket, version, is_final
_STATUS: Final = struct.Struct("<B")


class CopyStatus(IntEnum):
    """Answer of a copy's target; the target reports to the master whether it keeps the copy (INSTALLED)."""

    ARRIVED = 0  # received whole
    NEED_FULL = 1  # the base of the difference is not here (rule 42)


def encode_copy(head: CopyHead) -> bytes:
    names = (length_prefixed(text.encode()) for text in (head.target, head.digest, head.base))
    marks = (length_prefixed(marks.encode()) for marks in (head.applied, head.skipped))
    return b"".join((_COPY.pack(head.lineage, head.bucket, head.version, head.is_final), *names, *marks))


def decode_copy(data: bytes) -> CopyHead:
    """Raises WireError."""
    reader = HeadReader(data)
    lineage, bucket, version, is_final = reader.take(_COPY)
    target, digest, base = (reader.sized().decode(errors="replace") for _ in range(3))
    applied, skipped = positions_in(reader.sized()), positions_in(reader.sized())
    reader.end()
    return CopyHead(
        lineage=Lineage(lineage),
        bucket=BucketId(bucket),
        version=Version(version),
        target=Incarnation(target),
        is_final=bool(is_final),
        applied=applied,
        skipped=skipped,
        digest=digest,
        base=base,
    )


def encode_backup_push(head: PushHead, pushed: PositionSet) -> bytes:
    """Head of a push for a backup (rule 61).  Its body is still that of all buckets that the trainer `pushed`."""
    return encoded_buckets(pushed) + encode_push(head)


def decode_backup_push(data: bytes) -> tuple[PushHead, PositionSet]:
    """Raises WireError."""
    reader = HeadReader(data)
    pushed = buckets_in(reader.sized())
    return decode_push(reader.rest()), pushed


def encode_copy_answer(status: CopyStatus) -> bytes:
    return _STATUS.pack(status)


def decode_copy_answer(data: bytes) -> CopyStatus:
    """Raises WireError."""
    reader = HeadReader(data)
    (status,) = reader.take(_STATUS)
    reader.end()
    try:
        return CopyStatus(status)
    except ValueError as error:
        raise WireError(f"answer {status} to a copy is unknown: another version of EDL?") from error


def copy_digest(pieces: Iterable[memoryview], base: str = "") -> str:
    """Digest of a whole bucket, or of a difference together with the digest `base` of the content below it."""
    check, size = zlib.crc32(base.encode()), 0
    for piece in pieces:
        check = zlib.crc32(piece, check)
        size += piece.nbytes
    return f"{check:08x}-{size:x}"
