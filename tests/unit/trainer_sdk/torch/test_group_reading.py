"""What members of a group read: each record once, again only where a script changed it, and one that all compare."""

from collections import Counter

import pytest

from master.api.identities import DatasetSpec
from tests.harness.thread_group import ThreadGroup

torch = pytest.importorskip("torch", reason="LEFT OUT: torch is not installed (make frameworks)")

from tests.harness.torch_training import (  # noqa: E402
    Records,
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


def test_redo_reads_nothing_again():
    """What a dropped step has read is given again."""

    def loop(script, loader, session):
        for x, y in loader:
            script.round(loader, x, y)

    (script,) = train_group(ThreadGroup(DATASET, {0: 1}, aborts={2: 1}), loop, micro_batch=3)
    assert Counter(script.dataset.read) == dict.fromkeys(range(DATASET.size), DATASET.epochs)


def test_redo_reads_again_what_the_script_changed_in_place():
    """The step that comes again must not see what the script made of its records."""

    def loop(script, loader, session):
        for x, y in loader:
            script.round(loader, x.mul_(2), y)

    calm, torn = (
        train_group(ThreadGroup(DATASET, {0: 1}, aborts=aborts), loop, make=WithoutNorm)[0] for aborts in (None, {2: 0})
    )
    assert_same_bits([calm.state(), torn.state()])
    assert len(torn.dataset.read) == len(calm.dataset.read) + DATASET.batch_size


def test_redo_gets_what_the_script_put_other_things_in_place_of():
    """The containers of a micro-batch are the script's; nothing is read again for it."""

    def loop(script, loader, session):
        for batch in loader:
            batch[0] = batch[0] * 2
            script.round(loader, *batch)
            batch.clear()

    calm, torn = (
        train_group(ThreadGroup(DATASET, {0: 1}, aborts=aborts), loop, make=WithoutNorm)[0] for aborts in (None, {2: 0})
    )
    assert_same_bits([calm.state(), torn.state()])
    assert len(torn.dataset.read) == len(calm.dataset.read)


def test_len_is_the_number_of_steps_of_an_epoch():
    """What a schedule over all steps is made for."""
    lengths = []
    train_group(ThreadGroup(DATASET, {0: 2}), lambda script, loader, session: lengths.append(len(loader)))
    assert lengths == [3, 3]


def test_all_ranks_read_a_record_that_is_trained_and_compare_it():
    """Equal digests for data that are the same for all, also with augmentation; and nothing more is trained."""

    def loop(script, loader, session):
        script.seen = 0
        for x, y in loader:
            script.seen += len(y)
            script.round(loader, x, y)

    group = ThreadGroup(DATASET, {0: 2}, has_samples=True)
    first, second = train_group(group, loop, make=WithoutNorm, micro_batch=3)
    samples = first.session.steps.samples
    assert [int(sample.split()[0]) for sample in samples] == [8 * step for step in range(STEPS - 1)]
    assert samples == second.session.steps.samples
    assert first.seen + second.seen == DATASET.size * DATASET.epochs
    assert_close(first.state(), plain(DATASET, has_norm=False).state())
    noisy = [
        train_group(ThreadGroup(DATASET, {0: 1}, has_samples=True), whole_loop, dataset=Records(has_noise=True))
        for _ in range(2)
    ]
    assert len({tuple(script.session.steps.samples) for (script,) in noisy}) == 1


def test_record_that_all_read_can_be_collated_where_one_alone_cannot():
    """As a function that pairs or mixes the records of a micro-batch."""

    def collate(records):
        assert len(records) > 1, "nothing to pair this record with"
        return torch.utils.data.default_collate(records)

    (script,) = train_group(ThreadGroup(DATASET, {0: 1}, has_samples=True), whole_loop, collate_fn=collate)
    assert len(script.session.steps.samples) == STEPS - 1
