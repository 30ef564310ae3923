"""A NumPy script's own model: what it saves and restores, and its batches as steps of a group, alone and together."""

import numpy as np
import pytest

from master.api.identities import DatasetSpec
from master.api.positions import PositionSet
from tests.harness.thread_group import ThreadGroup, ThreadSteps, ThreadSums, run_threads
from trainer_sdk.dataset import Data
from trainer_sdk.errors import UsageError
from trainer_sdk.group.port import CapturedState
from trainer_sdk.own_model import OwnModel, StepBatches

DATASET = DatasetSpec(name="d", size=10, epochs=2, batch_size=4, seed=3)


class Counter:
    """How often each record is in the model; `restored` notes what the script was given."""

    def __init__(self):
        self.counts = None
        self.restored = []

    def save(self):
        return {"counts": self.counts}

    def restore(self, arrays):
        self.restored.append(arrays)
        self.counts = np.zeros(DATASET.size, np.int64) if arrays is None else arrays["counts"].copy()

    def train(self, data):
        """The loop of a script for several trainers; the sizes of its steps."""
        sizes = []
        for batch in data:
            counted = np.zeros(DATASET.size, np.int64)
            np.add.at(counted, batch.indices, 1)
            sizes.append(batch.step_size)
            if batch.all_reduce(counted):
                self.counts += counted
                batch.done(loss=0.5)
        return sizes


def data_of(group, rank, counter):
    model = OwnModel(counter.save, counter.restore)
    steps = ThreadSteps(group, DATASET, rank, model, ThreadSums.member)
    return Data(DATASET, start=lambda: StepBatches(steps, model), check_use=lambda: None), steps


def train(group):
    """The models of all ranks after their loops, and their steps."""
    counters = [Counter() for _ in range(group.most)]
    made = [data_of(group, rank, counter) for rank, counter in enumerate(counters)]
    run_threads(group.most, lambda rank: counters[rank].train(made[rank][0]))
    return counters, [steps for _, steps in made]


def test_model_is_begun_once_and_restored_in_its_place():
    """None comes where nothing was restored before, and only then (rule 35)."""
    begun, resumed = Counter(), Counter()
    model = OwnModel(begun.save, begun.restore)
    model.begin()
    model.begin()
    later = OwnModel(resumed.save, resumed.restore)
    later.restore(CapturedState(arrays={"counts": np.ones(DATASET.size)}))
    later.begin()

    assert begun.restored == [None]
    assert [list(arrays) for arrays in resumed.restored] == [["counts"]]


def test_capture_is_a_copy():
    """Training goes on while it is written."""
    counter = Counter()
    model = OwnModel(counter.save, counter.restore)
    captured = model.capture()
    counter.counts += 1

    assert captured.arrays["counts"].sum() == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "save.. gave None; return a dict"),
        ([1, 2], "return a dict"),
        ({1: np.zeros(2)}, "return a dict"),
        ({"w": np.array([object()])}, "'w' is of object"),
        ({"w": "name"}, "'w' is of <U4"),
    ],
)
def test_what_is_no_model_is_refused_in_the_script_s_own_thread(given, words):
    """A forgotten `return` is the commonest; a thread that writes files could only log it."""
    with pytest.raises(UsageError, match=words):
        OwnModel(lambda: given, lambda arrays: None).capture()


def test_script_without_a_sum_trains_each_record_once_alone():
    """A step of one trainer is complete before its batch is given; `done` says that it is in the model."""
    counter = Counter()
    data, steps = data_of(ThreadGroup(DATASET, {0: 1}), 0, counter)
    for batch in data:
        counter.counts[batch.indices] += 1
        batch.done(loss=1.0)

    assert counter.counts.tolist() == [DATASET.epochs] * DATASET.size
    assert steps.reported[-1] == {"loss": 1.0}


def test_sums_are_the_same_for_any_number_of_trainers():
    """A script with `all_reduce`, alone and with others that come and go: every record once an epoch at each."""
    for sizes in ({0: 1}, {0: 3}, {0: 1, 2: 3, 4: 2}):
        counters, _ = train(ThreadGroup(DATASET, sizes))
        for rank in range(list(sizes.values())[-1]):
            assert counters[rank].counts.tolist() == [DATASET.epochs] * DATASET.size, sizes


def test_sum_that_failed_comes_again_and_counts_once():
    """Rule 73: the arrays hold nothing, the script leaves its model as it is, and the step is given anew."""
    counters, steps = train(ThreadGroup(DATASET, {0: 2}, aborts={1: 0, 3: 9}))

    for counter in counters:
        assert counter.counts.tolist() == [DATASET.epochs] * DATASET.size
    assert [share.step for share in steps[0].given] == [0, 1, 1, 2, 3, 3, 4, 5]


def test_trainer_without_a_record_gives_nothing_to_the_sum():
    """More trainers than records: the script runs with spare ones, which count nothing."""
    counters, steps = train(ThreadGroup(DATASET, {0: 4}))

    assert any(not share.positions for one in steps for share in one.given)
    assert counters[0].counts.tolist() == [DATASET.epochs] * DATASET.size


def test_step_whose_records_are_all_quarantined_is_passed_over():
    """Nothing is asked of the script, and nothing divided by zero records."""
    counters, _ = train(ThreadGroup(DATASET, {0: 2}, quarantine=PositionSet.span(0, 4)))

    assert counters[0].counts.sum() == DATASET.size * DATASET.epochs - 4
    data, _ = data_of(ThreadGroup(DATASET, {0: 1}, quarantine=PositionSet.span(0, 4)), 0, Counter())
    assert next(data).positions.isdisjoint(PositionSet.span(0, 4))


def test_misuse_is_refused_with_what_to_write():
    """Two trainers that sum nothing, a batch that is never finished, two sums of one batch."""
    data, _ = data_of(ThreadGroup(DATASET, {0: 2}), 0, Counter())
    batch = next(data)
    with pytest.raises(UsageError, match=r"2 trainers .*batch\.all_reduce.*maxReplicas to 1"):
        batch.done()
    with pytest.raises(UsageError, match="never finished"):
        next(data)

    data, _ = data_of(ThreadGroup(DATASET, {0: 1}), 0, Counter())
    first = next(data)
    with pytest.raises(UsageError, match="never finished"):
        next(data)
    first.done()
    with pytest.raises(UsageError, match="not the batch in hand"):
        first.all_reduce()


def test_second_sum_of_a_batch_is_refused():
    """The first one has ended the step for all trainers."""

    def both(rank):
        batch = next(made[rank][0])
        assert batch.all_reduce(np.ones(1))
        with pytest.raises(UsageError, match="second time"):
            batch.all_reduce(np.ones(1))

    group = ThreadGroup(DATASET, {0: 2})
    made = [data_of(group, rank, Counter()) for rank in range(2)]
    run_threads(2, both)


def test_metrics_of_a_dropped_step_are_not_shown():
    """`done` after a failed sum is allowed, and means nothing."""
    seen = []

    def one(rank):
        data, steps = made[rank]
        batch = next(data)
        seen.append(batch.all_reduce(np.ones(1)))
        batch.done(loss=9.0)
        assert steps.reported == []

    group = ThreadGroup(DATASET, {0: 2}, aborts={0: 0})
    made = [data_of(group, rank, Counter()) for rank in range(2)]
    run_threads(2, one)
    assert seen == [False, False]


def test_digests_are_equal_for_equal_arrays_and_name_what_differs():
    """By which trainers see that they hold the same model."""
    first, second = ({"counts": np.arange(6), "weights": np.ones((2, 3), np.float32)} for _ in range(2))
    same, other = (OwnModel(lambda arrays=arrays: arrays, lambda _: None) for arrays in (first, second))
    assert same.digests() == other.digests()
    second["weights"][1, 2] = 2.0
    assert {name for name, digest in same.digests().items() if digest != other.digests()[name]} == {"weights"}
