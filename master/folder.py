"""What a master does in the checkpoint folder: write manifests, find one to adopt, delete what nobody needs.

Calls block; an event loop makes them with `in_time`.  What a manifest means is decided elsewhere (`job`); here stands
only how it is kept.  Deleting is shy: what is newer than head may be somebody's commit under way, and stays (rule 25).
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from master.api.audit import check_file, newest_manifest, try_head_hint, write_head_hint
from master.api.errors import ContractError, StorageError
from master.api.identities import Lineage, ManifestId
from master.api.manifest import Manifest, manifest_name, try_manifest_id
from master.api.storage import Storage, read_manifest, write_manifest

log: Final = logging.getLogger(__name__)

_CUT_FILE: Final = re.compile(r"cut-(\d+)-(\d+)-(\d+)-")
_WRITER_SILENT_S: Final = 3600.0  # a writer that lives touches its file far more often, even over a slow network

ADOPTION_BUDGET_S: Final = 1.0
"""What cannot be verified within it is not adopted (rule 24): not adopting is always safe, waiting is not."""


ANSWER_BUDGET_S: Final = 60.0  # one manifest, over a slow network; a mount that hangs would keep us for ever

_T = TypeVar("_T")


async def in_time(call: Callable[..., _T], *arguments: Any, budget_s: float = ANSWER_BUDGET_S) -> _T:
    """The answer of a blocking call, made in a thread.

    Raises StorageError when there is none by then.  The call may still have its effect: a manifest that appears late is
    an orphan, or adopted (rules 23, 24).
    """
    try:
        async with asyncio.timeout(budget_s):
            return await asyncio.to_thread(call, *arguments)
    except TimeoutError:
        raise StorageError("the checkpoint folder", f"did not answer within {budget_s:g} s") from None


class CheckpointFolder:
    """One job's checkpoint folder."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._noting = threading.Lock()

    @property
    def uri(self) -> str:
        return self._storage.uri

    def write(self, manifest: Manifest) -> None:
        """The manifest stands there, stamped with the time of day.  Raises StorageError."""
        write_manifest(self._storage, manifest)

    def read(self, manifest_id: ManifestId) -> Manifest:
        """Raises StorageError or ManifestError."""
        return read_manifest(self._storage, manifest_id)

    def all(self) -> tuple[Manifest, ...]:
        """Every manifest that can be read; the others are logged."""
        found = []
        for name in self._storage.list("manifest-"):
            manifest_id = try_manifest_id(name)
            if manifest_id is None:
                continue
            try:
                found.append(read_manifest(self._storage, manifest_id))
            except ContractError as error:
                log.warning("%s: %s", name, error)
        return tuple(found)

    def newest(self, manifests: Iterable[Manifest]) -> Manifest | None:
        """The one to go on from when the store knows nothing: HEAD's, or the newest end of a chain."""
        return newest_manifest(self._storage, manifests)

    def find_adoptable(self, parent: ManifestId | None, lineage: Lineage) -> Manifest | None:
        """A manifest that may be committed still: of this parent and lineage, all files verified (rule 24)."""
        give_up_s = time.monotonic() + ADOPTION_BUDGET_S
        candidates = [m for m in self.all() if m.parent == parent and m.lineage == lineage]
        for manifest in sorted(candidates, key=_age, reverse=True):
            try:
                for file in manifest.files:
                    check_file(self._storage, file, give_up_s=give_up_s)
            except StorageError as error:
                log.warning("manifest %s is not adopted: %s", manifest.id, error)
            else:
                return manifest
        return None

    def note_head(self, manifest_id: ManifestId) -> None:
        """For readers without the store.  A failure is logged only: it is a hint.

        One after another: on a folder that is slow for a while an older commit's name must not come last.
        """
        try:
            with self._noting:
                write_head_hint(self._storage, manifest_id)
        except StorageError as error:
            log.warning("head is not noted in the folder: %s", error)

    def retain(self, wanted: frozenset[ManifestId]) -> None:
        """Older manifests than the newest wanted one are gone, with the files that only they name (rule 25).

        The one that HEAD names stays: HEAD may not have been written yet for the newest, and readers follow it.
        A failure is logged only: the next commit deletes what this one left.
        """
        try:
            self._retain(wanted)
        except StorageError as error:
            log.warning("an old checkpoint stays: %s", error)

    def _retain(self, wanted: frozenset[ManifestId]) -> None:
        manifests = self.all()
        noted = try_head_hint(self._storage)
        newest = max((_age(m) for m in manifests if m.id in wanted), default=None)
        if newest is None:
            return
        gone = [m for m in manifests if m.id not in wanted and m.id != noted and _age(m) < newest]
        kept_files = {file.name for m in manifests if m not in gone for file in m.files}
        unnamed = {file.name for manifest in gone for file in manifest.files} - kept_files
        for manifest in gone:
            self._storage.delete(manifest_name(manifest.id))  # first, so that none ever names what is not there
        for name in unnamed | self._left_behind(kept_files):
            self._storage.delete(name)
        self._storage.discard_leftovers(older_than_s=_WRITER_SILENT_S)

    def _left_behind(self, kept_files: set[str]) -> set[str]:
        """Servers' files of cuts that were given up: older than a cut that was kept, so nobody writes them any more."""
        newest = max((cut for name in kept_files if (cut := _try_cut(name))), default=None)
        names = set(self._storage.list("cut-")) - kept_files if newest else set()
        return {name for name in names if newest and (cut := _try_cut(name)) and cut < newest}


def _try_cut(name: str) -> tuple[int, ...] | None:
    """(lineage, term, sequence) in the name of a server's file: newer cuts displace older ones."""
    match = _CUT_FILE.match(name)
    return tuple(int(number) for number in match.groups()) if match else None


def _age(manifest: Manifest) -> tuple[int, int, int]:
    return (manifest.lineage, manifest.term, manifest.step)
