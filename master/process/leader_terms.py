"""One term of this master after another: win the leadership, read what is durable, serve, start over.

    won -> read the store and the manifest that head names -> serve until the term ends -> who leads now?
        another master: this process ends with STEPPED_DOWN, so that the cluster starts a fresh standby
        none: campaign again (the lease ran out while this process was paused, or the store came back empty)

Not here: what a term begins with (`term_start`), the term itself (`master.term`).
"""

from __future__ import annotations

import logging
from typing import Final

from master import group, job
from master.durable.checkpoint_folder import CheckpointFolder
from master.errors import FencedError, StoreUnavailableError
from master.leadership.election import Election, HeldTerm
from master.leadership.election_events import LossReason
from master.process.grpc_server import MasterServer
from master.process.master_config import Settings
from master.process.term_start import TermStart
from master.store.store_port import StateStore
from master.term.counters import Counters
from master.term.term_runtime import TermRuntime

log: Final = logging.getLogger(__name__)


class SteppedDownError(FencedError):
    """Another master leads this job."""


class LeaderTerms:
    """The terms of this process."""

    def __init__(
        self, *, settings: Settings, store: StateStore, folder: CheckpointFolder, server: MasterServer, counts: Counters
    ) -> None:
        self._settings = settings
        self._store = store
        self._folder = folder
        self._server = server
        self._counts = counts
        self._start = TermStart(settings=settings, store=store, folder=folder, server=server)

    async def run(self, *, holder: str) -> None:
        """Serves whenever this master leads.  Raises SteppedDownError when another one has taken over."""
        timing, is_alone = self._settings.timing, not self._settings.has_standbys
        await self._release_predecessor_lease(holder)
        try:
            async with Election(self._store, holder=holder, timing=timing, is_alone=is_alone) as election:
                while True:
                    held_term = await election.won()
                    try:
                        await self._serve(held_term)
                    except FencedError as error:
                        await self._start.handle_term_end(error)
                        log.warning("term %d is over: %s", held_term.leadership.term, error)
                    election.step_down(held_term, LossReason.GIVEN_UP)
                    await self._check_leader(holder)
        finally:
            self._start.close()

    async def _release_predecessor_lease(self, holder: str) -> None:
        """Gives back the lease of the process before, which led from this very place (`leader_identity`).

        That process is dead: the local cluster or a kubelet starts one master at a place when the last one's
        processes are gone.  If it were alive, its term would be fenced.  So the next leader need not wait for its
        lease (ADR 0202).
        """
        try:
            leader = await self._store.read_leader()
            if leader is not None and leader.holder == holder:
                log.info("term %d ended with its process: its lease is given back", leader.term)
                await self._store.resign(leader)
        except StoreUnavailableError as error:
            log.info("the lease of a process before, if there was one, is left to expire: %s", error)

    async def _serve(self, held_term: HeldTerm) -> None:
        term_number = held_term.leadership.term
        try:
            durable, unhandled = await self._start.begin(held_term)
        finally:
            self._server.publish_status(None)
        term = TermRuntime(
            config=self._settings.config,
            durable=durable,
            term=term_number,
            store=self._store,
            folder=self._folder,
            held_term=held_term,
            counts=self._counts,
            history=self._settings.history,
            fell_back=unhandled,
            checks_invariants=self._settings.checks_invariants,
            core=group if self._settings.is_group else job,
        )
        log.info("term %d serves job %s", term_number, self._settings.job)
        self._counts.terms += 1
        self._server.serve_term(term)
        try:
            await term.run()
        finally:
            self._server.serve_term(None)

    async def _check_leader(self, holder: str) -> None:
        try:
            leader = await self._store.read_leader()
        except StoreUnavailableError:
            return  # campaigning waits for the store
        if leader is not None and leader.holder != holder:
            raise SteppedDownError(f"{leader.holder} leads with term {leader.term}")


def describe(settings: Settings) -> str:
    """The settings that matter, for the first log line."""
    store = "etcd " + ",".join(settings.etcd.endpoints) if settings.etcd else "memory store"
    return f"job {settings.job}, {store}, checkpoints in {settings.checkpoint_uri}"
