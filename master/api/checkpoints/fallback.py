"""Fallback to an earlier checkpoint when the last cannot be read, for jobs that allow it (M11, ADR 0189).

Other jobs refuse to start (`resume`).  A job that allows it resumes from the newest intact checkpoint and reports how
much is trained again; without one it refuses, and never starts from zero by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from master.api.checkpoints.checkpoint_files import check_file
from master.api.checkpoints.folder_contents import HEAD, FolderContents, RequestedStart, read_contents, write_order
from master.api.checkpoints.manifest import Manifest, manifest_name
from master.api.checkpoints.resume import describe_manifest, find_start, later_commit_after
from master.api.checkpoints.storage import Storage
from master.api.errors import NoFallbackError, StorageError, UnreadableCheckpointError
from master.api.identities import ManifestId, WhenUnreadable

_ID: Final = re.compile(r"(\d{6,})-(\d{10,})-(\d{6,})-")


def check_start(storage: Storage, answer: RequestedStart | None, when: WhenUnreadable, *, now_s: float) -> None:
    """Check that a job without a store can start, from its checkpoint or by fallback.  Nothing is changed.

    Raises UnreadableCheckpointError, StorageError for an unusable folder.
    """
    try:
        find_start(storage, answer, now_s=now_s)
    except NoFallbackError:
        raise
    except UnreadableCheckpointError:
        if when is WhenUnreadable.FAIL:
            raise


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """The checkpoint to resume from, and its description for people."""

    chosen: Manifest
    description: str


def find_fallback(
    storage: Storage, head: ManifestId | None, problem: str, *, has_failed_to_load: bool = False, now_s: float
) -> Fallback:
    """Newest intact checkpoint that is not newer than `head` (None: of all).

    This is head itself once its files are readable again, unless servers still fail to load it
    (`has_failed_to_load`); then they could not load an older one either.  Raises UnreadableCheckpointError with
    `problem` if no checkpoint is intact, NoFallbackError if a newer one than `head` was committed (the store, or HEAD,
    is an older copy), StorageError if the folder does not answer.
    """
    contents = read_contents(storage)
    if (last := head or contents.head) is not None and (later := _committed_after(contents, last)):
        text = f"cannot be resumed from, and {later} shows that it is not the last checkpoint: no fallback from it"
        raise NoFallbackError(manifest_name(last), f"{text}. {problem}")
    for candidate in _candidates(contents, last):
        if _is_intact(storage, candidate):
            if has_failed_to_load and candidate.id == head:
                text = f"is intact for this master; check the mounts of the parameter servers. {problem}"
                raise UnreadableCheckpointError(f"manifest {head}", text)
            description = _describe(contents, last, candidate, problem, now_s)
            return Fallback(chosen=candidate, description=description)
    text = f"has no intact checkpoint before it. {problem}"
    raise UnreadableCheckpointError(f"manifest {head}" if head else storage.uri, text)


def _committed_after(contents: FolderContents, last: ManifestId) -> str:
    """The file that proves that a checkpoint was committed after the last one; empty: there is none.

    HEAD is written after the store.  If the last manifest cannot be read, ids are compared.
    """
    known, read = contents.known, contents.known.get(last)
    named = known.get(contents.head) if contents.head is not None else None
    if named is not None and named.id != last and not _is_older(named, last, read):
        return HEAD
    if read is not None:
        return later_commit_after(read, contents.manifests, contents.retired)
    newer = sorted((one for one in known.values() if not _is_older(one, last, None)), key=write_order)
    proofs = (one.id for one in newer if one.id not in contents.manifests or one.parent not in (last, None))
    return next(map(manifest_name, proofs), "")


def _candidates(contents: FolderContents, head: ManifestId | None) -> Iterator[Manifest]:
    """The checkpoints to try, newest first; newer ones than head were never committed, or rolled back from."""
    known = contents.known
    for one in sorted(known.values(), key=write_order, reverse=True):
        if head is None or one.id == head or _is_older(one, head, known.get(head)):
            yield one


def _is_older(one: Manifest, head: ManifestId, read: Manifest | None) -> bool:
    """True if it is older than head: by head's manifest, else by its id, which is in the order of time."""
    if read is not None:
        return write_order(one) < write_order(read)
    mine, its = _ID.match(one.id), _ID.match(head)
    return not (mine and its) or tuple(map(int, mine.groups())) < tuple(map(int, its.groups()))


def _is_intact(storage: Storage, manifest: Manifest) -> bool:
    try:
        for file in manifest.files:
            check_file(storage, file)
    except StorageError:
        return False
    return True


def _describe(contents: FolderContents, head: ManifestId | None, chosen: Manifest, problem: str, now_s: float) -> str:
    description = describe_manifest(chosen, now_s=now_s)
    if chosen.id == head:
        return (
            f"resumed from the last checkpoint, {description}, which is intact; damaged files were set aside. {problem}"
        )
    read = contents.known.get(head) if head else None
    if read is None:
        lost = "the number of repeated samples is unknown, because the manifest cannot be read"
    else:
        lost = f"{len(read.data - chosen.data):,} samples are trained again"
    last = manifest_name(head) if head else "the last checkpoint"
    return f"{last} cannot be resumed from; the job fell back to {description}: {lost}. {problem}"
