"""The order of an epoch: a permutation, keyed, the same for ever."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from master.api.identities import DatasetSpec
from master.api.positions import PositionSet
from trainer_sdk.errors import UsageError
from trainer_sdk.record_order import MAX_SIZE, MOST_AT_ONCE, Permutation, RecordOrder

SEEDS = st.integers(-(2**63), 2**64)
EPOCHS = st.integers(0, 10**6)


@given(size=st.integers(1, 3000), seed=SEEDS, epoch=EPOCHS)
@settings(max_examples=150, deadline=None)
def test_every_record_stands_at_exactly_one_index(size, seed, epoch):
    """Each sample once per epoch (M1) begins here: the order is a bijection of [0, size)."""
    records = Permutation(size, seed=seed, epoch=epoch).records(0, size)

    assert records.dtype == np.int64
    assert np.array_equal(np.sort(records), np.arange(size))


@given(size=st.integers(2, MAX_SIZE), seed=SEEDS, epoch=EPOCHS, data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_window_of_a_large_order_holds_different_records_inside_it(size, seed, epoch, data):
    """No table of the whole order is needed: any window is computed alone, up to 2**62 records."""
    start = data.draw(st.integers(0, size - 1))
    stop = min(size, start + 64)
    permutation = Permutation(size, seed=seed, epoch=epoch)

    records = permutation.records(start, stop)

    assert len(set(records.tolist())) == stop - start
    assert 0 <= records.min() <= records.max() < size
    middle = (start + stop) // 2
    pieces = [permutation.records(start, middle), permutation.records(middle, stop)]
    assert np.array_equal(np.concatenate(pieces), records)


@pytest.mark.parametrize(
    ("size", "seed", "epoch", "start", "expected"),
    [
        (1437, 7, 0, 0, [967, 1097, 453, 310]),
        (1437, 7, 1, 0, [213, 1029, 1096, 1371]),
        (10**9, 7, 3, 5, [383346222, 720107441, 863567424, 938517619]),
        (2**62, -1, 3, 5, [2328069345541089273, 1706864358113628211, 4551379210030942540, 2164364532737044456]),
        (5, 0, 0, 0, [3, 2, 1, 0]),
    ],
)
def test_the_order_is_the_one_of_version_one(size, seed, epoch, start, expected):
    """A checkpoint's positions mean records by this order: a change of it would make old checkpoints lie."""
    assert Permutation(size, seed=seed, epoch=epoch).records(start, start + 4).tolist() == expected


@pytest.mark.parametrize("change", [{"seed": 8}, {"epoch": 1}])
def test_another_seed_or_epoch_gives_another_order(change):
    """Epochs are shuffled anew, seeds are independent."""
    key = {"seed": 7, "epoch": 0}
    one = Permutation(1437, **key).records(0, 1437)
    other = Permutation(1437, **(key | change)).records(0, 1437)

    assert np.count_nonzero(one == other) < 15  # about one fixed point is expected of two random orders


def test_over_many_epochs_each_record_comes_first_about_equally_often():
    """Shuffled well enough to train on: chi-squared with 15 degrees of freedom stays below its 99.9 % point."""
    first = [int(Permutation(16, seed=1, epoch=e).records(0, 1)[0]) for e in range(4000)]
    counts = np.bincount(first, minlength=16)

    assert ((counts - 250) ** 2 / 250).sum() < 37.7


@pytest.mark.parametrize(("size", "epoch"), [(0, 0), (-1, 0), (2**62 + 1, 0), (4, -1)])
def test_impossible_sizes_and_epochs_are_refused(size, epoch):
    """Wrong arguments raise at once."""
    with pytest.raises(ValueError, match=r"size|epoch"):
        Permutation(size, seed=0, epoch=epoch)


def test_indices_outside_the_epoch_are_refused():
    """A window that runs over the end is a bug of the caller."""
    with pytest.raises(ValueError, match="outside"):
        Permutation(10, seed=0, epoch=0).records(5, 11)


def test_a_batch_that_is_written_to_changes_no_other():
    """The order keeps a window of many batches; each batch gets its own copy, whether of one range or of several."""
    order = RecordOrder(DatasetSpec(name="d", size=100, epochs=1, batch_size=10, seed=3))
    expected = Permutation(100, seed=3, epoch=0).records(0, 100)
    one, several = PositionSet.span(0, 10), PositionSet.span(0, 5) | PositionSet.span(20, 25)

    for positions in (one, several):
        records = order.records(positions)
        assert records.flags.writeable
        records[:] = -1

    assert np.array_equal(order.records(PositionSet.span(0, 100)), expected)


def test_more_records_at_once_than_memory_holds_are_refused():
    """NumPy said that an array is too big, and not which number was."""
    order = RecordOrder(DatasetSpec(name="d", size=2**62, epochs=1, batch_size=2**61, seed=1))
    with pytest.raises(UsageError, match="batch_size: 2,305,843,009,213,693,952 records at once are too many"):
        order.records(PositionSet.span(0, 2**61))
    with pytest.raises(UsageError, match="smaller global_batch or a micro_batch"):
        order.records(PositionSet.span(5, MOST_AT_ONCE + 6))
    assert len(order.records(PositionSet.span(0, 4))) == 4
