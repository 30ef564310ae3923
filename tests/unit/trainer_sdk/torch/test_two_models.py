"""Two models against each other, as in a GAN: by turns, or at once by one loss; exact at any size and after aborts."""

import pytest

from master.api.identities import DatasetSpec
from master.api.positions import PositionSet
from tests.harness.thread_group import ThreadGroup

torch = pytest.importorskip("torch", reason="LEFT OUT: torch is not installed (make frameworks)")

from tests.harness.torch_training import (  # noqa: E402
    DEVICE,
    Records,
    assert_close,
    assert_same_bits,
    train_group,
    whole_loop,
)
from trainer_sdk import torch as edl_torch  # noqa: E402
from trainer_sdk.record_order import RecordOrder  # noqa: E402

nn, F = torch.nn, torch.nn.functional
pytestmark = pytest.mark.timeout(60)
DATASET = DatasetSpec(name="records", size=22, epochs=3, batch_size=8, seed=3)
CHANGES = {
    "one": {"sizes": {0: 1}},
    "three": {"sizes": {0: 3}},
    "joins, leaves and aborts": {"sizes": {0: 1, 2: 3, 5: 2}, "aborts": {0: 0, 3: 1, 4: 2}, "late": {3: 1}},
}


class Pair:
    """A generator and a critic, each with an optimizer of its own that has a memory."""

    def __init__(self, rank=0):
        torch.default_generator.manual_seed(0)
        make = {"dtype": torch.float64}
        self.generator = nn.Linear(6, 6, **make).to(DEVICE)
        self.critic = nn.Sequential(nn.Linear(6, 5, **make), nn.Tanh(), nn.Linear(5, 1, **make)).to(DEVICE)
        self.for_generator = torch.optim.Adam(self.generator.parameters(), lr=0.01)
        self.for_critic = torch.optim.SGD(self.critic.parameters(), lr=0.05, momentum=0.9)

    def replicate(self, session):
        edl_torch.replicate(session, self.generator, self.critic, self.for_generator, self.for_critic)

    def critics_loss(self, x):
        fake = self.generator(x.flip(1)).detach()
        return (F.softplus(-self.critic(x)) + F.softplus(self.critic(fake))).mean()

    def generators_loss(self, x, critic):
        return F.softplus(-critic(self.generator(x.flip(1)))).mean()

    def state(self):
        optimizers = {"generator": self.for_generator, "critic": self.for_critic}
        slots = {name: one.state_dict()["state"] for name, one in optimizers.items()}
        return {
            **{f"generator.{name}": value.clone() for name, value in self.generator.state_dict().items()},
            **{f"critic.{name}": value.clone() for name, value in self.critic.state_dict().items()},
            **{
                f"slot.{name}.{number}.{key}": value.clone()
                for name, of in slots.items()
                for number, held in of.items()
                for key, value in held.items()
            },
        }


class ByTurns(Pair):
    """Even steps train the critic, odd ones the generator."""

    def round(self, loader, x, y):
        self.step(loader.step, loader.backward, x.to(DEVICE))

    def step(self, number, backward, x):
        is_critics = number % 2 == 0
        backward(self.critics_loss(x) if is_critics else self.generators_loss(x, self.critic))
        (self.for_critic if is_critics else self.for_generator).step()


class AtOnce(Pair):
    """Both from the same parameters: the generator's loss sees the critic's as constants."""

    def round(self, loader, x, y):
        self.step(loader.step, loader.backward, x.to(DEVICE))

    def step(self, number, backward, x):
        fixed = {name: parameter.detach() for name, parameter in self.critic.named_parameters()}
        against = self.generators_loss(x, lambda fake: torch.func.functional_call(self.critic, fixed, (fake,)))
        backward(self.critics_loss(x) + against)
        self.for_critic.step()
        self.for_generator.step()


def plain(make):
    """The same in one process, without a line of EDL."""
    pair, records, order, number = make(), Records(DATASET.size), RecordOrder(DATASET), 0
    for epoch in range(DATASET.epochs):
        for begin in range(0, DATASET.size, DATASET.batch_size):
            end = min(begin + DATASET.batch_size, DATASET.size)
            chosen = order.records(PositionSet.span(epoch * DATASET.size + begin, epoch * DATASET.size + end))
            for model in (pair.generator, pair.critic):
                model.zero_grad()
            pair.step(number, lambda loss: loss.backward(), records.x[chosen].to(DEVICE))
            number += 1
    return pair


@pytest.mark.parametrize("make", [ByTurns, AtOnce])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("micro_batch", [None, 3])
def test_models_that_train_against_each_other_are_those_of_one_process(make, change, micro_batch):
    """Whose turn it is follows from the step, so a step that comes again is the same model's."""
    pairs = train_group(ThreadGroup(DATASET, **change), whole_loop, make=make, micro_batch=micro_batch)
    present = [pair.state() for pair in pairs if not pair.session.steps.has_left]
    assert_same_bits(present)
    assert_close(present[0], plain(make).state())
