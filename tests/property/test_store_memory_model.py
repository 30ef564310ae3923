"""The store in memory against a plain dict with one term."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from master.errors import FencedError
from master.store.memory_store import MemoryCluster
from master.store.store_port import (
    Absent,
    Changed,
    Committed,
    Conflict,
    Delete,
    Put,
    Transaction,
    UnchangedSince,
    ValueIs,
)

NAMES = ("head", "lineage", "route")
names = st.sampled_from(NAMES)
values = st.sampled_from([b"", b"1", b"2"])
writes = st.dictionaries(names, st.none() | values, max_size=3)
comparisons = st.lists(
    st.tuples(st.just("is"), names, values)
    | st.tuples(st.just("absent"), names, st.none())
    | st.tuples(st.just("since"), names, st.integers(1, 20)),
    max_size=2,
)
steps = st.lists(
    st.tuples(st.just("commit"), writes, comparisons, st.booleans())
    | st.tuples(st.sampled_from(["campaign", "pass"]), st.integers(0, 1), st.sampled_from([1.0, 5.0])),
    max_size=40,
)


class Model:
    """What the keys must be: name -> (value, revision)."""

    def __init__(self):
        self.entries = {}
        self.term = None
        self.expires_s = 0.0

    def holds(self, kind, name, wanted):
        value, revision = self.entries.get(name, (None, None))
        return {"is": value == wanted, "absent": value is None, "since": revision == wanted}[kind]


def build(store, term, model_writes, model_comparisons):
    kinds = {"is": ValueIs, "since": UnchangedSince, "absent": lambda key, _: Absent(key)}
    return Transaction(
        term=term,
        writes=tuple(
            Delete(store.keys.named(name)) if value is None else Put(store.keys.named(name), value)
            for name, value in model_writes.items()
        ),
        require=tuple(kinds[kind](store.keys.named(name), wanted) for kind, name, wanted in model_comparisons),
    )


async def run(steps):
    model, now_s = Model(), 0.0
    cluster = MemoryCluster(clock_s=lambda: now_s)
    store = cluster.store("digits")
    for step in steps:
        if model.term is not None and now_s >= model.expires_s:
            model.term = None
        match step:
            case ("campaign", _, ttl_s):
                won = await store.try_lead(holder="a", ttl_s=ttl_s)
                assert (won is None) == (model.term is not None)
                if won:
                    model.term, model.expires_s = won.term, now_s + ttl_s
            case ("pass", _, passed_s):
                now_s += passed_s
            case ("commit", changes, required, is_current):
                term = model.term if model.term is not None and is_current else 999
                await commit(store, model, build(store, term, changes, required), changes, required)
        snapshot = await store.read(store.keys.named(name) for name in NAMES)
        assert {key: (entry.value, entry.mod_revision) for key, entry in snapshot.entries.items()} == {
            store.keys.named(name): entry for name, entry in model.entries.items()
        }
    await check_history(store, model)


async def commit(store, model, transaction, changes, required):
    try:
        outcome = await store.commit(transaction)
    except FencedError:
        assert transaction.term != model.term
        return
    assert transaction.term == model.term
    if not all(model.holds(*comparison) for comparison in required):
        assert isinstance(outcome, Conflict)
        return
    assert isinstance(outcome, Committed)
    for name, value in changes.items():
        if value is None:
            model.entries.pop(name, None)
        else:
            model.entries[name] = (value, outcome.revision)


async def check_history(store, model):
    """The changes, replayed from the beginning, give the values of now."""
    replayed, revision = {}, 1
    events = store.watch(store.keys.prefix, after=1)
    for _ in range(len(store._cluster._history)):
        event = await anext(events)
        assert isinstance(event, Changed)
        assert event.revision >= revision
        revision = event.revision
        replayed[event.key] = event.entry
    assert revision == (await store.read([])).revision
    await events.aclose()
    for name in NAMES:
        entry = replayed.get(store.keys.named(name))
        assert (entry and (entry.value, entry.mod_revision)) == model.entries.get(name)


@settings(deadline=None)
@given(steps)
def test_memory_store_is_a_dict_with_one_term(steps):
    """Values, revisions, refusals and history agree with the model after every step (M2, M6)."""
    asyncio.run(run(steps))
