"""The writer of durable records: carries out the core's writes one after another and reports each outcome.

The problem: the store may be away for a minute, and the answer to a write may be lost.  Training continues meanwhile,
so nothing waits here but the writes themselves.  Each is tried until its outcome is certain (rule 23: read before
anything else), and its one answer is an event.

Not here: what is written (`durable.transactions`), what follows (`job`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, assert_never

from master.api.identities import Term
from master.durable.transactions import number_key, transaction_of
from master.errors import FencedError, InvariantViolationError, StoreUnavailableError
from master.job.domain.durable_records import DurableWrite
from master.job.domain.effects import Persist
from master.job.domain.job_events import Persisted, PersistRefused
from master.store.settlement import settle
from master.store.store_port import Committed, Conflict, StateStore, Transaction, Unknown

log: Final = logging.getLogger(__name__)

SETTLE_BUDGET_S: Final = 5.0
MAX_WAITING_WRITES: Final = 256  # the core asks for a next one of a kind only after the answer to the last


class StoreWriter:
    """One term's writer to the store.  `answer` is called once a write, in order."""

    def __init__(self, store: StateStore, term: Term, answer: Callable[[Persisted | PersistRefused], None]) -> None:
        self._store = store
        self._term = term
        self._answer = answer
        self._waiting: asyncio.Queue[DurableWrite] = asyncio.Queue(MAX_WAITING_WRITES)
        self.problem = ""  # why the present write is not settled yet, when that takes long

    def add(self, effect: Persist) -> None:
        """The write comes after those that were added before."""
        try:
            self._waiting.put_nowait(effect.write)
        except asyncio.QueueFull:
            raise InvariantViolationError(f"more than {MAX_WAITING_WRITES} writes wait for the store") from None

    def __len__(self) -> int:
        return self._waiting.qsize()

    async def run(self) -> None:
        """Writes until cancelled."""
        while True:
            write = await self._waiting.get()
            settled = await self._settle(write)
            self.problem = ""
            log.debug("%s", settled)
            self._answer(settled)

    async def _settle(self, write: DurableWrite) -> Persisted | PersistRefused:
        transaction: Transaction | None = None  # made once: all attempts at a write compare the same
        while True:
            try:
                transaction = transaction or await self._transaction(write)
                outcome = await settle(self._store, transaction, budget_s=SETTLE_BUDGET_S)
            except FencedError as error:
                return PersistRefused(write=write, reason=str(error))
            except StoreUnavailableError as error:
                self._log_wait(write, str(error))
                await asyncio.sleep(error.retry_after_s)
                continue
            match outcome:
                case Committed():
                    return Persisted(write=write)
                case Conflict():
                    return PersistRefused(write=write, reason="the store has other values than this term built on")
                case Unknown():
                    self._log_wait(write, outcome.reason)
                case _:
                    assert_never(outcome)

    async def _transaction(self, write: DurableWrite) -> Transaction:
        """The transaction of the write; the writes before it are settled, so it replaces what the store has now."""
        key = number_key(write, self._store.keys)
        number = (await self._store.read([key])).entries.get(key) if key else None
        return transaction_of(write, self._store.keys, self._term, number=number)

    def _log_wait(self, write: DurableWrite, reason: str) -> None:
        log.warning("%s waits for the store: %s", type(write).__name__, reason)
        self.problem = reason
