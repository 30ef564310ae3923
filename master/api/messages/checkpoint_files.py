"""Record of a checkpoint's file, as servers and trainers report it and the manifest keeps it."""

from __future__ import annotations

from dataclasses import dataclass

from master.api.identities import BucketId, Lineage
from master.api.positions import EMPTY, PositionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketMarks:
    """The marks of these buckets: the positions that they have applied, and those that they will never apply.

    `buckets` is a set of bucket numbers.
    """

    buckets: PositionSet
    applied: PositionSet
    skipped: PositionSet = EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """One written checkpoint file, as it describes itself (rule 21).  `extents`: (bucket, offset, length, digest)."""

    name: str  # relative to the job's checkpoint folder
    size_bytes: int
    digest: str
    lineage: Lineage
    marks: tuple[BucketMarks, ...]
    extents: tuple[tuple[BucketId, int, int, str], ...] = ()
