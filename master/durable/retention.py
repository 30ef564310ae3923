"""Retention of checkpoints: which manifests and files of a checkpoint folder are retired, and which are deleted.

The checkpoint before head stays for a while as a *retired* manifest, so that it is there should head be damaged (M11).
Nothing of another history is deleted, and nothing newer than head: that may be a commit under way (rule 25).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from typing import Final

from master.api.checkpoints.audit import try_head_hint
from master.api.checkpoints.folder_contents import read_contents, write_order
from master.api.checkpoints.manifest import Manifest, manifest_name, retired_name
from master.api.checkpoints.storage import Storage
from master.api.errors import StorageError
from master.api.identities import ManifestId

log: Final = logging.getLogger(__name__)

_CUT_FILE: Final = re.compile(r"cut-(\d+)-(\d+)-(\d+)-")
_COPY_FILE: Final = re.compile(r"replica-(\d+)-\d+-(\d+)-")
_WRITER_SILENT_S: Final = 3600.0  # a live writer writes far more often, even over a slow network
_RETIRED_KEPT: Final = 1  # the checkpoint before head, should head be damaged


def discard_leftovers(storage: Storage) -> None:
    """Part files of writers that died are gone.  A failure is logged only."""
    try:
        storage.discard_leftovers(older_than_s=_WRITER_SILENT_S)
    except StorageError as error:
        log.warning("part files could not be deleted: %s", error)


def retain(storage: Storage, wanted: frozenset[ManifestId]) -> None:
    """Manifests of this history older than the newest of `wanted` are retired, and later deleted with their files.

    The one that HEAD names stays: HEAD may not name the newest yet, and readers follow it.  A failure is logged only:
    the next commit deletes what this one left.
    """
    try:
        _retain(storage, wanted)
    except StorageError as error:
        log.warning("old checkpoints could not be deleted: %s", error)


def _retain(storage: Storage, wanted: frozenset[ManifestId]) -> None:
    contents = read_contents(storage)
    noted = try_head_hint(storage)
    newest = max((m for m in contents.manifests.values() if m.id in wanted), key=write_order, default=None)
    if newest is None:
        return
    older = {
        m.id: m
        for m in contents.manifests.values()
        if m.history == newest.history and write_order(m) < write_order(newest)
    }
    for manifest_id in older.keys() - wanted - {noted}:
        storage.move(manifest_name(manifest_id), retired_name(manifest_id))
    for damage in (*contents.damaged, *contents.damaged_retired):
        log.warning("no old file is deleted while %s cannot be read", damage.name)
        return
    retired = {**contents.retired, **{one: older[one] for one in older.keys() - wanted - {noted}}}
    mine = sorted((m for m in retired.values() if m.history == newest.history), key=write_order)
    _delete(storage, mine[:-_RETIRED_KEPT], kept=[m for m in contents.known.values() if m not in mine[:-_RETIRED_KEPT]])
    _delete_given_up(storage, newest, contents.known.values())
    discard_leftovers(storage)


def _delete(storage: Storage, retired: Collection[Manifest], *, kept: Collection[Manifest]) -> None:
    """Deletes files first: a file that no manifest names any more would stay for ever."""
    named = {file.name for manifest in kept for file in manifest.files}
    for manifest in retired:
        for file in manifest.files:
            if file.name not in named:
                storage.delete(file.name)
        storage.delete(retired_name(manifest.id))


def _delete_given_up(storage: Storage, newest: Manifest, known: Collection[Manifest]) -> None:
    """Deletes servers' files of cuts that were given up, older than a cut that was kept, and a group's copies likewise.

    A copy of a step that head has passed, or of an older lineage, is refused whoever offers it (87).  One of
    head's own step may be the job's last, where a script has stopped there (97), until head ends training.
    Where another job has committed since this one began none is deleted: a file's name does not contain its job, and
    no manifest names yet what that job's servers have just written.
    """
    if any(m.history != newest.history and m.lineage >= newest.founded for m in known):
        return
    named = {file.name for manifest in known for file in manifest.files}
    kept = max((cut for file in newest.files if (cut := _try_cut(file.name))), default=None)
    for name in storage.list("cut-") if kept else ():
        cut = _try_cut(name)
        if cut and kept and newest.founded <= cut[0] and cut < kept and name not in named:
            storage.delete(name)
    reached = (newest.lineage, newest.step)
    for name in storage.list("replica-") if newest.state is not None else ():
        copy = _try_copy(name)
        is_passed = copy is not None and (copy < reached or (copy == reached and newest.is_complete))
        if copy and is_passed and newest.founded <= copy[0] and name not in named:
            storage.delete(name)


def _try_cut(name: str) -> tuple[int, ...] | None:
    """(lineage, term, sequence) in the name of a server's file; None: it is no such file."""
    match = _CUT_FILE.match(name)
    return tuple(int(number) for number in match.groups()) if match else None


def _try_copy(name: str) -> tuple[int, int] | None:
    """(lineage, step) in the name of a group's copy; None: it is no such file."""
    match = _COPY_FILE.match(name)
    return (int(match[1]), int(match[2])) if match else None
