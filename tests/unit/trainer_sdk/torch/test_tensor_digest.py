"""Digests by which replicas are compared."""

import pytest

torch = pytest.importorskip("torch", reason="LEFT OUT: torch is not installed (make frameworks)")

from trainer_sdk.torch.tensor_digest import COLUMNS, digest_tensors  # noqa: E402
from trainer_sdk.torch.training_replica import TrainingReplica  # noqa: E402

SIZES = (0, 1, 3, 2 * COLUMNS, 2 * COLUMNS + 1, 6 * COLUMNS + 5)
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64)


def digest(tensor):
    return digest_tensors({"one": tensor})["one"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_equal_bits_have_one_digest_and_one_other_bit_has_another(size, dtype):
    """Wherever the tensor lies in memory, and whichever element it is."""
    whole = torch.randn(size + 3, generator=torch.Generator().manual_seed(size)).mul(50).to(dtype)
    held = whole[3:]  # at an odd place in memory
    assert digest(held) == digest(held.clone())
    for place in {0, size // 2, size - 1} if size else ():
        other = held.clone()
        octets = other.view(torch.uint8).view(-1)
        octets[place * dtype.itemsize] ^= 1
        assert digest(other) != digest(held)


def test_order_of_the_elements_counts():
    """Two weights that have changed places are another replica."""
    held = torch.arange(4.0 * COLUMNS)
    assert digest(held) != digest(held.flip(0))
    assert digest(held.view(2, -1)) == digest(held.view(2, -1).T.contiguous().T)


class Calibrated(torch.nn.Linear):
    """A layer whose state has more than parameters and buffers: what this process has measured, a tensor."""

    measured = 0.0

    def get_extra_state(self):
        return torch.tensor([self.measured])

    def set_extra_state(self, state):
        self.measured = state.item()


def replica():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), Calibrated(4, 2))
    optimizer = torch.optim.Adam(model.parameters())
    made = TrainingReplica({"model": model, "optimizer": optimizer})
    made.gate.is_open = True
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    return made, model, optimizer


def test_digests_of_a_replica_are_of_what_a_step_changes():
    """Parameters, buffers and slots by name; a rate may be set for the step in hand at one rank before others."""
    (made, model, optimizer), (same, *_) = replica(), replica()
    before = made.digests()
    assert before == same.digests()
    assert {"model.0.weight", "model.1.running_mean", "optimizer.0.exp_avg"} <= before.keys()
    optimizer.param_groups[0]["lr"] = 1.0
    assert made.digests() == before
    with torch.no_grad():
        model[0].weight[1, 1] += 1e-3
        model[1].running_mean += 1
        optimizer.state[model[0].bias]["exp_avg"] += 1
    after = made.digests()
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"model.0.weight", "model.1.running_mean", "optimizer.1.exp_avg"}


def test_extra_state_of_a_module_is_not_compared_and_travels():
    """It may differ by rank, as a cache or a timer does.  Whoever joins takes it with the replica all the same."""
    (made, model, _), (other, theirs, _) = replica(), replica()
    model[2].measured = 3.5
    assert "2._extra_state" in model.state_dict()
    assert made.digests() == other.digests()
    other.restore(made.capture())
    assert theirs[2].measured == 3.5
    with torch.no_grad():
        model[2].bias[0] += 1
    assert made.digests() != other.digests()
