"""Settlement of a transaction whose answer was lost (rule 23).

A read that shows no effect proves little: the transaction may still be under way in a member that was paused.  But to
send the same transaction again is safe, because its comparisons exclude that both attempts write.  So: read; done if
the writes are there; lost if a comparison fails; else send it again, until the budget is spent.

Safe for transactions that change something they compare: a value that never comes back (head, lineage), or a
revision.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, assert_never

from master.errors import StoreUnavailableError
from master.store.store_port import (
    CommitOutcome,
    Committed,
    Conflict,
    Delete,
    Put,
    Revision,
    StateStore,
    StoreSnapshot,
    Transaction,
    UnchangedSince,
    Unknown,
    fenced,
    is_met,
)

PAUSE_S: Final = 0.1


async def settle(store: StateStore, transaction: Transaction, *, budget_s: float) -> CommitOutcome:
    """Commits, and finds out what an Unknown meant.  Unknown only when the store does not answer for `budget_s`.

    The same transaction may be settled again later: it is Committed also when its writes are there already.  Raises
    FencedError when the term does not lead any more; then the successor's reading decides what happened.
    """
    deadline_s = time.monotonic() + budget_s
    while True:
        outcome = await store.commit(transaction)
        if isinstance(outcome, Conflict):  # perhaps with our own earlier attempt
            return outcome_of(transaction, outcome.current) or outcome
        if isinstance(outcome, Committed):
            return outcome
        settled = await _read_outcome(store, transaction)
        if isinstance(settled, Committed | Conflict):
            return settled
        if time.monotonic() >= deadline_s:
            return outcome
        await asyncio.sleep(PAUSE_S)


async def _read_outcome(store: StateStore, transaction: Transaction) -> CommitOutcome | None:
    """The outcome that the keys show; None: the transaction has not happened and may be sent again."""
    try:
        leader = await store.read_leader()
        if leader is None or leader.term != transaction.term:
            raise fenced(transaction.term, leader.term if leader else None)
        current = await store.read(transaction.keys)
    except StoreUnavailableError as error:
        return Unknown(reason=str(error))
    return outcome_of(transaction, current)


def outcome_of(transaction: Transaction, current: StoreSnapshot) -> Committed | Conflict | None:
    """The outcome that the keys show for a transaction that may have happened; None: it has not."""
    if _is_written(transaction, current):
        written = (current.entries[write.key].mod_revision for write in transaction.writes if isinstance(write, Put))
        return Committed(revision=max(written, default=current.revision))
    if all(is_met(comparison, current.entries) for comparison in transaction.require):
        return None
    return Conflict(current=current)


def _is_written(transaction: Transaction, current: StoreSnapshot) -> bool:
    """True if every write shows.  A transaction is one revision, so all of its puts must bear the same.

    A value that was there before at the revision that is compared shows nothing.
    """
    revisions: set[Revision] = set()
    before = {part.key: part.mod_revision for part in transaction.require if isinstance(part, UnchangedSince)}
    for write in transaction.writes:
        entry = current.entries.get(write.key)
        match write:
            case Put(_, value):
                if entry is None or entry.value != value or entry.mod_revision == before.get(write.key):
                    return False
                revisions.add(entry.mod_revision)
            case Delete():
                if entry is not None:
                    return False
            case _:
                assert_never(write)
    return len(revisions) <= 1 and bool(transaction.writes)
