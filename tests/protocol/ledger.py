"""The model that the checker trains: one counter per sample in every bucket, each gradient adds one.

A ledger is what a bucket *really* did, beside the marks that say what it believes.  It goes wherever parameters go:
into the fork, into the file (whose digest here spells the ledger out), back at a restore.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from master.api.identities import BucketId
from master.api.messages.checkpoint_files import FileRecord
from master.api.positions import PositionSet

Ledger: TypeAlias = tuple[int, ...]
"""How often each position was applied."""

Ledgers: TypeAlias = tuple[tuple[BucketId, Ledger], ...]
"""Of all buckets of a server, by bucket."""


def blank(buckets: Iterable[int], positions: int) -> Ledgers:
    return tuple((BucketId(b), (0,) * positions) for b in buckets)


def added(ledgers: Ledgers, buckets: PositionSet, positions: PositionSet) -> Ledgers:
    """A gradient of these positions goes to these buckets."""
    return tuple(
        (b, tuple(count + (p in positions) for p, count in enumerate(ledger)) if b in buckets else ledger)
        for b, ledger in ledgers
    )


def as_digest(ledgers: Ledgers) -> str:
    return " ".join(f"{b}:{','.join(map(str, ledger))}" for b, ledger in ledgers)


def of_files(files: Iterable[FileRecord]) -> Mapping[BucketId, Ledger]:
    """What the files of a checkpoint contain."""
    found: dict[BucketId, Ledger] = {}
    for file in files:
        for piece in file.digest.split():
            bucket, counts = piece.split(":")
            found[BucketId(int(bucket))] = tuple(map(int, counts.split(",")))
    return found


def exactly(positions: PositionSet, size: int) -> Ledger:
    """Each of these once, nothing else."""
    return tuple(int(p in positions) for p in range(size))
