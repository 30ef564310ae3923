"""Buffers of all replicas are the same bits after a step, and as before it when it was dropped."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from trainer_sdk.errors import UsageError

torch = pytest.importorskip("torch", reason="LEFT OUT: torch is not installed (make frameworks)")

from tests.harness.device_of_tests import device_of_tests  # noqa: E402
from trainer_sdk.torch.model_buffers import LARGE_BYTES, ModelBuffers  # noqa: E402

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


@pytest.mark.parametrize("parts", [[[2, 3, 2]], [[4], [2, 3]], [[2, 2, 2, 2], []]], ids=str)
def test_statistics_are_updated_once_a_step_whatever_the_micro_batches(parts):
    """Momentum acts as in one process on the whole batch, for a group of one too (M10)."""
    size, records = len(parts), sum(map(sum, parts))
    torch.manual_seed(3)
    seen = [[torch.rand(part, 3, dtype=torch.float64).to(DEVICE) for part in mine] for mine in parts]
    models, sums = [Normalised().to(DEVICE) for _ in parts], all_reduces(size)

    def run(rank):
        buffers, mine = ModelBuffers(models[rank]), parts[rank]
        for _ in range(2):
            buffers.begin()
            for number, x in enumerate(seen[rank]):
                models[rank](x)
                if number < len(mine) - 1:
                    buffers.end_part(mine[number] / records)
            last = mine[-1] / records if mine else 0.0
            buffers.reduce(sums[rank], weight=sum(mine) / records, rank=rank, size=size, last_weight=last)
            buffers.apply()

    with ThreadPoolExecutor(size) as pool:
        list(pool.map(run, range(size)))
    for model in models:
        mean = torch.cat([x for mine in seen for x in mine]).mean(dim=0)
        torch.testing.assert_close(model.norm.running_mean, 0.75 * mean)
        assert torch.equal(model.norm.running_var, models[0].norm.running_var)
        assert model.norm.num_batches_tracked.item() == 2


class Centred(nn.Module):
    """Puts a new tensor in its buffer's place with each pass; has a mask that is large, and may change."""

    def __init__(self):
        super().__init__()
        self.register_buffer("center", torch.zeros(3, dtype=torch.float64))
        self.register_buffer("mask", torch.zeros(LARGE_BYTES // 4 + 1))

    def forward(self, x):
        self.center = 0.5 * self.center + 0.5 * x.mean(dim=0)


def run_centred(models, change=lambda model, rank: None):
    """One step of two ranks, of three records and one; the sizes of what rank 0 has summed."""
    sums, sizes = all_reduces(2), []

    def counted(array, *, dtype=""):
        sizes.append(array.size)
        sums[0](array)

    def run(rank):
        buffers = ModelBuffers(models[rank])
        buffers.begin()
        models[rank](torch.full((1, 3), 1.0 + 4 * rank, dtype=torch.float64, device=DEVICE))
        change(models[rank], rank)
        buffers.reduce(sums[1] if rank else counted, weight=0.25 if rank else 0.75, rank=rank, size=2)
        buffers.apply()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, range(2)))
    return sizes


def test_buffer_that_a_module_replaces_is_agreed_on():
    """It is looked up anew: the tensor of the beginning is nobody's any more."""
    models = [Centred().to(DEVICE) for _ in range(2)]
    run_centred(models)
    for model in models:
        assert model.center.tolist() == [1.0, 1.0, 1.0]  # half of 3/4 * 1 + 1/4 * 5


def test_buffer_that_a_module_replaces_is_put_back():
    model = Centred().to(DEVICE)
    buffers = ModelBuffers(model)
    buffers.begin()
    model(torch.ones(1, 3, dtype=torch.float64, device=DEVICE))
    buffers.drop()
    assert model.center.tolist() == [0.0, 0.0, 0.0]


def test_buffer_of_another_shape_is_refused_by_name():
    model = Centred().to(DEVICE)
    buffers = ModelBuffers(model)
    buffers.begin()
    model.center = torch.zeros(4, dtype=torch.float64, device=DEVICE)
    with pytest.raises(UsageError, match=r"center: was torch\.float64 \(3,\).*is torch\.float64 \(4,\)"):
        buffers.reduce(pytest.fail, weight=1.0, rank=0, size=1)


def test_large_constant_is_not_summed_and_a_large_one_that_changed_anywhere_is():
    """An attention mask costs a step one number."""
    models = [Centred().to(DEVICE) for _ in range(2)]
    assert run_centred(models) == [3, 3]  # two ranks and a mask; the center

    def change(model, rank):
        if rank:
            model.mask[0] = 8.0

    assert run_centred(models, change) == [3, 3 + LARGE_BYTES // 4 + 1]
    assert [model.mask[0].item() for model in models] == [2.0, 2.0]


def test_large_buffer_that_is_written_by_way_of_data_is_agreed_on():
    """As a codebook's moving averages: torch counts no such change.  Each step begins with what is there then."""
    models = [Centred().to(DEVICE) for _ in range(2)]

    def change(model, rank):
        model.mask.data.add_(4.0 * rank)

    for mean in (1.0, 2.0):
        assert run_centred(models, change) == [3, 3 + LARGE_BYTES // 4 + 1]
        assert [model.mask.unique().tolist() for model in models] == [[mean], [mean]]


def test_large_buffer_that_is_written_by_way_of_data_is_put_back():
    model = Centred().to(DEVICE)
    model.mask.data.fill_(2.0)
    buffers = ModelBuffers(model)
    model.mask.data.fill_(3.0)
    buffers.begin()
    model.mask.data.fill_(4.0)
    buffers.drop()
    assert model.mask.unique().tolist() == [3.0]


def test_large_constant_without_numbers_is_not_summed():
    """It is compared by its bits."""
    models = [Centred().to(DEVICE) for _ in range(2)]
    for model in models:
        model.mask.fill_(float("nan"))
    assert run_centred(models) == [3, 3]


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
