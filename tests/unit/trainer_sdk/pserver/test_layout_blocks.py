"""Where tables lie on the buckets: every number in exactly one bucket, contiguous shares, agreement on the digest."""

from itertools import pairwise

import numpy as np
import pytest

from master.api.identities import Initialiser, OptimiserSpec, TableSpec
from master.api.positions import PositionSet
from trainer_sdk.errors import TableError
from trainer_sdk.pserver.tables.layout import DenseLayout, Layout, buckets_of_rows


@pytest.mark.parametrize("shape", [(), (1,), (63,), (64,), (65,), (10, 1000), (257, 64), (100_003,)])
@pytest.mark.parametrize("bucket_count", [1, 7, 256])
def test_every_element_lies_in_exactly_one_bucket(shape, bucket_count):
    """Blocks cover the table once, at most one of them in a bucket."""
    layout = DenseLayout.of(TableSpec(name="w", shape=shape), bucket_count)
    seen = np.zeros(layout.size, dtype=int)
    for bucket in range(bucket_count):
        runs = layout.runs(PositionSet.of(bucket))
        assert len(runs) <= 1
        for start, stop in runs:
            seen[start:stop] += 1
            assert layout.bucket_of(start // layout.block_size) == bucket
    assert (seen == 1).all()
    assert layout.runs(PositionSet.span(0, bucket_count)) == ((0, layout.size),)


@pytest.mark.parametrize("servers", [2, 3, 5])
def test_contiguous_buckets_are_a_fair_contiguous_share_of_every_table(servers):
    """A server's part of a table is at most two slices (one where it wraps around), of about its share."""
    for name in ("w1", "b1", "w2", "embedding"):
        layout = DenseLayout.of(TableSpec(name=name, shape=(64, 1024)), 256)
        edges = [index * 256 // servers for index in range(servers + 1)]
        parts = [layout.runs(PositionSet.span(a, b)) for a, b in pairwise(edges)]
        assert all(len(runs) <= 2 for runs in parts)
        sizes = [sum(stop - start for start, stop in runs) for runs in parts]
        assert sum(sizes) == layout.size
        assert max(sizes) - min(sizes) <= 2 * layout.block_size


def test_rows_spread_evenly_for_ids_in_a_row_and_for_strided_ids():
    """The hash of ids that real tables have is even enough: no bucket has twice its share."""
    for ids in (np.arange(100_000), np.arange(0, 100_000 * 1024, 1024), np.arange(0, 100_000 * 7919, 7919)):
        counts = np.bincount(buckets_of_rows(ids.astype(np.int64), 256), minlength=256)
        assert counts.sum() == len(ids)
        assert counts.max() < 2 * len(ids) / 256


def test_digest_differs_for_other_tables_and_other_bucket_counts():
    """Two members that disagree find out before a gradient lands in the wrong place."""
    tables = (TableSpec(name="w", shape=(8,)),)
    assert Layout.of(tables, 8).digest == Layout.of(tables, 8).digest
    assert Layout.of(tables, 8).digest != Layout.of(tables, 9).digest
    assert Layout.of(tables, 8).digest != Layout.of((TableSpec(name="w", shape=(9,)),), 8).digest


@pytest.mark.parametrize(
    ("tables", "field"),
    [
        ((TableSpec(name="w", shape=(0, 3)),), "tables.w.shape"),
        ((TableSpec(name="w", shape=(), kind="sparse"),), "tables.w.shape"),
        ((TableSpec(name="w", shape=(2**31, 1), kind="sparse"),), "tables.w.shape"),
        ((TableSpec(name="w", shape=(1,)), TableSpec(name="w", shape=(2,))), "tables.w"),
        ((TableSpec(name="c", shape=(1,), dtype="int64"),), "tables.c.optimiser"),
        (
            (
                TableSpec(
                    name="c",
                    shape=(1,),
                    dtype="int64",
                    optimiser=OptimiserSpec(learning_rate=-1.0),
                    initialiser=Initialiser(kind="normal", scale=1.0),
                ),
            ),
            "tables.c.initialiser",
        ),
    ],
)
def test_table_that_cannot_work_is_refused_by_its_field(tables, field):
    """The message names the field."""
    with pytest.raises(TableError) as raised:
        Layout.of(tables, 8)
    assert raised.value.field == field
