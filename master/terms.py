"""One term of this master after another: win the leadership, read what is durable, serve, and see what comes next.

    won -> read the store and the manifest that head names -> serve until the reign ends -> who leads now?
        another one: this process ends with STEPPED_DOWN, so that the cluster starts a fresh standby
        nobody: campaign again (the lease ran out while we were paused, or the store came back empty)

A store that has lost everything is founded again from the checkpoint folder (M8, rule 29): the job goes on from there.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from master.api.errors import ContractError
from master.config import Settings
from master.election import Election, Reign
from master.errors import FencedError, PermanentError, StoreUnavailableError
from master.folder import CheckpointFolder, in_time
from master.job.domain import Durable
from master.leadership import LossReason
from master.metrics import Counts
from master.records import durable_keys, head_id, is_empty, parse_durable, refounding
from master.runtime import TermRuntime
from master.server import MasterServer
from master.store.port import Conflict, Snapshot, Store, Unknown
from master.store.settlement import settle

log: Final = logging.getLogger(__name__)

REFOUND_BUDGET_S: Final = 10.0


class SteppedDownError(FencedError):
    """Another master leads this job."""


class Terms:
    """This process's life as a master."""

    def __init__(
        self, *, settings: Settings, store: Store, folder: CheckpointFolder, server: MasterServer, counts: Counts
    ) -> None:
        self._settings = settings
        self._store = store
        self._folder = folder
        self._server = server
        self._counts = counts

    async def run(self, *, holder: str) -> None:
        """Serves whenever it leads.  Raises SteppedDownError when another one has taken over; until then, for ever."""
        timing, is_alone = self._settings.timing, not self._settings.has_standbys
        async with Election(self._store, holder=holder, timing=timing, is_alone=is_alone) as election:
            while True:
                reign = await election.won()
                try:
                    await self._serve(reign)
                except FencedError as error:
                    log.warning("term %d is over: %s", reign.leadership.term, error)
                election.step_down(reign, LossReason.GIVEN_UP)
                await self._check_leader(holder)

    async def _serve(self, reign: Reign) -> None:
        term_number = reign.leadership.term
        durable = await self._begin(reign)
        term = TermRuntime(
            config=self._settings.config,
            durable=durable,
            term=term_number,
            store=self._store,
            folder=self._folder,
            reign=reign,
            counts=self._counts,
            checks_invariants=self._settings.checks_invariants,
        )
        log.info("term %d serves job %s", term_number, self._settings.job)
        self._counts.terms += 1
        self._server.lead(term)
        try:
            await term.run()
        finally:
            self._server.lead(None)

    async def _check_leader(self, holder: str) -> None:
        try:
            leader = await self._store.read_leader()
        except StoreUnavailableError:
            return  # campaigning waits for the store
        if leader is not None and leader.holder != holder:
            raise SteppedDownError(f"{leader.holder} leads with term {leader.term}")

    # ---- what is durable ------------------------------------------------------------------------------------------

    async def _begin(self, reign: Reign) -> Durable:
        """What is durable, asked for while the reign lasts: to give it up would only cost another campaign."""
        while True:
            await reign.confirm()
            try:
                return await self._read_durable(reign)
            except StoreUnavailableError as error:
                log.warning("term %d waits for the store: %s", reign.leadership.term, error)
                await asyncio.sleep(error.retry_after_s)

    async def _read_durable(self, reign: Reign) -> Durable:
        keys = self._store.keys
        snapshot = await self._store.read(durable_keys(keys))
        if is_empty(snapshot):
            snapshot = await self._refound(reign, snapshot)
        head = head_id(snapshot, keys)
        try:
            manifest = await in_time(self._folder.read, head) if head else None
        except ContractError as error:
            raise PermanentError(
                f"head is manifest {head}, but {error}. Bring the folder {self._folder.uri} back or restore another"
            ) from error
        return parse_durable(snapshot, keys, manifest)

    async def _refound(self, reign: Reign, empty: Snapshot) -> Snapshot:
        """The store as it stands afterwards: still empty for a new job."""
        manifests = await in_time(self._folder.all)
        head = await in_time(self._folder.newest, manifests)
        if head is None:
            return empty
        log.warning("the store knows nothing of this job: going on from manifest %s in %s", head.id, self._folder.uri)
        transaction = refounding(head, manifests, self._store.keys, reign.leadership.term)
        outcome = await settle(self._store, transaction, budget_s=REFOUND_BUDGET_S)
        if isinstance(outcome, Unknown | Conflict):
            raise StoreUnavailableError("the store did not take what the checkpoint folder says")
        return await self._store.read(durable_keys(self._store.keys))


def describe(settings: Settings) -> str:
    """The settings that matter, for the first log line."""
    store = "etcd " + ",".join(settings.etcd.endpoints) if settings.etcd else "memory store"
    return f"job {settings.job}, {store}, checkpoints in {settings.checkpoint_uri}"
