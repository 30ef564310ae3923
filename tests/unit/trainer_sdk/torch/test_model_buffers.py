"""Buffers of all replicas are the same bits after a step, and as before it when it was dropped."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from trainer_sdk.errors import UsageError

torch = pytest.importorskip("torch", reason="LEFT OUT: torch is not installed (make frameworks)")

from tests.harness.device_of_tests import device_of_tests  # noqa: E402
from trainer_sdk.torch.model_buffers import ModelBuffers  # noqa: E402

nn = torch.nn
DEVICE = device_of_tests()
WAIT_S = 120.0


class Normalised(nn.Module):
    """Running statistics, a counter, a mask that never changes, and a cache that is no state."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3, momentum=0.5, dtype=torch.float64)
        self.register_buffer("mask", torch.tensor([0.1, float("-inf"), float("nan")], dtype=torch.float64))
        self.register_buffer("cache", torch.zeros(2), persistent=False)

    def forward(self, x):
        self.cache += len(x)
        return self.norm(x)


def all_reduces(size):
    """One all-reduce a rank, between threads."""
    barrier, arrays = threading.Barrier(size), [None] * size

    def member(rank):
        def all_reduce(array, *, dtype=""):
            arrays[rank] = array.copy()
            barrier.wait(WAIT_S)
            total = sum(arrays[1:], arrays[0].copy())
            barrier.wait(WAIT_S)
            array[...] = total

        return all_reduce

    return [member(rank) for rank in range(size)]


def step(shares):
    """Models after one step, in which each rank saw as many records as it has here; and what each saw."""
    size, records = len(shares), sum(shares)
    torch.manual_seed(3)
    seen = [torch.rand(share, 3, dtype=torch.float64).to(DEVICE) for share in shares]
    models, sums = [Normalised().to(DEVICE) for _ in shares], all_reduces(size)

    def run(rank):
        buffers = ModelBuffers(models[rank])
        buffers.begin()
        if shares[rank]:
            models[rank](seen[rank])
        buffers.reduce(sums[rank], weight=shares[rank] / records, rank=rank, size=size)
        buffers.apply()

    with ThreadPoolExecutor(size) as pool:
        list(pool.map(run, range(size)))
    return models, seen


@pytest.mark.parametrize("shares", [[4], [6, 2], [0, 3, 5]], ids=str)
def test_statistics_are_averaged_by_share_and_equal_everywhere(shares):
    """The running mean is what one process would have kept of the whole batch (M10)."""
    models, seen = step(shares)
    for model in models:
        torch.testing.assert_close(model.norm.running_mean, 0.5 * torch.cat(seen).mean(dim=0))
        assert torch.equal(model.norm.running_mean, models[0].norm.running_mean)
        assert torch.equal(model.norm.running_var, models[0].norm.running_var)
        assert model.norm.num_batches_tracked.item() == 1


def test_what_does_not_change_keeps_its_bits():
    """A constant is not rounded by weights such as 3/8, and an infinite one stays so."""
    for model in step([3, 5])[0]:
        assert model.mask.cpu().numpy().tobytes() == Normalised().mask.numpy().tobytes()


def test_a_dropped_step_puts_the_statistics_back():
    model = Normalised().to(DEVICE)
    model(torch.rand(4, 3, dtype=torch.float64).to(DEVICE))
    before = {name: value.clone() for name, value in model.norm.state_dict().items()}
    buffers = ModelBuffers(model)
    buffers.begin()
    model(torch.rand(4, 3, dtype=torch.float64).to(DEVICE))
    assert not torch.equal(model.norm.running_mean, before["running_mean"])
    buffers.drop()
    assert all(torch.equal(value, before[name]) for name, value in model.norm.state_dict().items())


def test_a_model_without_buffers_needs_no_all_reduce():
    buffers = ModelBuffers(nn.Linear(2, 2))
    buffers.begin()
    buffers.reduce(pytest.fail, weight=1.0, rank=0, size=2)
    buffers.apply()


def test_a_buffer_that_cannot_be_averaged_is_refused_by_name():
    model = nn.Module()
    model.register_buffer("phases", torch.zeros(2, dtype=torch.complex64))
    with pytest.raises(UsageError, match=r"phases: torch\.complex64 on cpu"):
        ModelBuffers(model)
