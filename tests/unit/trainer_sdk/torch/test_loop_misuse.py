"""Gradients and epochs of the script's own that a group would lose are refused where they are made, alone as well."""

import pytest

from master.api.identities import DatasetSpec
from tests.harness.thread_group import ThreadGroup
from trainer_sdk.errors import UsageError

torch = pytest.importorskip("torch", reason="LEFT OUT: torch is not installed (make frameworks)")

from tests.harness.torch_training import (  # noqa: E402
    DEVICE,
    Same,
    WithoutNorm,
    assert_close,
    plain,
    train_group,
)

pytestmark = pytest.mark.timeout(60)
DATASET = DatasetSpec(name="records", size=24, epochs=2, batch_size=8, seed=3)


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
        assert_close(scripts[0].state(), plain(DATASET, has_norm=False).state())


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
