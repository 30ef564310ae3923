"""A trainer's arrays by server: taken apart and put together they are the same, and what does not fit is refused."""

import numpy as np
import pytest

from master.api.identities import Incarnation, Lineage, MemberName, Route, ServerPlace, TableSpec, Version
from master.api.positions import PositionSet
from trainer_sdk.errors import TableError, UsageError
from trainer_sdk.pserver.client.shares import (
    check_route,
    dense_gradient,
    new_arrays,
    row_ids,
    rows_by_server,
    rows_in,
    shares,
    sparse_gradient,
)
from trainer_sdk.pserver.core.messages import PushTarget
from trainer_sdk.pserver.tables.layout import Layout, buckets_of_rows

BUCKETS = 6
DENSE = TableSpec(name="w", shape=(5, 7), dtype="float32")
SPARSE = TableSpec(name="e", shape=(50, 3), kind="sparse")
LAYOUT = Layout.of((DENSE, SPARSE), BUCKETS)
FLOAT = np.dtype(np.float32)


def route(*owner, version=(0, 0, 0, 0, 1, 2)):
    places = tuple(
        ServerPlace(name=MemberName(f"s{n}"), incarnation=Incarnation(f"i{n}"), address=f"s{n}:1", ordinal=n)
        for n in range(max(owner) + 1)
    )
    return Route(revision=1, lineage=Lineage(1), servers=places, owner=owner, version=tuple(map(Version, version)))


ROUTE = route(0, 1, 0, 1, 0, 1)


@pytest.mark.parametrize("owner", [(0,) * 6, (0, 1, 0, 1, 0, 1), (2, 2, 0, 0, 1, 1), (0, 0, 0, 2, 2, 2)])
def test_shares_are_the_whole_table_once(owner):
    """Whoever owns what: the pieces of all servers are the bytes of the table, each in one."""
    flat = np.arange(35, dtype=np.float32)
    taken = []
    for server, share in enumerate(shares(route(*owner), LAYOUT)):
        assert list(share.buckets) == [bucket for bucket in range(BUCKETS) if owner[bucket] == server]
        dense, sparse = share.slices
        assert sparse is None, "its rows go by their ids"
        pieces = [np.frombuffer(piece, np.float32) for piece in dense.pieces(flat)]
        assert dense.section.length == sum(map(len, pieces))
        assert (dense.section.length * 4 + sum(map(len, dense.gap))) % 8 == 0
        taken += [number for piece in pieces for number in piece.tolist()]
    assert sorted(taken) == flat.tolist()


def test_a_share_names_its_buckets_by_version():
    """A push says for each bucket which version of it is meant (rule 45)."""
    first, second = shares(ROUTE, LAYOUT)
    assert first.targets == (
        PushTarget(buckets=PositionSet.of(0, 2), version=Version(0)),
        PushTarget(buckets=PositionSet.of(4), version=Version(1)),
    )
    part = second.only(PositionSet.of(0, 1, 5), LAYOUT)
    assert part.buckets == PositionSet.of(1, 5)
    assert part.targets == (
        PushTarget(buckets=PositionSet.of(1), version=Version(0)),
        PushTarget(buckets=PositionSet.of(5), version=Version(2)),
    )
    assert second.only(PositionSet.of(1), LAYOUT).targets == part.targets[:1]
    flat = np.arange(35, dtype=np.float32)
    inside = [piece.tobytes() for piece in part.slices[0].pieces(flat)]
    runs = LAYOUT.dense[0].runs(PositionSet.of(1, 5))
    assert inside == [flat[start:stop].tobytes() for start, stop in runs]


@pytest.mark.parametrize("route", [ROUTE, route(0, 0, 0, 0, 0, 0), route(2, 2, 2, 0, 0, 0)])
def test_rows_go_to_the_owner_of_their_bucket(route):
    """Each id to one server; repeated ones together."""
    ids = np.array([7, 3, 49, 0, 7, 12])
    found = rows_by_server(LAYOUT, route, ids)
    assert len(found) == len(route.servers)
    homes = buckets_of_rows(ids, BUCKETS)
    for server, places in enumerate(found):
        assert [route.owner[homes[place]] for place in places] == [server] * len(places)
    assert sorted(np.concatenate(found).tolist()) == list(range(len(ids)))
    buckets = PositionSet.of(1, 2, 5)
    assert rows_in(LAYOUT, ids, buckets).tolist() == [bucket in buckets for bucket in homes.tolist()]


def test_gradients_that_fit_are_taken_as_they_are():
    """Without a copy where nothing has to be converted; else as the table's own numbers."""
    given = np.ones((5, 7), dtype=np.float32)
    assert np.shares_memory(dense_gradient(DENSE, FLOAT, given), given)
    for other in (given.astype(np.float64), np.asfortranarray(given), given.tolist()):
        flat = dense_gradient(DENSE, FLOAT, other)
        assert (flat.dtype, flat.shape, flat.tolist()) == (FLOAT, (35,), [1.0] * 35)
        assert flat.flags.c_contiguous
    transposed = np.arange(35, dtype=np.float32).reshape(7, 5).T
    assert dense_gradient(DENSE, FLOAT, transposed).tolist() == transposed.ravel().tolist()
    ids, rows = sparse_gradient(SPARSE, FLOAT, ([4, 4, 9], np.ones((3, 3))))
    assert (ids.dtype, ids.tolist(), rows.dtype, rows.tolist()) == (np.int64, [4, 4, 9], FLOAT, [[1.0] * 3] * 3)
    assert row_ids(SPARSE, []).tolist() == []


@pytest.mark.parametrize(
    ("take", "given", "hint"),
    [
        (dense_gradient, ([1], [[1.0]]), "Push one array"),
        (dense_gradient, np.ones((7, 5)), "Push one gradient an element"),
        (dense_gradient, np.ones((5, 7), dtype=complex), "Convert it first"),
        (sparse_gradient, np.ones((5, 7)), r"Push \(ids, rows\)"),
        (sparse_gradient, ([1], [[1.0]], []), r"Push \(ids, rows\)"),
        (sparse_gradient, ([1, 2], np.ones((1, 3))), r"Push one row of \(3,\) for each id"),
        (sparse_gradient, ([1], np.ones((1, 3), dtype=complex)), "Convert it first"),
        (sparse_gradient, ([1.5], np.ones((1, 3))), "Give a flat array of integers"),
        (sparse_gradient, ([[1]], np.ones((1, 3))), "Give a flat array of integers"),
        (sparse_gradient, ([50], np.ones((1, 3))), "50"),
        (sparse_gradient, ([-1], np.ones((1, 3))), "-1"),
    ],
)
def test_gradients_that_do_not_fit_are_refused(take, given, hint):
    """In the trainer, by the table's name, before anything is sent."""
    spec = DENSE if take is dense_gradient else SPARSE
    with pytest.raises(TableError, match=hint) as refused:
        take(spec, FLOAT, given)
    assert spec.name in str(refused.value)


@pytest.mark.parametrize("wrong", [route(0, 1, 0, version=(0, 0, 0)), route(0, 1, 0, 1, 0, 1, version=(0,) * 5)])
def test_a_route_that_leaves_a_bucket_out_is_refused(wrong):
    """Its owner would be guessed."""
    check_route(ROUTE, BUCKETS)
    with pytest.raises(UsageError, match="of 6 buckets"):
        check_route(wrong, BUCKETS)


def test_a_trainer_has_arrays_for_dense_tables_alone():
    """A sparse table may have more rows than a trainer has memory."""
    (name, array), *more = new_arrays((DENSE, SPARSE)).items()
    assert (name, array.shape, array.dtype, more) == ("w", (5, 7), FLOAT, [])
