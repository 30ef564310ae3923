"""A torch script in a group trains the model that it trains alone, whoever comes, goes or fails meanwhile (M10).

Members are threads with a model each (`tests/harness/thread_group.py`); other weights at each rank before the start.
"""

from collections import Counter

import pytest

from master.api.identities import DatasetSpec
from master.api.positions import PositionSet
from tests.harness.thread_group import ThreadGroup
from trainer_sdk.errors import TrainerLeft, UsageError

torch = pytest.importorskip("torch", reason="LEFT OUT: torch is not installed (make frameworks)")

from tests.harness.torch_training import (  # noqa: E402
    DEVICE,
    Numbers,
    Records,
    Script,
    assert_close,
    assert_same_bits,
    train_group,
    whole_loop,
)
from trainer_sdk.record_order import RecordOrder  # noqa: E402

pytestmark = pytest.mark.timeout(60)
DATASET = DatasetSpec(name="records", size=24, epochs=2, batch_size=8, seed=3)
STEPS = 6


def plain(dataset=DATASET, *, per_epoch=None, **options):
    """A plain script on the global batches, in the order of the job: no line of EDL."""
    script, records, order = Script(**options), Records(dataset.size), RecordOrder(dataset)
    for epoch in range(dataset.epochs):
        for begin in range(0, dataset.size, dataset.batch_size):
            end = min(begin + dataset.batch_size, dataset.size)
            positions = PositionSet.span(epoch * dataset.size + begin, epoch * dataset.size + end)
            chosen = order.records(positions)
            x, y = records.x[chosen].to(DEVICE), records.y[chosen].to(DEVICE)
            loss = torch.nn.functional.cross_entropy(script.model(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(script.model.parameters(), 0.5)
            script.update()
        if per_epoch:
            per_epoch(script)
    return script


class Same(Script):
    """All ranks begin with the same weights, as from one seed or one file."""

    def __init__(self, rank, **options):
        super().__init__(0, **options)


class WithoutNorm(Same):
    """Batch normalisation makes the loss depend on the division into micro-batches, as in DDP."""

    def __init__(self, rank):
        super().__init__(rank, has_norm=False)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("micro_batch", [None, 3, 1])
def test_group_of_any_size_trains_what_one_process_trains(size, micro_batch):
    """Uneven shares, accumulation, clipping, schedule, moving average: as the plain script, all replicas alike."""
    scripts = train_group(ThreadGroup(DATASET, {0: size}), whole_loop, make=WithoutNorm, micro_batch=micro_batch)
    assert_same_bits([script.state() for script in scripts])
    assert_close(scripts[0].state(), plain(has_norm=False).state())


def test_group_of_one_in_one_part_trains_what_one_process_trains_with_its_buffers():
    """Batch normalisation included, the plain script's numbers."""
    (script,) = train_group(ThreadGroup(DATASET, {0: 1}), whole_loop)
    assert_close(script.state(), plain().state())


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
    assert_close(present[0], plain(has_norm=False).state())


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


# ---- what is random -------------------------------------------------------------------------------------------------


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


# ---- what is read ---------------------------------------------------------------------------------------------------


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
    assert_close(first.state(), plain(has_norm=False).state())
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


# ---- epochs ---------------------------------------------------------------------------------------------------------


def epochs_loop(script, loader, session):
    """As a script with a schedule by epochs and a test set."""
    script.ended, script.results = [], []
    for epoch in loader.epochs():
        for x, y in loader:
            script.round(loader, x, y)
        script.results.append(loader.evaluate(script.dataset, lambda batch: counted(script.model, batch), batch_size=5))
        script.optimizer.param_groups[0]["weight_decay"] = 0.01 * len(script.results)
        script.ended.append((epoch, loader.has_stepped, loader.step))


def counted(model, batch):
    assert not model.training
    assert not torch.is_grad_enabled()
    x, y = (part.to(DEVICE) for part in batch)
    scores = model(x)
    loss = torch.nn.functional.cross_entropy(scores, y, reduction="sum")
    return {"correct": (scores.argmax(dim=1) == y).sum(), "loss": loss, "count": len(y)}


def expected_results():
    """Evaluations of a plain script."""
    found = []

    def evaluate(script):
        records = Records(DATASET.size)
        script.model.eval()
        with torch.no_grad():
            found.append({name: float(value) for name, value in counted(script.model, (records.x, records.y)).items()})
        script.model.train()
        script.optimizer.param_groups[0]["weight_decay"] = 0.01 * len(found)

    return plain(has_norm=False, per_epoch=evaluate), found


def assert_results(found, wanted):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one == pytest.approx(other, rel=1e-9)


@pytest.mark.parametrize("broken", [(), (2,), (2, 5)])
def test_epochs_end_at_all_ranks_with_one_evaluation_on_the_same_parameters(broken, capsys):
    """All share the test set and get the same numbers; a rank whose group breaks then evaluates the rest by itself.

    Each join breaks an evaluation once, so that only the second time in a row is told, at both ranks.
    """
    alone, wanted = expected_results()
    group = ThreadGroup(DATASET, {0: 2}, broken_gathers=broken)
    scripts = train_group(group, epochs_loop, make=WithoutNorm, micro_batch=3)
    for script in scripts:
        assert script.ended == [(0, True, 3), (1, True, 6)]
        assert_results(script.results, wanted)
        assert script.results == scripts[0].results
        assert script.model.training
    assert_same_bits([script.state() for script in scripts])
    assert_close(scripts[0].state(), alone.state())
    told = capsys.readouterr().err.count("edl: evaluate(): the group broke in it 2 times in a row (the group broke)")
    assert told == (2 if broken == (2, 5) else 0)


def test_member_that_misses_an_epochs_end_takes_it_over_and_runs_its_code_once():
    """It takes the state that the others left behind, evaluates by itself, and advances nothing a second time."""
    _, wanted = expected_results()

    def loop(script, loader, session):
        script.ended, script.results = [], []
        for epoch in loader.epochs():
            for x, y in loader:
                script.round(loader, x, y)
            script.results.append(loader.evaluate(script.dataset, lambda batch: counted(script.model, batch)))
            script.ended.append((epoch, loader.has_stepped))

    group = ThreadGroup(DATASET, {0: 2}, late={2: 1}, broken_gathers=(2,))
    scripts = train_group(group, loop, make=WithoutNorm)
    assert scripts[0].ended == [(0, True), (1, True)]
    assert scripts[1].ended == [(0, False), (1, True)]
    for script in scripts:
        assert_results(script.results[:1], wanted[:1])
    assert_same_bits([script.state() for script in scripts])


def test_evaluation_before_the_loop_of_a_trained_job_is_told_to_be_of_the_scripts_weights(capsys):
    """The job's come with the first step; of a job that begins, the script's weights are the job's."""

    def loop(script, loader, session):
        for _ in range(2):
            loader.evaluate(script.dataset, lambda batch: {"count": len(batch[0])})
        for x, y in loader:
            script.round(loader, x, y)
            loader.evaluate(script.dataset, lambda batch: {"count": len(batch[0])})

    train_group(ThreadGroup(DATASET, {0: 1}), loop, make=WithoutNorm)
    assert "evaluate()" not in capsys.readouterr().err
    train_group(ThreadGroup(DATASET, {0: 1, 2: 2}), loop, make=WithoutNorm)
    assert capsys.readouterr().err.count("edl: evaluate() before the loop was of the weights that the script had ") == 1


def test_joiner_begins_in_the_epoch_of_its_group_and_a_leaver_runs_no_code_after_it():
    """Of an epoch that it has not seen the end of, a trainer says nothing."""

    def loop(script, loader, session):
        script.ended = []
        for epoch in loader.epochs():
            for x, y in loader:
                script.round(loader, x, y)
            script.ended.append(epoch)
        script.ended.append("end")

    scripts = [Script(0), Script(1)]
    group = ThreadGroup(DATASET, {0: 2, 4: 1})
    with pytest.raises(TrainerLeft):
        train_group(group, loop, make=scripts.__getitem__)
    assert [script.ended for script in scripts] == [[0, 1, "end"], [0]]
    joined = train_group(ThreadGroup(DATASET, {0: 1, 4: 2}), loop)
    assert [script.ended for script in joined] == [[0, 1, "end"], [1, "end"]]


def test_has_stepped_is_true_once_for_each_step():
    """For what a script does once a step: also with accumulation, and when a step comes again."""

    def loop(script, loader, session):
        script.steps = []
        for x, y in loader:
            script.round(loader, x, y)
            if loader.has_stepped:
                script.steps.append(loader.step)

    group = ThreadGroup(DATASET, {0: 2}, aborts={1: 1})
    scripts = train_group(group, loop, make=WithoutNorm, micro_batch=1)
    assert [script.steps for script in scripts] == [list(range(1, STEPS + 1))] * 2


def test_step_without_an_optimizers_call_is_told_once(capsys):
    """A condition left over from accumulation by hand: the records count, and their gradients are lost."""

    def loop(script, loader, session):
        for number, (x, y) in enumerate(loader):
            loader.backward(torch.nn.functional.cross_entropy(script.model(x.to(DEVICE)), y.to(DEVICE)))
            if number % 2 == 1:
                script.update()

    train_group(ThreadGroup(DATASET, {0: 1}), whole_loop, micro_batch=3)
    assert "optimizer.step()" not in capsys.readouterr().err
    train_group(ThreadGroup(DATASET, {0: 1}), loop)
    assert capsys.readouterr().err.count("edl: step 1 is complete and no optimizer.step() was called") == 1


# ---- misuse ---------------------------------------------------------------------------------------------------------


def no_backward(script, loader, session):
    for x, y in loader:
        torch.nn.functional.cross_entropy(script.model(x.to(DEVICE)), y.to(DEVICE)).backward()


def two_backwards(script, loader, session):
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(script.model(x.to(DEVICE)), y.to(DEVICE))
        loader.backward(loss)
        loader.backward(loss)


def own_step_first(script, loader, session):
    """As the critic's turn of a GAN: its gradients are gone again when the loader is called."""
    for x, y in loader:
        torch.nn.functional.cross_entropy(script.model(x.to(DEVICE)), y.to(DEVICE)).backward()
        script.update()
        script.round(loader, x, y)


def own_step_after(script, loader, session):
    for x, y in loader:
        script.round(loader, x, y)
        torch.nn.functional.cross_entropy(script.model(x.to(DEVICE)), y.to(DEVICE)).backward()
        script.update()


def own_backward_into_the_sum(script, loader, session):
    for x, y in loader:
        loader.backward(torch.nn.functional.cross_entropy(script.model(x.to(DEVICE)), y.to(DEVICE)))
        script.model(x.to(DEVICE)).sum().backward()
        script.update()


@pytest.mark.parametrize("loop", [own_step_first, own_step_after, own_backward_into_the_sum])
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("micro_batch", [None, 3])
def test_gradients_of_the_scripts_own_are_refused_at_any_number_of_trainers(loop, size, micro_batch):
    """What is refused once a second trainer joins is refused alone, whether its gradients are still there or not."""
    with pytest.raises(UsageError, match="of a backward\\(\\) of the script's own"):
        train_group(ThreadGroup(DATASET, {0: size}), loop, make=Same, micro_batch=micro_batch)


def test_backward_pass_of_the_scripts_own_between_steps_without_an_optimizer_is_allowed():
    """As for a measure of the gradients after an epoch: the next step begins without them."""

    def loop(script, loader, session):
        for _ in loader.epochs():
            for x, y in loader:
                script.round(loader, x, y)
            script.model(script.dataset.x.to(DEVICE)).sum().backward()

    for size in (1, 2):
        scripts = train_group(ThreadGroup(DATASET, {0: size}), loop, make=WithoutNorm)
        assert_close(scripts[0].state(), plain(has_norm=False).state())


def abandoned_epoch(script, loader, session):
    for _ in loader.epochs():
        for x, y in loader:
            script.round(loader, x, y)
            break


def sparse_gradients(script, loader, session):
    for _, y in loader:
        loader.backward(torch.nn.functional.embedding(y.to(DEVICE), script.model.first.weight, sparse=True).sum())


def no_numbers(script, loader, session):
    loader.evaluate(script.dataset, lambda batch: {"scores": batch[0]})


def no_mapping(script, loader, session):
    loader.evaluate(script.dataset, lambda batch: 1)


@pytest.mark.parametrize(
    ("loop", "message"),
    [
        (no_backward, "a round without backward"),
        (two_backwards, "backward\\(\\) without a micro-batch"),
        (abandoned_epoch, "its epoch was not trained"),
        (sparse_gradients, "use sparse=False, groups sum dense gradients"),
        (no_numbers, "what is no number"),
        (no_mapping, "return numbers to add up, by name"),
    ],
)
def test_misused_loader_says_what_to_write(loop, message):
    """Each is told where it is done."""
    if loop is sparse_gradients and DEVICE.type == "deferred":
        pytest.skip("the deferred device makes dense gradients alone")
    with pytest.raises(UsageError, match=message):
        train_group(ThreadGroup(DATASET, {0: 1}), loop)


def test_networks_of_this_test_are_what_it_says():
    """Frozen layer, buffers."""
    model = Numbers()
    assert not model.last.bias.requires_grad
    assert len(list(model.buffers())) == 3
