"""Start of a term: the durable state in the store, and the checkpoint that its head names.

The store is read first, then the manifest.  A store that has lost everything is founded again from the checkpoint
folder (M8, rule 29).  A store or folder that fails is retried; only a checkpoint that cannot be read fails the job
in the end, or makes it fall back to the checkpoint before, where the job asks for that (M11).

Not here: when a term begins and ends (`leader_terms`), the transactions (`master.durable`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from master import job
from master.api.checkpoints.manifest import Manifest, manifest_name
from master.api.errors import (
    ManifestError,
    NoFallbackError,
    StorageAlteredError,
    StorageError,
    StorageMissingError,
    UnreadableCheckpointError,
)
from master.api.identities import Lineage, ManifestId, Term
from master.api.master_status import JobPhase, JobStatus
from master.durable.checkpoint_folder import CheckpointFolder, StartingPoint, call_with_timeout
from master.durable.refounding import (
    clear_transaction,
    fallback_note,
    is_empty,
    last_change,
    open_refounding,
    refounding_transaction,
    requested_start_transaction,
    set_aside_done_transaction,
)
from master.durable.transactions import durable_keys, head_id, parse_durable, read_record
from master.errors import FencedError, HeadDamagedError, PermanentError, StoreUnavailableError
from master.job.domain.durable_records import SECOND, Durable, Instant, LineageRecord, ManifestOrigin, RefoundingRecord
from master.leadership.election import HeldTerm
from master.process.grpc_server import MasterServer
from master.process.master_config import Settings, new_history
from master.store.settlement import settle
from master.store.store_port import Conflict, Revision, StateStore, StoreSnapshot, Transaction, Unknown

log: Final = logging.getLogger(__name__)

REFOUND_BUDGET_S: Final = 10.0
FOLDER_BUDGET_S: Final = 600.0  # to look into it, and to set aside what stands there: in object stores, copies
VERIFY_BUDGET_S: Final = 3600.0  # to read every byte of a checkpoint or two as well
FAILURE_SHOWN_S: Final = 6.0  # the operator asks every few seconds, then ends the job
LONGEST_FALLBACK_NOTE: Final = 4000  # characters about a fallback that the store keeps
_PAUSES_S: Final = (0.5, 1.0, 2.0, 5.0)  # the last one again and again
_WAYS_ON: Final = (
    "or choose a start: spec.checkpoint.start while the job is suspended, edl run --from; `edl data verify "
    "URI` lists the intact checkpoints"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusableHead:
    """Damage of the last checkpoint; valid as long as the store has not changed since `seen`."""

    problem: str
    seen: Revision
    has_failed_to_load: bool = False  # reported by servers; this process may be able to read it


class TermStart:
    """Reads what is durable for each term; a search for a fallback outlives the term that began it."""

    def __init__(
        self, *, settings: Settings, store: StateStore, folder: CheckpointFolder, server: MasterServer
    ) -> None:
        self._settings = settings
        self._store = store
        self._folder = folder
        self._server = server
        self._unusable_head: UnusableHead | None = None  # once it is time to fall back
        self._search: tuple[UnusableHead, asyncio.Task[StartingPoint]] | None = None
        self._known_at = Revision(0)  # of the store, as it was read last

    def close(self) -> None:
        """Cancels a search that is under way."""
        if self._search is not None:
            self._search[1].cancel()

    async def handle_term_end(self, error: FencedError) -> None:
        """Notes why a term ended: the next one falls back if servers could not load head."""
        self._unusable_head = await self._unusable_head_after(error)

    async def _unusable_head_after(self, error: FencedError) -> UnusableHead | None:
        """The head that servers cannot load; None: another reason, or the store does not answer and servers try
        again.
        """
        if not isinstance(error, HeadDamagedError):
            return None
        try:
            seen = (await self._read_store()).revision
        except StoreUnavailableError:
            return None
        return UnusableHead(problem=str(error), seen=seen, has_failed_to_load=True)

    async def begin(self, held_term: HeldTerm) -> tuple[Durable, str]:
        """Durable state of the job, and the note on a fallback that led there.

        Both are read while the term is held: to give it up would only cost another campaign.  A store or folder that
        fails is retried; only a checkpoint that cannot be read fails the job in the end.  A fallback overrules
        neither a requested start nor a newer checkpoint.
        """
        give_up_s = time.monotonic() + self._settings.config.unreadable_ns / SECOND
        tries = 0
        while True:
            await held_term.confirm()
            try:
                durable = await self._read_durable(held_term)
            except StoreUnavailableError as error:
                log.warning("term %d waits for the store: %s", held_term.leadership.term, error)
                self._server.publish_status(None)
                await asyncio.sleep(error.retry_after_s)
            except StorageError as error:
                log.warning("term %d cannot begin: %s", held_term.leadership.term, error)
                if isinstance(error, UnreadableCheckpointError) and (
                    self._unusable_head or time.monotonic() > give_up_s
                ):
                    may_fall_back = self._settings.config.falls_back and not isinstance(error, NoFallbackError)
                    if self._unusable_head or not may_fall_back:
                        await self._fail(str(error))
                    self._unusable_head = UnusableHead(problem=str(error), seen=self._known_at)
                    continue
                self._server.publish_status(self._status(JobPhase.STARTING, str(error)))
                await asyncio.sleep(_PAUSES_S[min(tries, len(_PAUSES_S) - 1)])
                tries += 1
            else:
                return durable

    async def _fail(self, problem: str) -> NoReturn:
        """Publishes that the job has failed for as long as it takes to be read.  Raises PermanentError."""
        self._server.publish_status(self._status(JobPhase.FAILED, problem))
        await asyncio.sleep(FAILURE_SHOWN_S)
        raise PermanentError(problem)

    def _status(self, phase: JobPhase, problem: str) -> JobStatus:
        """The status of a job of which nothing is known yet."""
        now = Instant(time.monotonic_ns())
        nothing = job.initial(self._settings.config, Durable(), Term(0), now).state
        return replace(job.status(nothing, now), phase=phase, problem=problem)

    async def _read_durable(self, held_term: HeldTerm) -> tuple[Durable, str]:
        """Raises StoreUnavailableError, UnreadableCheckpointError, StorageError, PermanentError."""
        keys = self._store.keys
        snapshot = await self._read_store()
        snapshot = await self._set_aside(held_term, snapshot)  # what a term before this one left undone
        start, snapshot = await self._start(held_term, snapshot)
        snapshot = await self._set_aside(held_term, snapshot)
        if (head := head_id(snapshot, keys)) is None:
            if not is_empty(snapshot, keys):  # else the folder was read already
                await call_with_timeout(self._folder.check_nothing_committed, self._settings.history)
            founded = read_record(RefoundingRecord, snapshot, keys.refounding)
            above = max(
                start.above, founded.above if founded else 0, await call_with_timeout(self._folder.highest_lineage)
            )
            start = replace(start, above=Lineage(above))
        manifest = await self._read_head(head) if head else None
        lineage = read_record(LineageRecord, snapshot, keys.lineage)
        durable = parse_durable(snapshot, keys, manifest, self._origin(manifest, start, lineage))
        return durable, fallback_note(snapshot, keys)

    async def _read_store(self) -> StoreSnapshot:
        keys = self._store.keys
        snapshot = await self._store.read((*durable_keys(keys), keys.start, keys.refounding))
        self._known_at = snapshot.revision
        return snapshot

    async def _set_aside(self, held_term: HeldTerm, snapshot: StoreSnapshot) -> StoreSnapshot:
        """Set aside files as the refounding record requires; return the new snapshot.

        The store comes first, since it refuses a term that is over, which a folder cannot.
        """
        if (record := open_refounding(snapshot, self._store.keys)) is None:
            return snapshot
        await call_with_timeout(self._folder.set_aside, record, held_term.may_act, budget_s=FOLDER_BUDGET_S)
        return await self._write(
            set_aside_done_transaction(record, self._store.keys, snapshot, held_term.leadership.term)
        )

    async def _start(self, held_term: HeldTerm, snapshot: StoreSnapshot) -> tuple[StartingPoint, StoreSnapshot]:
        """The checkpoint that this term starts from where the store does not say it, and the store as it is then.

        A requested start is followed once: the store keeps it, so a term sees whether another one is requested.
        """
        keys, answer, head = self._store.keys, self._settings.answer, head_id(snapshot, self._store.keys)
        requested, seen = self._settings.requested_start, snapshot.try_value(keys.start)
        start = StartingPoint(head=None, above=Lineage(0))
        if self._unusable_head is not None and last_change(snapshot, keys) > self._unusable_head.seen:
            self._unusable_head = None  # another master has led, or the fallback is in the store already
        if self._unusable_head is not None:
            start = await self._find_fallback(head, self._unusable_head)
            snapshot = await self._refound(held_term, start, snapshot)
            self._unusable_head = None
        elif is_empty(snapshot, keys):
            start = await call_with_timeout(self._folder.begin, answer, budget_s=FOLDER_BUDGET_S)
            snapshot = await self._refound(held_term, start, snapshot)
        elif answer is not None and seen not in (None, requested.encode()):
            start = await call_with_timeout(self._folder.follow, answer, budget_s=FOLDER_BUDGET_S)
            snapshot = await self._refound(held_term, start, snapshot)
        if seen != requested.encode():
            snapshot = await self._write(
                requested_start_transaction(requested, keys, snapshot, held_term.leadership.term)
            )
        return start, snapshot

    async def _find_fallback(self, head: ManifestId | None, damage: UnusableHead) -> StartingPoint:
        """The checkpoint to fall back to.  A search that takes longer than the budget continues, and is polled again.

        Raises UnreadableCheckpointError, StorageError.
        """
        activity = f"verifies the checkpoints in {self._folder.uri} completely, to fall back to an intact one"
        self._server.publish_status(self._status(JobPhase.STARTING, f"{activity}: {damage.problem}"))
        if self._search is not None and self._search[0] != damage:
            await self._wait_for_search(self._search[1])
            self._search = None
        if self._search is None:
            mine, has_failed = self._settings.history, damage.has_failed_to_load
            search_call = asyncio.to_thread(self._folder.fall_back, head, damage.problem, mine, has_failed)
            self._search = (damage, asyncio.create_task(search_call))
        search = self._search[1]
        await self._wait_for_search(search)
        if search.exception() is not None:
            self._search = None
        return search.result()

    async def _wait_for_search(self, search: asyncio.Task[StartingPoint]) -> None:
        """Returns when the search has ended.  Raises StorageError where it has not within the budget."""
        await asyncio.wait((search,), timeout=VERIFY_BUDGET_S)
        if not search.done():
            raise StorageError(self._folder.uri, f"is still being read after {VERIFY_BUDGET_S:g} s, to fall back")

    async def _read_head(self, head: ManifestId) -> Manifest:
        try:
            return await call_with_timeout(self._folder.read_committed, head, self._settings.history)
        except (ManifestError, StorageAlteredError, StorageMissingError) as error:
            problem = error.problem if isinstance(error, StorageError) else str(error)
            advice = f"{problem}. It is the last checkpoint (head). Restore the folder {self._folder.uri}"
            raise UnreadableCheckpointError(manifest_name(head), f"{advice}, {_WAYS_ON}") from error

    def _origin(self, head: Manifest | None, start: StartingPoint, lineage: LineageRecord | None) -> ManifestOrigin:
        """The history of what this term commits: this job's own, even where head is another job's.

        So another job that resumes from the same folder is distinguished, and nothing of it is deleted.  A job without
        a history of its own continues head's.  Which master follows, and with what store, makes no difference.
        """
        fresh, mine = secrets.token_hex(4), self._settings.history
        if head is None:
            return ManifestOrigin(history=mine or new_history(), founded=Lineage(start.above + 1), fresh=fresh)
        if mine in (None, head.history) or lineage is None:
            return ManifestOrigin(history=head.history, founded=head.founded, fresh=fresh)
        return ManifestOrigin(history=mine, founded=lineage.number, fresh=fresh)

    async def _refound(self, held_term: HeldTerm, start: StartingPoint, before: StoreSnapshot) -> StoreSnapshot:
        """The store as it is after it was refounded from this start."""
        await held_term.confirm()
        keys, term, record = self._store.keys, held_term.leadership.term, self._record(start, before)
        if start.head is not None:
            log.warning("resuming from manifest %s in %s", start.head.id, self._folder.uri)
            return await self._write(refounding_transaction(start.head, start.above, keys, before, term, record=record))
        return before if record is None else await self._write(clear_transaction(record, keys, before, term))

    def _record(self, start: StartingPoint, before: StoreSnapshot) -> RefoundingRecord | None:
        """Files to set aside, all of them below the next lineage; None: nothing."""
        if start.request is None:
            return None
        lineage = read_record(LineageRecord, before, self._store.keys.lineage)
        founded = read_record(RefoundingRecord, before, self._store.keys.refounding)
        above = max(start.above, lineage.number if lineage else 0, founded.above if founded else 0)
        base, history = start.head.id if start.head else None, start.request.history
        return RefoundingRecord(
            base=base, history=history, above=Lineage(above), fallback_note=start.fallback_note[:LONGEST_FALLBACK_NOTE]
        )

    async def _write(self, transaction: Transaction) -> StoreSnapshot:
        """The store as it stands afterwards."""
        outcome = await settle(self._store, transaction, budget_s=REFOUND_BUDGET_S)
        if isinstance(outcome, Unknown | Conflict):
            raise StoreUnavailableError("the store refused this term's first transaction")
        return await self._read_store()
