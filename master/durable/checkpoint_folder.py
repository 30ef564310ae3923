"""The checkpoint folder of a running job: write manifests, choose a start, adopt, write HEAD.

Calls block; an event loop makes them with `call_with_timeout`.  What a manifest means is decided elsewhere (`job`);
what is deleted is decided in `retention`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from master.api.checkpoints.audit import try_head_hint, write_head_hint
from master.api.checkpoints.checkpoint_files import (
    check_file,
    check_written,
    read_manifest,
    read_retired,
    write_manifest,
)
from master.api.checkpoints.fallback import find_fallback
from master.api.checkpoints.folder_contents import (
    HEAD,
    RequestedStart,
    highest_lineage,
    parse_head,
    read_contents,
    set_aside,
    write_order,
)
from master.api.checkpoints.folder_lock import FolderLock
from master.api.checkpoints.manifest import Manifest, manifest_name, try_manifest_id
from master.api.checkpoints.resume import check_files_are_there, choose_requested, choose_start, is_request_open
from master.api.checkpoints.storage import Storage
from master.api.errors import (
    ContractError,
    ManifestError,
    NoFallbackError,
    StorageError,
    StorageMissingError,
    UnreadableCheckpointError,
)
from master.api.identities import HistoryId, Lineage, ManifestId
from master.durable.retention import discard_leftovers, retain
from master.job.domain.durable_records import RefoundingRecord

log: Final = logging.getLogger(__name__)


_OLDER_STORE: Final = (
    "the state store was restored from an older copy.  Restore a newer one, or choose a start:  "
    "spec.checkpoint.start while the job is suspended"
)

ADOPTION_BUDGET_S: Final = 1.0
"""Time limit for verifying an adoptable manifest; skipping adoption is always safe, waiting is not (rule 24)."""


HEAD_LOCK_TIMEOUT_S: Final = 1.0  # for the HEAD before to be written: another call would only wait beside it
ANSWER_BUDGET_S: Final = 60.0  # one manifest, over a slow network; a hanging mount would block for ever

_T = TypeVar("_T")


async def call_with_timeout(call: Callable[..., _T], *arguments: Any, budget_s: float = ANSWER_BUDGET_S) -> _T:
    """Result of a blocking call, run in a thread.  Raises StorageError after `budget_s`.

    The call may still have its effect: a late manifest is an orphan, or adopted (rules 23, 24).
    """
    try:
        async with asyncio.timeout(budget_s):
            return await asyncio.to_thread(call, *arguments)
    except TimeoutError:
        raise StorageError("the checkpoint folder", f"did not answer within {budget_s:g} s") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingPoint:
    """Starting point of a job: a checkpoint or nothing, in a lineage above all in its folder."""

    head: Manifest | None
    above: Lineage
    request: RequestedStart | None = None  # the request being carried out; all else is set aside
    fallback_note: str = ""  # of a fallback, for people


class CheckpointFolder:
    """One job's checkpoint folder."""

    def __init__(self, storage: Storage, lock: FolderLock | None = None) -> None:
        self._storage = storage
        self._lock = lock  # a writer's; None: the folder is unclaimed
        self._head_lock = threading.Lock()

    @property
    def uri(self) -> str:
        return self._storage.uri

    def check_written(self, manifest: Manifest) -> None:
        """Check that each file of the manifest exists here with its length.  Raises StorageError, naming the file."""
        for file in manifest.files:
            check_written(self._storage, file)

    def write(self, manifest: Manifest) -> None:
        """Write the manifest, stamped with the time of day.  Raises StorageError."""
        write_manifest(self._storage, manifest)

    def read(self, manifest_id: ManifestId) -> Manifest:
        """Raises StorageError or ManifestError."""
        return read_manifest(self._storage, manifest_id)

    def read_committed(self, head: ManifestId, mine: HistoryId | None = None) -> Manifest:
        """The manifest that the store names.  Raises StorageError or ManifestError.

        Raises NoFallbackError where HEAD, which is written after the store, names a newer one of the same history or
        of `mine`, this job's: then the store is an older copy, and what it lacks would silently be trained again.
        """
        manifest, named = self.read(head), try_head_hint(self._storage)
        newer = self._try_read(named) if named not in (None, head) else None
        if (
            newer is not None
            and newer.history in (manifest.history, mine)
            and write_order(newer) > write_order(manifest)
        ):
            problem = f"names {newer.id}, which was committed after {head}, the last checkpoint that the store knows of"
            raise NoFallbackError(HEAD, f"{problem}: {_OLDER_STORE}")
        return manifest

    def check_nothing_committed(self, mine: HistoryId | None) -> None:
        """Raises NoFallbackError if HEAD names a checkpoint of this job, or cannot be read.

        The store knows of no checkpoint then: the job would begin at 0 beside all that it has done.  HEAD may name
        another job's.
        """
        try:
            named = parse_head(self._storage.read(HEAD))
        except StorageMissingError:
            return
        except ManifestError as error:
            raise NoFallbackError(HEAD, f"{error}, and the store knows of no checkpoint: {_OLDER_STORE}") from error
        found = self._try_read(named)
        if mine is None or found is None or found.history == mine:
            raise NoFallbackError(HEAD, f"names {named}, but the store knows of no checkpoint: {_OLDER_STORE}")

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

    def begin(self, answer: RequestedStart | None) -> StartingPoint:
        """Starting point of a job without entries in the store.  Nothing is changed.

        Raises UnreadableCheckpointError where a user has to decide, StorageError.
        """
        now_s = time.time()
        contents = read_contents(self._storage, answer)
        head, follows = choose_start(contents, answer, now_s=now_s), is_request_open(contents, answer)
        if head is not None:
            check_files_are_there(self._storage, head, contents, is_answer=follows, now_s=now_s)
        return StartingPoint(head=head, above=self.highest_lineage(), request=answer if follows else None)

    def follow(self, answer: RequestedStart) -> StartingPoint:
        """The starting point of a job with a newly requested start, whatever its store contains.  Nothing is
        changed.

        Raises NoFallbackError where that cannot be read, StorageError.
        """
        now_s = time.time()
        contents = read_contents(self._storage)
        head = choose_requested(contents, answer, now_s=now_s)
        if head is not None:
            check_files_are_there(self._storage, head, contents, is_answer=True, now_s=now_s)
        return StartingPoint(head=head, above=self.highest_lineage(), request=answer)

    def fall_back(
        self, head: ManifestId | None, problem: str, history: HistoryId | None, has_failed_to_load: bool
    ) -> StartingPoint:
        """The newest intact checkpoint no newer than head, with its description.  Nothing is changed.

        Raises UnreadableCheckpointError where there is none, StorageError.
        """
        found = find_fallback(self._storage, head, problem, has_failed_to_load=has_failed_to_load, now_s=time.time())
        answer = RequestedStart(manifest=found.chosen.id, history=history or found.chosen.history)
        return StartingPoint(
            head=found.chosen, above=self.highest_lineage(), request=answer, fallback_note=found.description
        )

    def set_aside(self, record: RefoundingRecord, may_act: Callable[[], bool]) -> None:
        """Set aside everything except the refounded checkpoint and newer files.  May be repeated.

        Stops once `may_act` is False; what another master commits then stays in any case.  Raises
        UnreadableCheckpointError where the checkpoint to keep cannot be read any more, StorageError.
        """

        def check() -> None:
            if not may_act():
                raise StorageError(self.uri, "is left unchanged: this term may be over")

        keep = None if record.base is None else self._try_read(record.base)
        if record.base is not None and keep is None:
            raise UnreadableCheckpointError(manifest_name(record.base), "must be resumed from, and cannot be read")
        log.warning("%s: resuming from %s; all other files are set aside", self.uri, record.base or "nothing")
        set_aside(self._storage, keep, record.history, above=record.above, check=check)

    def highest_lineage(self) -> Lineage:
        """The highest lineage in the name of any file there."""
        return highest_lineage(self._storage)

    def discard_leftovers(self) -> None:
        """Part files of writers that died are gone.  A failure is logged only."""
        discard_leftovers(self._storage)

    def retain(self, wanted: frozenset[ManifestId]) -> None:
        """See `retention.retain`."""
        retain(self._storage, wanted)

    def find_adoptable(
        self, parent: ManifestId | None, lineage: Lineage, mine: HistoryId | None = None
    ) -> Manifest | None:
        """A manifest that may still be committed: of this parent and lineage, all files verified (rule 24).

        `mine`: this job's history; what another job has committed in the same folder is never adopted.  None:
        unknown.
        """
        give_up_s = time.monotonic() + ADOPTION_BUDGET_S
        fitting = (m for m in self.all() if m.parent == parent and m.lineage == lineage)
        candidates = [m for m in fitting if mine in (None, m.history)]
        for manifest in sorted(candidates, key=write_order, reverse=True):
            try:
                for file in manifest.files:
                    check_file(self._storage, file, deadline_s=give_up_s)
            except StorageError as error:
                log.warning("manifest %s is not adopted: %s", manifest.id, error)
            else:
                return manifest
        return None

    def write_head(self, manifest_id: ManifestId) -> None:
        """Write HEAD, from which a job without a store resumes.  Raises StorageError.

        HEAD is not written where another job has written its own: each would delete the other's files.  Calls are
        serialised, so that an older commit is never written last; while one call hangs, others raise.
        """
        if not self._head_lock.acquire(timeout=HEAD_LOCK_TIMEOUT_S):
            raise StorageError("HEAD", f"is still being written in {self.uri}: the folder does not answer")
        try:
            if self._lock is not None:
                self._lock.keep_as_writer()
            if self._may_write_head(manifest_id):
                write_head_hint(self._storage, manifest_id)
        finally:
            self._head_lock.release()

    def _may_write_head(self, manifest_id: ManifestId) -> bool:
        """True if HEAD names what this job began from or committed before, or what cannot be read.

        False: it names a newer checkpoint of this job, whose new master took over from a stalled one.  Raises
        StorageError where it is another job's.
        """
        named = try_head_hint(self._storage)
        mine, other = self._try_read(manifest_id), named and self._try_read(named)
        if mine and other and other.id != mine.parent and other.history != mine.history:
            problem = (
                f"names {other.id} of another job's history ({other.history}), committed after this job started: two "
                f"jobs write into {self.uri}.  No checkpoint of either is deleted; give this job a folder of its own, "
                "or delete the other job"
            )
            raise StorageError(HEAD, problem)
        return not (mine and other and other.history == mine.history and write_order(other) > write_order(mine))

    def _try_read(self, manifest_id: ManifestId) -> Manifest | None:
        """The manifest, also a retired one; None: it cannot be read."""
        for read in (read_manifest, read_retired):
            with suppress(ContractError):
                return read(self._storage, manifest_id)
        return None
