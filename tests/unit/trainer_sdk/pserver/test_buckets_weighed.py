"""What servers say of their buckets: bytes that are there, and bytes a second that trainers move."""

import numpy as np
import pytest

from master.api.identities import Lineage, OptimiserSpec, TableSpec
from master.api.positions import PositionSet
from master.job.moves.rebalancing import HOT
from trainer_sdk.pserver.tables.bucket_load import BucketLoadMeter
from trainer_sdk.pserver.tables.layout import Layout, buckets_of_rows
from trainer_sdk.pserver.tables.model import Model, SparseGradient

BUCKETS = 4
ALL = PositionSet.span(0, BUCKETS)
FIRST = Lineage(1)
ADAM = OptimiserSpec(kind="adam", learning_rate=0.1)
LAYOUT = Layout.of(
    (
        TableSpec(name="w", shape=(400,), optimiser=ADAM),
        TableSpec(name="e", shape=(1000, 2), kind="sparse"),
    ),
    BUCKETS,
)
FLOOR = 32 * 17 * 16 / 10  # 32 rows, each seen once in 17 messages of ten seconds, of two numbers and an id


@pytest.fixture
def model():
    return Model(LAYOUT, ALL)


def test_sizes_are_parameters_slots_and_trained_rows_and_follow_a_move(model):
    """100 numbers of 4 bytes, three times for Adam; each trained row of two numbers and its id."""
    ids = np.arange(0, 40)
    model.apply(ALL, [SparseGradient(table=1, ids=ids, rows=np.ones((40, 2), np.float32))], ALL)
    rows = np.bincount(buckets_of_rows(ids, BUCKETS), minlength=BUCKETS)
    report = BucketLoadMeter(model, 0.0).first_report(FIRST, ALL)
    assert report.sizes_bytes == tuple(1200 + 16 * rows)
    assert set(report.loads) == {FLOOR}

    model.remove(PositionSet.of(2))
    assert model.stores[1].row_counts.tolist() == [0 if bucket == 2 else rows[bucket] for bucket in range(BUCKETS)]


def test_loads_are_bytes_a_second_of_each_bucket_since_the_report_before(model):
    """Dense tables by message, rows by a sample; then it begins anew."""
    weighing = BucketLoadMeter(model, 10.0)
    weighing.first_report(FIRST, ALL)
    for _ in range(6):
        weighing.count_dense(0, PositionSet.of(0, 1))
    hot = np.array([id_ for id_ in range(1000) if buckets_of_rows(np.array([id_]), BUCKETS)[0] == 3][:50])
    for _ in range(34):
        weighing.count_rows(1, hot)
    said = weighing.take_sample(FIRST, ALL, 20.0).report()
    assert said.loads == (FLOOR + 6 * 400 / 10, FLOOR + 6 * 400 / 10, FLOOR, FLOOR + 34 * 50 * 16 / 10)
    assert set(weighing.take_sample(FIRST, ALL, 30.0).report().loads) == {FLOOR}


def test_a_bucket_that_came_or_went_meanwhile_is_not_weighed(model):
    """Its load was measured for a part of the time, by somebody else for the rest."""
    weighing = BucketLoadMeter(model, 0.0)
    weighing.first_report(FIRST, PositionSet.of(0, 1))
    assert weighing.take_sample(FIRST, PositionSet.of(1, 2), 10.0).report().buckets == PositionSet.of(1)
    assert weighing.take_sample(FIRST, PositionSet.of(1, 2), 20.0).report().buckets == PositionSet.of(1, 2)


def test_what_was_taken_stays_as_it_was_while_others_push(model):
    """It is summed without the lock that a push needs."""
    weighing = BucketLoadMeter(model, 0.0)
    weighing.first_report(FIRST, ALL)
    weighing.count_dense(0, ALL)
    tally = weighing.take_sample(FIRST, ALL, 10.0)
    weighing.count_dense(0, ALL)
    ids = np.arange(0, 40)
    for _ in range(17):
        weighing.count_rows(1, ids)
    model.apply(ALL, [SparseGradient(table=1, ids=ids, rows=np.ones((40, 2), np.float32))], ALL)
    said = tally.report()
    assert said.loads == (FLOOR + 40.0,) * BUCKETS
    assert said.sizes_bytes == (1200,) * BUCKETS


def test_messages_of_many_tables_are_kept_by_the_buckets_that_they_cover():
    """A resize leaves dozens of routes behind: what is summed grows with them, not with routes times tables."""
    layout = Layout.of(tuple(TableSpec(name=f"w{number}", shape=(400,)) for number in range(20)), BUCKETS)
    weighing = BucketLoadMeter(Model(layout, ALL), 0.0)
    weighing.first_report(FIRST, ALL)
    for buckets in (ALL, PositionSet.of(0, 2)):
        for table in range(20):
            weighing.count_dense(table, buckets)
    tally = weighing.take_sample(FIRST, ALL, 1.0)
    assert len(tally.messages) == 2
    assert tally.report().loads == (16000.0, 8000.0, 16000.0, 8000.0)


# ---- what chance does, and what it does not -------------------------------------------------------------------------

MANY = 256
EVERY = PositionSet.span(0, MANY)
ROWS = 6000
WIDE = Layout.of(
    (
        TableSpec(name="wide", shape=(ROWS, 64), kind="sparse"),
        TableSpec(name="narrow", shape=(ROWS,), kind="sparse"),
    ),
    MANY,
)


def loads_of(weighing, messages, batch_size, *, hot=()):
    """After ten seconds in which rows of both tables were looked up by chance, and the wide one's `hot` ones always."""
    chance = np.random.default_rng(1)
    weighing.first_report(FIRST, EVERY)
    for _ in range(messages):
        weighing.count_rows(0, np.union1d(chance.choice(ROWS, batch_size, replace=False), np.array(hot, np.int64)))
        weighing.count_rows(1, chance.choice(ROWS, batch_size, replace=False))
    return np.array(weighing.take_sample(FIRST, EVERY, 10.0).report().loads)


@pytest.mark.parametrize(
    ("messages", "batch_size"), [(0, 20), (16, 20), (17, 20), (100, 20), (1000, 20), (4000, 20), (500, 400)]
)
def test_chance_makes_no_bucket_hot(messages, batch_size):
    """However few rows were seen, or none: no bucket has a load that the master would heed."""
    loads = loads_of(BucketLoadMeter(Model(WIDE, EVERY), 0.0), messages, batch_size)
    assert loads.max() <= HOT * loads.mean()


def test_a_bucket_of_hot_rows_is_hot_and_no_other():
    hot = np.array([id_ for id_ in range(ROWS) if buckets_of_rows(np.array([id_]), MANY)[0] == 7][:4])
    loads = loads_of(BucketLoadMeter(Model(WIDE, EVERY), 0.0), 1000, 20, hot=hot)
    assert np.flatnonzero(loads > HOT * loads.mean()).tolist() == [7]


@pytest.mark.parametrize("tables", [2, 16, 17])
def test_of_tables_that_take_turns_each_is_looked_at(tables):
    """Each message has rows of all, in their order: what one sees of them must not be always the same ones."""
    layout = Layout.of(tuple(TableSpec(name=f"e{n}", shape=(ROWS,), kind="sparse") for n in range(tables)), MANY)
    weighing = BucketLoadMeter(Model(layout, EVERY), 0.0)
    weighing.first_report(FIRST, EVERY)
    rows = [np.array([7]), np.array([8])]
    for _ in range(17):
        for table in range(tables):
            weighing.count_rows(table, rows[table % 2])
    loads = np.array(weighing.take_sample(FIRST, EVERY, 10.0).report().loads)
    seen = (loads - loads.min())[buckets_of_rows(np.concatenate(rows), MANY)]
    assert seen == pytest.approx([17 * 12 * ((tables + 1) // 2) / 10, 17 * 12 * (tables // 2) / 10])
