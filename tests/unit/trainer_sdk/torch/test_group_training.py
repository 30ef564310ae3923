"""A torch script in a group trains the model that it trains alone, whoever comes, goes or fails meanwhile (M10).

Members are threads with a model each (`tests/harness/thread_group.py`); other weights at each rank before the start.
"""

import pytest

from master.api.identities import DatasetSpec
from master.api.positions import PositionSet
from tests.harness.thread_group import ThreadGroup

torch = pytest.importorskip("torch", reason="LEFT OUT: torch is not installed (make frameworks)")

from tests.harness.torch_training import (  # noqa: E402
    Numbers,
    Records,
    Same,
    WithoutNorm,
    assert_close,
    assert_same_bits,
    plain,
    train_group,
    whole_loop,
)

pytestmark = pytest.mark.timeout(60)
DATASET = DatasetSpec(name="records", size=24, epochs=2, batch_size=8, seed=3)
STEPS = 6


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("micro_batch", [None, 3, 1])
def test_group_of_any_size_trains_what_one_process_trains(size, micro_batch):
    """Uneven shares, accumulation, clipping, schedule, moving average: as the plain script, all replicas alike."""
    scripts = train_group(ThreadGroup(DATASET, {0: size}), whole_loop, make=WithoutNorm, micro_batch=micro_batch)
    assert_same_bits([script.state() for script in scripts])
    assert_close(scripts[0].state(), plain(DATASET, has_norm=False).state())


def test_group_of_one_in_one_part_trains_what_one_process_trains_with_its_buffers():
    """Batch normalisation included, the plain script's numbers."""
    (script,) = train_group(ThreadGroup(DATASET, {0: 1}), whole_loop)
    assert_close(script.state(), plain(DATASET).state())


CHANGES = {
    "joins and leaves": {"sizes": {0: 1, 2: 3, 4: 2}},
    "an aborted step": {"sizes": {0: 2}, "aborts": {2: 0}},
    "a step aborted amid its sums": {"sizes": {0: 3}, "aborts": {3: 1}},
    "a step complete at one member alone": {"sizes": {0: 2}, "late": {1: 1}},
    "the last step complete at one member alone": {"sizes": {0: 2}, "late": {4: 1}},
    "all of it": {"sizes": {0: 2, 3: 3, 5: 2}, "aborts": {0: 0, 2: 1, 3: 2}, "late": {3: 1}},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changes_leave_no_trace_in_the_model(change):
    """Nothing advances twice for a step that comes again, and nothing is lost of one that others completed."""
    group = ThreadGroup(DATASET, **change)
    scripts = train_group(group, whole_loop, make=WithoutNorm, micro_batch=3)
    present = [script.state() for script in scripts if not script.session.steps.has_left]
    assert_same_bits(present)
    assert_close(present[0], plain(DATASET, has_norm=False).state())


def test_ranks_that_begin_with_other_weights_train_those_of_the_source():
    """A joiner's own weights, slots and buffers are gone."""
    scripts = train_group(ThreadGroup(DATASET, {0: 1, 1: 3}), whole_loop, micro_batch=4)
    assert_same_bits([script.state() for script in scripts])


def test_buffers_of_replicas_agree_though_each_saw_other_records():
    """Running statistics are averaged by share, and go back with a dropped step."""
    scripts = train_group(ThreadGroup(DATASET, {0: 2}, aborts={1: 1}), whole_loop, make=Same)
    assert_same_bits([script.state() for script in scripts])
    assert int(scripts[0].model.norm.num_batches_tracked) == STEPS


def test_step_without_a_share_and_quarantined_records():
    """A rank without a share runs the loop with spare records that count nothing; a step may have no record at all."""
    dataset = DatasetSpec(name="records", size=5, epochs=2, batch_size=2, seed=3)
    scripts = train_group(ThreadGroup(dataset, {0: 3}), whole_loop, make=WithoutNorm)
    assert_same_bits([script.state() for script in scripts])
    assert_close(scripts[0].state(), plain(dataset, has_norm=False).state())
    gone = PositionSet.span(0, 2) | PositionSet.of(4)
    group = ThreadGroup(dataset, {0: 2}, quarantine=gone)
    scripts = train_group(group, whole_loop, make=WithoutNorm)
    assert_same_bits([script.state() for script in scripts])
    assert int(scripts[0].state()["advanced"]) == 4  # of 6 steps, the two in which all is quarantined excepted


def test_spare_records_count_nothing_even_if_their_loss_is_no_number():
    """Zero times infinity is no zero."""

    def loop(script, loader, session):
        for x, y in loader:
            is_spare = not session.steps.given[-1].positions
            script.round(loader, x * float("inf") if is_spare else x, y)

    dataset = DatasetSpec(name="records", size=2, epochs=3, batch_size=2, seed=3)
    scripts = train_group(ThreadGroup(dataset, {0: 2}), loop, make=WithoutNorm)
    assert all(torch.isfinite(value).all() for value in scripts[1].state().values())
    assert_close(scripts[0].state(), plain(dataset, has_norm=False).state())


class Noisy(Same):
    """Dropout: one random mask a micro-batch."""

    def __init__(self, rank):
        super().__init__(rank, dropout=0.5, has_norm=False)


def test_dropped_step_comes_again_with_the_same_random_numbers():
    """Dropout and augmentation are those of the position, so an aborted step leaves no trace in them."""
    records = Records(has_noise=True)
    calm, torn = (
        train_group(ThreadGroup(DATASET, {0: 1}, aborts=aborts), whole_loop, make=Noisy, dataset=records)[0].state()
        for aborts in (None, {1: 0, 4: 1})
    )
    assert_same_bits([calm, torn])


def test_augmentation_does_not_depend_on_the_division_into_parts():
    """Each record is augmented alike in whatever share it is read, and differently from others (rule 66)."""

    def loop(script, loader, session):
        script.seen = []
        for x, y in loader:
            script.seen.append(x)
            script.round(loader, x, y)

    records = Records(has_noise=True)
    seen = []
    for micro_batch in (None, 3):
        (script,) = train_group(ThreadGroup(DATASET, {0: 1}), loop, dataset=records, micro_batch=micro_batch)
        seen.append(torch.cat(script.seen))
    assert torch.equal(seen[0], seen[1])
    assert len(seen[0].unique(dim=0)) == DATASET.size * DATASET.epochs


def test_random_numbers_of_an_update_do_not_depend_on_who_trained_what():
    """An optimizer with noise would make the replicas of two ranks differ, of which each ends with other records."""

    def drawn(micro_batch):
        numbers = []

        def loop(script, loader, session):
            for x, y in loader:
                script.round(loader, x, y)
                if loader.has_stepped:
                    numbers.append(torch.rand(1).item())

        train_group(ThreadGroup(DATASET, {0: 1}), loop, make=WithoutNorm, micro_batch=micro_batch)
        return numbers

    whole = drawn(None)
    assert len(set(whole)) == STEPS
    assert drawn(3) == whole


def test_networks_of_this_test_are_what_it_says():
    """Frozen layer, buffers."""
    model = Numbers()
    assert not model.last.bias.requires_grad
    assert len(list(model.buffers())) == 3
