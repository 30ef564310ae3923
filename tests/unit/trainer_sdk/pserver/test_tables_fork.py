"""Forks of tables: the copy is as of the cut, whatever happens to the live model, and costs only what is touched."""

import numpy as np
import pytest

from master.api.identities import Initialiser, OptimiserSpec, TableSpec
from master.api.positions import PositionSet
from trainer_sdk.errors import TableError
from trainer_sdk.pserver.tables.layout import Layout, buckets_of_rows
from trainer_sdk.pserver.tables.model import DenseGradient, ForkedModel, Model, SparseGradient

BUCKETS = 16
ALL = PositionSet.span(0, BUCKETS)
ADAM = OptimiserSpec(kind="adam", learning_rate=0.1)
TABLES = (
    TableSpec(name="w", shape=(40, 50), initialiser=Initialiser(kind="normal", scale=1.0), optimiser=ADAM),
    TableSpec(
        name="e", shape=(500, 2), kind="sparse", initialiser=Initialiser(kind="normal", scale=1.0), optimiser=ADAM
    ),
)
LAYOUT = Layout.of(TABLES, BUCKETS)


def gradients(seed, buckets=ALL):
    random = np.random.default_rng(seed)
    size = LAYOUT.dense[0].count(buckets)
    ids = random.choice(500, 60, replace=False).astype(np.int64)
    ids = ids[[b in buckets for b in buckets_of_rows(ids, BUCKETS)]]
    return [
        DenseGradient(table=0, values=random.normal(size=size).astype(np.float32)),
        SparseGradient(table=1, ids=ids, rows=random.normal(size=(len(ids), 2)).astype(np.float32)),
    ]


def live(model, seed, buckets=ALL):
    model.apply(buckets, gradients(seed, buckets), buckets)


def both(model, seed, buckets=ALL):
    model.apply(buckets, gradients(seed, buckets), buckets, to_fork=True)


def contents(model):
    """All that a checkpoint of the fork would hold."""
    forked = ForkedModel(model)
    forked.arrange()
    return {
        (bucket, table, name): array.tolist()
        for bucket in range(BUCKETS)
        for table, arrays in forked.read(bucket)
        for name, array in arrays.items()
    }


def reference(*steps):
    """The same steps on a model of their own, forked at the end."""
    model = Model(LAYOUT, ALL)
    for step in steps:
        live(model, *step)
    model.open_fork(ALL)
    found = contents(model)
    trained = {id_ for step in steps for id_ in gradients(*step)[1].ids.tolist()}
    told = [id_ for (_, table, name), array in found.items() if (table, name) == ("e", "ids") for id_ in array]
    assert sorted(told) == sorted(trained), "else two empty forks would be alike"
    return found


@pytest.fixture
def model():
    model = Model(LAYOUT, ALL)
    live(model, 1)
    live(model, 2)
    model.open_fork(ALL)
    return model


def test_fork_keeps_values_slots_and_counts_while_the_live_model_goes_on(model):
    """Live pushes after the cut change nothing of it, in old rows, new rows or dense blocks."""
    live(model, 3)
    live(model, 4, PositionSet.span(2, 9))
    assert contents(model) == reference((1,), (2,))


def test_fork_takes_its_own_pushes_with_its_own_slots(model):
    """A push inside the cut steps fork and live bucket each from where it stands (rule 21)."""
    live(model, 3)
    both(model, 4)
    live(model, 5)
    both(model, 6, PositionSet.span(2, 9))
    assert contents(model) == reference((1,), (2,), (4,), (6, PositionSet.span(2, 9)))
    model.drop_fork()
    model.open_fork(ALL)
    assert contents(model) == reference((1,), (2,), (3,), (4,), (5,), (6, PositionSet.span(2, 9)))


def test_row_first_trained_after_the_cut_begins_anew_in_the_fork(model):
    """The live row has a step that the fork must not see; the fork's begins from the initialiser."""
    fresh = Model(LAYOUT, ALL)
    fresh.open_fork(ALL)
    live(fresh, 3)
    both(fresh, 3)
    assert contents(fresh) == reference((3,))


def test_reader_of_a_sealed_fork_is_not_disturbed_by_live_pushes(model):
    """The file is written bucket by bucket while training goes on."""
    both(model, 4)
    forked = ForkedModel(model)
    forked.arrange()
    read = {}
    for bucket in range(BUCKETS):
        live(model, 100 + bucket)
        for table, arrays in forked.read(bucket):
            read |= {(bucket, table, name): array.tolist() for name, array in arrays.items()}
    assert read == reference((1,), (2,), (4,))


def test_buckets_that_leave_while_a_fork_is_written_are_in_its_file(model):
    """The reader was made before, looks for rows after, and others take the places of those that left (rule 59)."""
    both(model, 4)
    forked = ForkedModel(model)
    gone = PositionSet.span(0, BUCKETS // 2)
    moved = {bucket: dict(model.content(bucket)) for bucket in gone}
    model.remove(gone)
    forked.arrange()
    for bucket in reversed(list(gone)):
        model.install(bucket, moved[bucket])
    live(model, 5)
    read = {
        (bucket, table, name): array.tolist()
        for bucket in range(BUCKETS)
        for table, arrays in forked.read(bucket)
        for name, array in arrays.items()
    }
    assert read == reference((1,), (2,), (4,))
    model.drop_fork()
    model.open_fork(ALL)
    assert contents(model) == reference((1,), (2,), (4,), (5,))


def test_second_cut_forks_the_model_as_it_is_then(model):
    """Nothing of a dropped fork is left."""
    live(model, 3)
    model.drop_fork()
    live(model, 4)
    model.open_fork(ALL)
    live(model, 5)
    assert contents(model) == reference((1,), (2,), (3,), (4,))


def test_installed_buckets_make_the_same_model():
    """What a fork's reader gives is all that a restored server needs, slots and counts included."""
    model = Model(LAYOUT, ALL)
    live(model, 1)
    live(model, 2, PositionSet.span(2, 9))
    model.open_fork(ALL)
    forked = ForkedModel(model)
    forked.arrange()
    halves = [Model(LAYOUT, PositionSet.span(0, 5)), Model(LAYOUT, PositionSet.span(5, BUCKETS))]
    whole = Model(LAYOUT, ALL)
    for bucket in range(BUCKETS):
        for target in (whole, halves[bucket >= 5]):
            target.install(bucket, dict(forked.read(bucket)))
    for restored in (whole, *halves):
        live(restored, 3, restored.buckets)
    live(model, 3)
    model.drop_fork()
    for each in (model, whole):
        each.open_fork(ALL)
    assert contents(whole) == contents(model)
    ids = np.arange(500)
    homes = buckets_of_rows(ids, BUCKETS)
    for half in halves:
        mine = ids[[home in half.buckets for home in homes]]
        some = ids[homes == homes[mine[0]]]
        assert half.stores[1].read(some).shape == (len(some), 2)


@pytest.mark.parametrize(
    "wrong",
    [
        DenseGradient(table=0, values=np.zeros(3, dtype=np.float32)),
        DenseGradient(table=1, values=np.zeros(3, dtype=np.float32)),
        DenseGradient(table=7, values=np.zeros(3, dtype=np.float32)),
        SparseGradient(table=1, ids=np.array([500]), rows=np.zeros((1, 2), dtype=np.float32)),
        SparseGradient(table=1, ids=np.array([-1]), rows=np.zeros((1, 2), dtype=np.float32)),
    ],
)
def test_gradient_that_does_not_fit_is_refused_before_anything_changes(model, wrong):
    """`check` comes before `apply`: a push is applied whole or not at all."""
    with pytest.raises(TableError):
        model.check([wrong], ALL)


def test_rows_of_buckets_that_are_not_pushed_are_refused(model):
    """A row routed to the wrong server must not be trained there."""
    few = PositionSet.span(0, 3)
    ids = np.arange(500)[buckets_of_rows(np.arange(500), BUCKETS) > 3][:1]
    with pytest.raises(TableError, match="not pushed"):
        model.check([SparseGradient(table=1, ids=ids, rows=np.zeros((1, 2), dtype=np.float32))], few)
