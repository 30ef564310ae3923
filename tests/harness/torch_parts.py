"""Scripts of a torch group that a test puts together: what is replicated, and the body of the loop."""

import torch

from master.api.identities import DatasetSpec
from tests.harness.thread_group import ThreadGroup
from tests.harness.torch_training import assert_same_bits, train_group
from trainer_sdk import torch as edl_torch

nn, optim = torch.nn, torch.optim
DATASET = DatasetSpec(name="records", size=12, epochs=2, batch_size=6, seed=3)
STEPS = 4


def parts():
    model = nn.Linear(6, 3, dtype=torch.float64)
    return model, optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def round_plain(loader, x, y, model, optimizer):
    loader.backward(nn.functional.cross_entropy(model(x), y))
    optimizer.step()


def normalised():
    model = nn.Sequential(nn.BatchNorm1d(6, dtype=torch.float64), nn.Linear(6, 3, dtype=torch.float64))
    return model, optim.SGD(model.parameters(), lr=0.1)


class ScriptOfParts:
    """A script as a test makes it of its parts: `parts` travel, `one_round` is the loop's body."""

    def __init__(self, make_parts, one_round):
        torch.default_generator.manual_seed(0)
        self.made, self.one_round = make_parts(), one_round

    def replicate(self, session):
        edl_torch.replicate(session, *self.made)

    def state(self):
        captured = self.session.replica.capture()
        arrays = {name: torch.from_numpy(array.copy()) for name, array in captured.arrays.items()}
        return arrays | {"meta": torch.frombuffer(bytearray(captured.meta.encode()), dtype=torch.uint8)}


def run_parts(make_parts, one_round, group=None, **options):
    def loop(script, loader, session):
        for x, y in loader:
            one_round(loader, x, y, *script.made)

    group = group or ThreadGroup(DATASET, {0: 2}, aborts={1: 1})
    scripts = train_group(group, loop, make=lambda rank: ScriptOfParts(make_parts, one_round), **options)
    assert_same_bits([script.state() for script in scripts])
    return scripts[0].made
