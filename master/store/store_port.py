"""The port of the state store: one leader at a time, and writes that only the leader can make.

The problem: a master that was paused past its lease does not know that another one has taken over.  Holding a lease
proves nothing, so every transaction compares the leader key's create revision with the writer's term (M2, M5, M6).
And a write whose answer is lost may have happened, or may still happen: that is an outcome of its own, `Unknown`,
never an error, and never retried in here (rule 23; `settlement` does it safely).

Not here: when to campaign and step down (`master.leadership`), what the values mean (`master.durable`).  Read next:
`memory_store`, the same contract in 200 lines; `etcd`.  Both pass tests/integration/store/test_contract.py.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NewType, Protocol, TypeAlias, assert_never

from master.api.identities import Term
from master.errors import FencedError, InvariantViolationError, ValueTooLargeError
from master.store.job_keys import JobKeys, Key

Revision = NewType("Revision", int)
"""Of the whole store; + 1 with each transaction that writes."""

MAX_VALUE_BYTES: Final = 512 * 1024  # etcd refuses requests above 1.5 MiB
MAX_TRANSACTION_BYTES: Final = 1024 * 1024
MAX_TRANSACTION_KEYS: Final = 100  # etcd refuses more than 128 operations


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    value: bytes
    mod_revision: Revision


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSnapshot:
    """Some keys as they were together at one revision; absent keys are not in `entries`."""

    revision: Revision
    entries: Mapping[Key, Entry]

    def try_value(self, key: Key) -> bytes | None:
        entry = self.entries.get(key)
        return entry.value if entry else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """The leader key and its holder.  `holder` is what the leader wrote there: where its master can be reached."""

    term: Term
    lease: int
    holder: str


# ---- a transaction --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ValueIs:
    key: Key
    value: bytes


@dataclass(frozen=True, slots=True)
class Absent:
    key: Key


@dataclass(frozen=True, slots=True)
class UnchangedSince:
    """The key exists and was last written at `mod_revision` (of an Entry)."""

    key: Key
    mod_revision: Revision


@dataclass(frozen=True, slots=True)
class Put:
    key: Key
    value: bytes


@dataclass(frozen=True, slots=True)
class Delete:
    """The key is absent afterwards; to delete an absent key is no conflict."""

    key: Key


Comparison: TypeAlias = ValueIs | Absent | UnchangedSince
StoreWrite: TypeAlias = Put | Delete


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """If `term` leads and all of `require` hold, all of `writes` happen at one revision; else none does.

    Raises ValueTooLargeError when made larger than M6 allows, so no store ever sees such a one.
    """

    term: Term
    writes: tuple[StoreWrite, ...]
    require: tuple[Comparison, ...] = ()

    def __post_init__(self) -> None:
        total_bytes = 0
        for write in self.writes:
            size_bytes = len(write.value) if isinstance(write, Put) else 0
            if size_bytes > MAX_VALUE_BYTES:
                raise ValueTooLargeError(write.key, size_bytes=size_bytes, limit_bytes=MAX_VALUE_BYTES)
            total_bytes += size_bytes
        if total_bytes > MAX_TRANSACTION_BYTES:
            keys = ", ".join(write.key for write in self.writes)
            raise ValueTooLargeError(
                f"transaction on {keys}", size_bytes=total_bytes, limit_bytes=MAX_TRANSACTION_BYTES
            )
        written = {write.key for write in self.writes}
        if len(written) < len(self.writes) or len(self.keys) > MAX_TRANSACTION_KEYS:
            raise InvariantViolationError(
                f"a transaction writes a key once and names at most {MAX_TRANSACTION_KEYS} keys"
            )

    @property
    def keys(self) -> frozenset[Key]:
        return frozenset(part.key for part in (*self.writes, *self.require))


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The transaction happened, and survives any crash (M6)."""

    revision: Revision


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """The transaction did not happen and will not: a comparison failed.  `current`: its keys as they were then."""

    current: StoreSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """The transaction may have happened, or may still happen.  Read before anything else (rule 23)."""

    reason: str


CommitOutcome: TypeAlias = Committed | Conflict | Unknown


# ---- a watch --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A key was written; `entry` None: it was deleted, or its lease expired."""

    key: Key
    entry: Entry | None
    revision: Revision


@dataclass(frozen=True, slots=True, kw_only=True)
class Resync:
    """Changes up to `revision` are lost one by one (compaction, a store that was lost): read the keys."""

    revision: Revision


KeyEvent: TypeAlias = Changed | Resync


class StateStore(Protocol):
    """One job's keys.  Every call answers within the store's own deadline, and any may be cancelled.

    Calls raise StoreUnavailableError when the store could not be reached within the budget, StoreAccessError when it
    refused the user.
    """

    @property
    def keys(self) -> JobKeys: ...

    async def try_lead(self, *, holder: str, ttl_s: int) -> Leadership | None:
        """Takes the leader key if it is free.  None: another master holds it.

        Afterwards no other master gets it until `ttl_s` have passed without a `renew`, or `resign`.  At most one term
        leads at any revision; terms grow (M5).  A campaign whose answer was lost is read back before it is reported;
        where that fails too, its lease runs out by itself.
        """
        ...

    async def read_leader(self) -> Leadership | None:
        """The current leader; None: there is none."""
        ...

    async def renew(self, leadership: Leadership) -> None:
        """The lease runs for its whole time again, counted from a moment after this call began.

        One attempt, no retries: the caller knows how much time is left.  Raises LeaseLostError when the lease is
        gone.
        """
        ...

    async def resign(self, leadership: Leadership) -> None:
        """Gives the leader key back at once; a lease that is gone already is no error."""
        ...

    async def read(self, keys: Iterable[Key]) -> StoreSnapshot:
        """The keys at one revision, not older than any write that was acknowledged before the call (linearizable)."""
        ...

    async def commit(self, transaction: Transaction) -> CommitOutcome:
        """Tries the transaction once.  Raises FencedError, and nothing is written, when `term` does not lead."""
        ...

    def watch(self, prefix: Key, *, after: Revision) -> AsyncGenerator[KeyEvent, None]:
        """Changes of keys that begin with `prefix`, after that revision, in order, none lost, none twice.

        It survives lost connections and restarts for as long as it is iterated.  A `Resync` marks a gap; what
        comes next is later than its revision.  Close the generator before the store is closed.
        """
        ...

    async def close(self) -> None:
        """Closes connections; leases stay until they expire."""
        ...


def is_met(comparison: Comparison, entries: Mapping[Key, Entry]) -> bool:
    """True if the comparison holds for these entries."""
    entry = entries.get(comparison.key)
    match comparison:
        case ValueIs(_, value):
            return entry is not None and entry.value == value
        case Absent():
            return entry is None
        case UnchangedSince(_, mod_revision):
            return entry is not None and entry.mod_revision == mod_revision
        case _:
            assert_never(comparison)


def check_writes(keys: JobKeys, transaction: Transaction) -> None:
    """Raises InvariantViolationError for keys of other jobs and for the leader key.

    A put on the leader key would detach it from its lease.
    """
    for write in transaction.writes:
        if write.key == keys.leader or not write.key.startswith(keys.prefix):
            raise InvariantViolationError(f"{write.key} is not to be written by a master of {keys.job}")


def fenced(term: Term, current: Term | None) -> FencedError:
    """The error for a writer that does not lead, naming the leader."""
    now = f"term {current} leads" if current is not None else "no master leads"
    return FencedError(f"term {term} does not lead any more, {now}: drop everything held under it and campaign again")
