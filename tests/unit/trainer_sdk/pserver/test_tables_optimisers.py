"""Optimisers against the formulas of their papers, written down plainly, on dense and sparse tables alike."""

import numpy as np
import pytest

from master.api.identities import Initialiser, OptimiserSpec, TableSpec
from master.api.positions import PositionSet
from trainer_sdk.pserver.tables.initialisers import initial_elements, initial_rows
from trainer_sdk.pserver.tables.layout import Layout
from trainer_sdk.pserver.tables.model import DenseGradient, Model, SparseGradient

KINDS = ("sgd", "momentum", "adagrad", "adam")
BUCKETS = 16
ALL = PositionSet.span(0, BUCKETS)


def spec_of(kind):
    return OptimiserSpec(kind=kind, learning_rate=0.1, momentum=0.8, beta1=0.7, beta2=0.95, epsilon=1e-6)


def reference(kind, values, gradients):
    """One parameter after these gradients, in Python floats."""
    o = spec_of(kind)
    w, a, b = float(values), 0.0, 0.0
    for t, g in enumerate(gradients, 1):
        if kind == "sgd":
            w -= o.learning_rate * g
        elif kind == "momentum":
            a = o.momentum * a + g
            w -= o.learning_rate * a
        elif kind == "adagrad":
            a += g * g
            w -= o.learning_rate * g / (a**0.5 + o.epsilon)
        else:
            assert kind == "adam"
            a = o.beta1 * a + (1 - o.beta1) * g
            b = o.beta2 * b + (1 - o.beta2) * g * g
            unbiased = a / (1 - o.beta1**t), b / (1 - o.beta2**t)
            w -= o.learning_rate * unbiased[0] / (unbiased[1] ** 0.5 + o.epsilon)
    return w


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [100, 100_000])
def test_dense_table_follows_the_formula(kind, size):
    """Whole tables and tables larger than one chunk, over several steps."""
    spec = TableSpec(
        name="w",
        shape=(size,),
        dtype="float64",
        initialiser=Initialiser(kind="normal", scale=1.0),
        optimiser=spec_of(kind),
    )
    model = Model(Layout.of((spec,), BUCKETS), ALL)
    start = initial_elements(spec, 0, size)
    gradients = np.random.default_rng(3).normal(size=(4, size))
    for gradient in gradients:
        model.apply(ALL, [DenseGradient(table=0, values=gradient.copy())], ALL)
    (values,) = model.stores[0].read(ALL)
    for at in (0, 1, size // 2, size - 1):
        assert values[at] == pytest.approx(reference(kind, start[at], gradients[:, at]), rel=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_buckets_stepped_unequally_often_are_corrected_each_by_its_own_count(kind):
    """A block's step count is its own: Adam's correction must not run ahead in buckets that were left out."""
    spec = TableSpec(name="w", shape=(1600,), dtype="float64", optimiser=spec_of(kind))
    layout = Layout.of((spec,), BUCKETS)
    model = Model(layout, ALL)
    few = PositionSet.span(3, 7)
    runs = layout.dense[0].runs(few)
    inside = np.zeros(1600, dtype=bool)
    for start, stop in runs:
        inside[start:stop] = True
    gradient = np.linspace(-1, 1, 1600)
    model.apply(few, [DenseGradient(table=0, values=gradient[inside].copy())], few)
    model.apply(ALL, [DenseGradient(table=0, values=gradient.copy())], ALL)
    (values,) = model.stores[0].read(ALL)
    for at in (np.flatnonzero(inside)[0], np.flatnonzero(inside)[-1], np.flatnonzero(~inside)[5]):
        times = 2 if inside[at] else 1
        assert values[at] == pytest.approx(reference(kind, 0.0, [gradient[at]] * times), rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_sparse_rows_follow_the_formula_each_with_its_own_steps(kind):
    """Rows are stepped when they occur, counts are per row, repeated ids are added up first."""
    spec = TableSpec(
        name="e",
        shape=(1000, 3),
        kind="sparse",
        dtype="float64",
        initialiser=Initialiser(kind="uniform", scale=0.5, seed=4),
        optimiser=spec_of(kind),
    )
    model = Model(Layout.of((spec,), BUCKETS), ALL)
    ids = np.array([7, 500, 7])
    rows = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [10.0, 20.0, 30.0]])
    model.apply(ALL, [SparseGradient(table=0, ids=ids, rows=rows.copy())], ALL)
    model.apply(ALL, [SparseGradient(table=0, ids=ids[:1], rows=rows[:1].copy())], ALL)
    start = initial_rows(spec, np.array([7, 500, 8]))
    found = model.stores[0].read(np.array([7, 500, 8]))
    assert found[0, 1] == pytest.approx(reference(kind, start[0, 1], [22.0, 2.0]), rel=1e-10)
    assert found[1, 2] == pytest.approx(reference(kind, start[1, 2], [6.0]), rel=1e-10)
    assert found[2].tolist() == start[2].tolist()
    assert model.stores[0].row_count == 2


def test_float32_adam_stays_close_to_the_formula():
    """The corrections are computed in double precision: at step 1 they are differences of nearly equal numbers."""
    spec = TableSpec(name="w", shape=(64,), optimiser=OptimiserSpec(kind="adam", learning_rate=0.001))
    model = Model(Layout.of((spec,), BUCKETS), ALL)
    gradient = np.full(64, 0.3, dtype=np.float32)
    model.apply(ALL, [DenseGradient(table=0, values=gradient)], ALL)
    (values,) = model.stores[0].read(ALL)
    assert values == pytest.approx(-0.001, rel=1e-5)


def test_counter_table_counts_exactly():
    """The ledger of the chaos tests: whole numbers, beyond what a float could hold."""
    spec = TableSpec(
        name="c",
        shape=(100,),
        dtype="int64",
        initialiser=Initialiser(kind="constant", scale=2.0**60),
        optimiser=OptimiserSpec(learning_rate=-1.0),
    )
    model = Model(Layout.of((spec,), BUCKETS), ALL)
    for _ in range(3):
        model.apply(ALL, [DenseGradient(table=0, values=np.ones(100, dtype=np.int64))], ALL)
    (values,) = model.stores[0].read(ALL)
    assert (values == 2**60 + 3).all()


@pytest.mark.parametrize(
    ("kind", "rows", "elements"),
    [
        (
            "normal",
            [[-0.9478420612702811, 0.1903305181566868], [-0.3078985783460711, -0.2823066699034591]],
            [-0.3983899966931565, -1.0107600878474121],
        ),
        (
            "uniform",
            [[-0.4037046819877584, -0.06772537213650459], [0.3111143139545318, -0.15001499783991107]],
            [0.20913968842032915, -0.3950031652937817],
        ),
    ],
)
def test_initial_values_stay_what_they_are(kind, rows, elements):
    """Servers of two versions of EDL make one model, and a job that goes back to its beginning has the same one."""
    initialiser = Initialiser(kind=kind, scale=0.5, seed=3)
    sparse = TableSpec(name="e", shape=(10**9, 2), kind="sparse", dtype="float64", initialiser=initialiser)
    dense = TableSpec(name="w", shape=(9,), dtype="float64", initialiser=initialiser)
    assert initial_rows(sparse, np.array([0, 999_999_999])) == pytest.approx(np.array(rows), rel=1e-12)
    assert initial_elements(dense, 3, 5) == pytest.approx(np.array(elements), rel=1e-12)


def test_initial_values_do_not_depend_on_who_makes_them():
    """Any server makes any slice alike, rows in any order; and they have the spread that was asked for."""
    dense = TableSpec(name="w", shape=(200_000,), initialiser=Initialiser(kind="normal", scale=0.1, seed=1))
    whole = initial_elements(dense, 0, 200_000)
    assert initial_elements(dense, 70_001, 140_000).tolist() == whole[70_001:140_000].tolist()
    assert whole.std() == pytest.approx(0.1, rel=0.02)
    assert abs(whole.mean()) < 0.002
    sparse = TableSpec(name="e", shape=(10**9, 4), kind="sparse", initialiser=Initialiser(kind="uniform", scale=0.5))
    rows = initial_rows(sparse, np.array([999_999_999, 5, 0]))
    assert rows[1].tolist() == initial_rows(sparse, np.array([5]))[0].tolist()
    assert np.abs(rows).max() <= 0.5
    assert len(set(rows.ravel().tolist())) == 12
