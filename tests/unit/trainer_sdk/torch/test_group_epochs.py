"""Epochs, evaluations and steps of a torch script in a group, at every member alike."""

import pytest

from master.api.identities import DatasetSpec
from tests.harness.thread_group import ThreadGroup
from trainer_sdk.errors import TrainerLeft

torch = pytest.importorskip("torch", reason="LEFT OUT: torch is not installed (make frameworks)")

from tests.harness.torch_training import (  # noqa: E402
    DEVICE,
    Records,
    Script,
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

    return plain(DATASET, has_norm=False, per_epoch=evaluate), found


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
