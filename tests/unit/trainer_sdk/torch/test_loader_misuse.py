"""Mistakes of a PyTorch script are told by the argument that is wrong, where it is given, with what to write."""

import numpy as np
import pytest

from master.api.identities import DatasetSpec
from tests.harness.thread_group import ThreadGroup
from trainer_sdk.errors import UsageError

torch = pytest.importorskip("torch", reason="LEFT OUT: torch is not installed (make frameworks)")

from tests.harness.torch_parts import parts  # noqa: E402
from tests.harness.torch_training import DEVICE, Records, Script, train_group, whole_loop  # noqa: E402
from trainer_sdk import torch as edl_torch  # noqa: E402

nn = torch.nn
pytestmark = pytest.mark.timeout(60)
DATASET = DatasetSpec(name="records", size=24, epochs=2, batch_size=8, seed=3)


def train(loop=whole_loop, *, size=1, **options):
    return train_group(ThreadGroup(DATASET, {0: size}), loop, **options)


@pytest.mark.parametrize("given", [0, -1, 2.0, "2", True])
def test_micro_batch_is_a_whole_number(given):
    """It was compared and divided as it came, and failed in the loop with words of Python's."""
    with pytest.raises(UsageError, match=r"micro_batch: .* is not an integer from 1 up"):
        train(micro_batch=given)


def test_micro_batch_may_be_a_number_of_numpy():
    """As those of a configuration that was computed are."""
    train(micro_batch=np.int64(3))


@pytest.mark.parametrize("given", [0, -4, 1.5, "8"])
def test_batch_size_of_an_evaluation_is_a_whole_number(given):
    """0 was a division by zero, and -4 the sum of no batch: an accuracy of 0."""
    with pytest.raises(UsageError, match=r"batch_size: .* is not an integer from 1 up"):
        train(lambda script, loader, session: loader.evaluate(script.dataset, lambda batch: {"n": 1}, batch_size=given))


def test_data_loader_in_place_of_its_data_set_is_named():
    """Whoever changes a script gives what the loop had."""
    batches = torch.utils.data.DataLoader(Records())
    with pytest.raises(UsageError, match=r"dataset: is a DataLoader.*its \.dataset"):
        train(dataset=batches)
    with pytest.raises(UsageError, match=r"dataset: is a DataLoader.*its \.dataset"):
        train(lambda script, loader, session: loader.evaluate(batches, lambda batch: {"n": 1}))


LOSSES = {
    r"the loss is a float; give the tensor": lambda loss: loss.mean().item(),
    r"the loss is a tuple; give the tensor": lambda loss: (loss.mean(), 1),
    r"the loss is a NoneType; give the tensor": lambda loss: None,
    r"the loss is a tensor of shape \(\d,\); give its mean": lambda loss: loss,
    r"the loss has no gradient": lambda loss: loss.mean().detach(),
}


@pytest.mark.parametrize(("message", "of"), LOSSES.items())
@pytest.mark.parametrize("micro_batch", [None, 3])
def test_what_is_no_loss_is_refused(message, of, micro_batch):
    """As misuse: an error of torch's would be one of the records, which other trainers then try."""

    def loop(script, loader, session):
        for x, y in loader:
            losses = nn.functional.cross_entropy(script.model(x.to(DEVICE)), y.to(DEVICE), reduction="none")
            loader.backward(of(losses))

    with pytest.raises(UsageError, match=message):
        train(loop, micro_batch=micro_batch)


class Changed(Script):
    """Its model is changed once it is replicated."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def replicate(self, session):
        super().replicate(session)
        self.change(self.model)


def other_head(model):
    model.last = nn.Linear(9, 3, dtype=torch.float64).to(DEVICE)


def more_layers(model):
    model.more = nn.Linear(3, 3).to(DEVICE)


CHANGES = {
    r"model\.first\.weight: was torch.float64 \(9, 6\) on .*, and is torch.float32": lambda model: model.float(),
    r"model\.last\.weight: was .*, and is another parameter now": other_head,
    r"model\.more\.weight: was not there when it was given to replicate\(\), and is torch.float32": more_layers,
}


@pytest.mark.parametrize(("message", "change"), CHANGES.items())
@pytest.mark.parametrize("size", [1, 2])
def test_model_that_is_changed_after_replicate_is_refused_in_the_first_step(message, change, size):
    """Layers that the group does not sum, or of which gradients have another dtype than once a second trainer joins."""
    with pytest.raises(UsageError, match=message):
        train(make=lambda rank: Changed(change), size=size)


def test_name_of_two_parts_is_refused():
    """The second took the place of the first, which then did not travel."""
    model, optimizer = parts()
    second = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(UsageError, match=r"optimizer is the name of two parts.*second_optimizer="):
        edl_torch.replicate(None, model, optimizer, optimizer=second)
