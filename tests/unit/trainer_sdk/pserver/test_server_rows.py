"""Rows of a sparse table: memory that is not made anew while pushes wait, and places that are found again."""

import numpy as np
import pytest

from master.api.identities import Initialiser, OptimiserSpec, TableSpec
from master.api.positions import PositionSet
from trainer_sdk.pserver.tables.layout import buckets_of_rows
from trainer_sdk.pserver.tables.row_store import RowStore
from trainer_sdk.pserver.tables.sparse_store import SparseStore

COUNT = 4000
BUCKETS = 4
SPEC = TableSpec(
    name="e",
    shape=(COUNT, 2),
    kind="sparse",
    initialiser=Initialiser(kind="normal", scale=1.0),
    optimiser=OptimiserSpec(),
)


def values(ids):
    return {"values": np.stack((ids, -ids), axis=1)}


def add(rows, start, stop):
    ids = np.arange(start, stop)
    rows.add(ids, values(ids))


@pytest.fixture
def rows():
    rows = RowStore(SPEC)
    add(rows, 0, 1)
    return rows


def test_a_table_grows_to_its_last_row_where_it_stands(rows):
    """Half as much again would be more than there are rows, and all of them copied for it."""
    room = rows.arrays[0]
    for start in range(1, COUNT, 93):
        add(rows, start, min(start + 93, COUNT))
    assert rows.arrays[0] is room
    assert rows.count == COUNT
    assert (rows.read(rows.places(np.arange(COUNT)))["values"] == values(np.arange(COUNT))["values"]).all()


def test_memory_is_made_ready_for_no_more_rows_than_the_table_has(rows):
    """What is staged may be counted twice: once more, say, with what it takes the place of."""
    room = rows.arrays[0]
    rows.populator(3 * COUNT)()
    assert rows.arrays[0] is room


def test_places_beyond_the_table_come_half_as_many_again(rows):
    """While a fork is open no place is used again: rows that come and go are not to cost a copy of all each time."""
    add(rows, 1, COUNT)
    rooms = set()
    for _ in range(40):
        ids = np.arange(100)
        rows.remove(rows.places(ids))
        rows.add(ids, values(ids))
        rooms.add(id(rows.arrays[0]))
    assert rows.count == 2 * COUNT
    assert len(rooms) <= 3
    assert (rows.read(rows.places(np.arange(COUNT)))["values"] == values(np.arange(COUNT))["values"]).all()


def test_a_bucket_is_read_by_ids_though_its_places_were_taken_in_another_order():
    """A copy that was under way wrote down where the rows stood before they went and came back."""
    part = SparseStore(SPEC, BUCKETS)
    ids = np.arange(COUNT)
    mine = ids[buckets_of_rows(ids, BUCKETS) == 1]
    part.install(mine, values(mine))
    assert (part.content(1)["ids"] == mine).all()
    found = part._found[1]
    part.remove([1])
    part.install(mine[::-1], values(mine[::-1]))
    part._found[1] = found
    content = part.content(1)
    assert (content["ids"] == mine).all()
    assert (content["values"] == values(mine)["values"]).all()


def test_places_are_used_again_once_a_fork_is_dropped():
    """What comes and goes costs no more memory than what is here; while a fork is open it has to."""
    part = SparseStore(SPEC, BUCKETS)
    ids = np.arange(COUNT)
    mine = ids[buckets_of_rows(ids, BUCKETS) == 1]
    part.install(mine, values(mine))
    part.open_fork(PositionSet.of(1))
    part.drop_fork()
    for _ in range(3):
        part.remove([1])
        part.install(mine, values(mine))
    assert part._live.count == len(mine)


def test_a_bucket_is_watched_while_others_are_not_any_more():
    """What was written since is known until its own watch ends."""
    part = SparseStore(SPEC, BUCKETS)
    ids = np.arange(COUNT)
    homes = buckets_of_rows(ids, BUCKETS)
    part.install(ids, values(ids))
    first = [ids[homes == bucket][0] for bucket in range(BUCKETS)]
    for bucket in (1, 2, 3):
        part.watch(bucket)
    part.apply(np.array(first), np.ones((BUCKETS, 2), dtype=np.float32), to_fork=False)
    part.remove([2])
    assert [part.written(bucket)["ids"].tolist() for bucket in (1, 3)] == [[first[1]], [first[3]]]
    part.watch(1)
    assert part.written(1) == {}
    assert part.written(3)["ids"].tolist() == [first[3]]
    part.remove([1, 3])
    part.watch(0)
    part.apply(np.array(first[:1]), np.ones((1, 2), dtype=np.float32), to_fork=False)
    assert part.written(0)["ids"].tolist() == [first[0]]


def test_a_bucket_that_is_watched_no_more_is_weighed_and_told_in_whole():
    part = SparseStore(SPEC, BUCKETS)
    ids = np.arange(COUNT)
    mine = ids[buckets_of_rows(ids, BUCKETS) == 1]
    part.install(mine, values(mine))
    whole = part.size_bytes(1)
    part.watch(1)
    part.apply(mine[:1], np.ones((1, 2), dtype=np.float32), to_fork=False)
    assert part.size_bytes(1) < whole
    assert part.written(1)["ids"].tolist() == [mine[0]]
    part.end_watches()
    assert part.size_bytes(1) == whole
    assert (part.written(1)["ids"] == mine).all()
