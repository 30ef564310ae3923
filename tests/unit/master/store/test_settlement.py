"""Finding out what became of a transaction whose answer was lost (rule 23)."""

import pytest

from master.errors import FencedError, InvariantViolationError, StoreUnavailableError, ValueTooLargeError
from master.store.memory_store import MemoryCluster, MemoryStore
from master.store.settlement import settle
from master.store.store_port import (
    MAX_TRANSACTION_BYTES,
    MAX_VALUE_BYTES,
    Absent,
    Committed,
    Conflict,
    Put,
    Transaction,
    Unknown,
    ValueIs,
)


class LossyStore(MemoryStore):
    """Answers of commits are lost as told: the transaction happens now, later, or never."""

    def __init__(self, cluster, keys, losses):
        super().__init__(cluster, keys)
        self.losses = list(losses)
        self.late = []
        self.is_away = False

    async def commit(self, transaction):
        late, self.late = self.late, []
        for one in late:
            await super().commit(one)
        match self.losses.pop(0) if self.losses else "answered":
            case "answered":
                return await super().commit(transaction)
            case "done":
                await super().commit(transaction)
            case "late":
                self.late.append(transaction)
        return Unknown(reason="lost")

    async def read(self, keys):
        if self.is_away:
            raise StoreUnavailableError("away")
        return await super().read(keys)


async def lossy(*losses):
    cluster = MemoryCluster(clock_s=lambda: 0.0)
    plain = cluster.store("digits")
    leadership = await plain.try_lead(holder="a", ttl_s=5)
    store = LossyStore(cluster, plain.keys, losses)
    return store, leadership


def first_head(store, term):
    return Transaction(term=term, require=(Absent(store.keys.head),), writes=(Put(store.keys.head, b"m1"),))


@pytest.mark.parametrize(
    "losses", [("done",), ("never",), ("late",), ("never", "done"), ("late", "late"), ("never", "late", "done")]
)
async def test_lost_answer_is_settled_as_committed(losses):
    """Done, not done, or done behind our back: in the end it is done once and known to be."""
    store, leadership = await lossy(*losses)
    outcome = await settle(store, first_head(store, leadership.term), budget_s=5.0)
    assert isinstance(outcome, Committed)
    entry = (await store.read([store.keys.head])).entries[store.keys.head]
    assert (entry.value, entry.mod_revision) == (b"m1", outcome.revision)


async def test_lost_answer_to_a_conflict_is_settled_as_conflict():
    """The comparison fails when it is asked again."""
    store, leadership = await lossy("answered", "never")
    await settle(store, first_head(store, leadership.term), budget_s=5.0)
    again = Transaction(
        term=leadership.term, require=(ValueIs(store.keys.head, b"m0"),), writes=(Put(store.keys.head, b"m2"),)
    )
    assert isinstance(await settle(store, again, budget_s=5.0), Conflict)


async def test_writer_that_was_replaced_meanwhile_is_fenced():
    """The successor's reading decides what happened, not ours (M5)."""
    store, leadership = await lossy("done")
    successor = store._cluster.store("digits")

    class Replaced(LossyStore):
        async def read_leader(self):
            await successor.resign(leadership)
            return await successor.try_lead(holder="b", ttl_s=5)

    replaced = Replaced(store._cluster, store.keys, ["done"])
    with pytest.raises(FencedError):
        await settle(replaced, first_head(store, leadership.term), budget_s=5.0)


async def test_store_that_stays_away_leaves_it_unknown():
    """Nothing is guessed."""
    store, leadership = await lossy("done")
    store.is_away = True
    assert isinstance(await settle(store, first_head(store, leadership.term), budget_s=0.0), Unknown)


async def test_transaction_left_unknown_is_settled_later():
    """The conflict with one's own earlier attempt is no conflict."""
    store, leadership = await lossy("done")
    transaction = first_head(store, leadership.term)
    store.is_away = True
    assert isinstance(await settle(store, transaction, budget_s=0.0), Unknown)
    store.is_away = False
    assert isinstance(await settle(store, transaction, budget_s=0.0), Committed)


def test_value_too_large_is_refused_with_key_and_size():
    """Before any store sees it (M6)."""
    keys = MemoryCluster().store("digits").keys
    with pytest.raises(ValueTooLargeError, match="/edl/v1/jobs/digits/route: 524,289 bytes"):
        Transaction(term=1, writes=(Put(keys.route, bytes(MAX_VALUE_BYTES + 1)),))
    parts = tuple(Put(keys.named(f"part-{n}"), bytes(MAX_VALUE_BYTES)) for n in range(3))
    with pytest.raises(ValueTooLargeError, match=f"part-2: .* more than the {MAX_TRANSACTION_BYTES:,}"):
        Transaction(term=1, writes=parts)


def test_key_written_twice_is_a_bug():
    """Which one would stay?"""
    keys = MemoryCluster().store("digits").keys
    with pytest.raises(InvariantViolationError):
        Transaction(term=1, writes=(Put(keys.head, b"1"), Put(keys.head, b"2")))
