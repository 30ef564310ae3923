"""Gradients of a group equal those of one process, and a dropped step leaves nothing behind.

Members are threads with a model each; the all-reduce between them is exact and can be aborted.
"""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.harness.thread_group import ThreadSums
from trainer_sdk.errors import StepAborted, UsageError

torch = pytest.importorskip("torch", reason="LEFT OUT: torch is not installed (make frameworks)")

from tests.harness.device_of_tests import device_of_tests  # noqa: E402
from trainer_sdk.torch.bucket_layout import BUCKET_BYTES, FIRST_BUCKET_BYTES, make_buckets  # noqa: E402
from trainer_sdk.torch.gradient_buckets import GradientBuckets  # noqa: E402

nn = torch.nn
DEVICE = device_of_tests()
WAIT_S = 120.0


def _widened(array, dtype):
    return torch.from_numpy(array.copy()).view(torch.bfloat16).float().numpy() if dtype else array.copy()


def _narrowed(array, dtype):
    return torch.from_numpy(array).bfloat16().view(torch.uint16).numpy() if dtype else array


def member(sums, rank):
    return sums.member(rank, _widened, _narrowed)


def network(dtype=torch.float64):
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 9), nn.Tanh(), nn.Linear(9, 3)).to(DEVICE, dtype)
    model[2].bias.requires_grad_(False)
    return model


def small_buckets(model):
    return GradientBuckets(model.parameters(), first_bucket_bytes=300, bucket_bytes=800)


def data(records, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    return (torch.rand(records, 6, generator=generator, dtype=torch.float64) - 0.5).to(DEVICE, dtype)


def loss_of(model, x):
    return model(x).pow(2).sum(dim=1).mean()


def contribute(model, buckets, parts, records):
    """One rank's step: a backward pass for each part of its records."""
    for number, part in enumerate(parts):
        if number == len(parts) - 1:
            buckets.reduce_as_ready()
        buckets.backward(loss_of(model, part) * (len(part) / records))
        assert all(parameter.grad is None for parameter in model.parameters())
    buckets.finish()


def train_group(splits, steps=3, dtype=torch.float64):
    """Models after some steps of AdamW with clipping; `splits`: sizes of the micro-batches of each rank."""
    records = sum(map(sum, splits))
    sums = ThreadSums(len(splits))
    parts = iter(data(records, dtype).split([size for split in splits for size in split]))
    mine = [[next(parts) for _ in split] for split in splits]
    models = [network(dtype) for _ in splits]

    def run(rank):
        model, buckets = models[rank], small_buckets(models[rank])
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05, eps=1e-3)
        for _ in range(steps):
            buckets.begin(member(sums, rank))
            contribute(model, buckets, mine[rank], records)
            buckets.deliver()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
        buckets.close()

    with ThreadPoolExecutor(len(splits)) as pool:
        list(pool.map(run, range(len(splits))))
    assert all(sizes == sums.sizes[0] for sizes in sums.sizes)
    return models


def assert_same_bits(models):
    for name, value in models[0].state_dict().items():
        for other in models[1:]:
            assert torch.equal(value, other.state_dict()[name]), name


@pytest.mark.parametrize(
    "splits",
    [[[12]], [[6], [6]], [[7], [5]], [[4, 4], [3, 1]], [[2], [4, 4], [2]], [[12], []], [[], [5, 3], [4]]],
    ids=str,
)
def test_a_group_trains_as_one_process_on_the_global_batch(splits):
    """Uneven shares, accumulation, an empty share, clipping: the same model, and all replicas bit for bit (M10)."""
    models = train_group(splits)
    assert_same_bits(models)
    alone = network()
    optimizer = torch.optim.AdamW([p for p in alone.parameters() if p.requires_grad], lr=0.05, eps=1e-3)
    for _ in range(3):
        loss_of(alone, data(12)).backward()
        nn.utils.clip_grad_norm_(alone.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
    for name, value in alone.state_dict().items():
        torch.testing.assert_close(models[0].state_dict()[name], value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_replicas_of_other_dtypes_hold_the_same_bits(dtype):
    models = train_group([[5], [3, 4]], dtype=dtype)
    assert_same_bits(models)
    assert not torch.equal(models[0][0].weight, network(dtype)[0].weight)


def test_a_bucket_is_reduced_while_the_backward_pass_goes_on():
    """The gradient of the first layer waits for the sum of the last layer's bucket: without overlap it never comes."""
    model = network()
    reduced, waited = threading.Event(), []
    model[1].register_full_backward_hook(lambda *_: waited.append(reduced.wait(WAIT_S)))
    buckets = small_buckets(model)
    buckets.begin(lambda array, *, dtype="": reduced.set())
    contribute(model, buckets, [data(4)], 4)
    assert waited == [True]
    buckets.close()


def test_an_abort_amid_the_backward_pass_leaves_no_trace_and_the_step_is_redone():
    """Weights and slots stay as they were, though the loop goes on to clip and step; the redo gives the right sum."""
    model, x = network(), data(6)
    buckets = small_buckets(model)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.1, weight_decay=0.1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    sums = ThreadSums(2)
    began = threading.Event()

    def all_reduce(array, *, dtype=""):
        began.set()
        member(sums, 0)(array, dtype=dtype)

    def abort_and_wait(*_):
        assert began.wait(WAIT_S)
        sums.abort()

    hook = model[1].register_full_backward_hook(abort_and_wait)
    buckets.begin(all_reduce)
    with pytest.raises(StepAborted):
        contribute(model, buckets, [x], 6)
    buckets.drop()
    hook.remove()
    assert nn.utils.clip_grad_norm_(model.parameters(), 1.0) == 0
    optimizer.step()
    assert not optimizer.state
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())

    buckets.begin(ThreadSums(1).member(0))
    contribute(model, buckets, [x[:2], x[2:]], 6)
    buckets.deliver()
    alone = network()
    loss_of(alone, x).backward()
    for mine, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        assert (mine.grad is None) == (theirs.grad is None)
        if mine.grad is not None:
            torch.testing.assert_close(mine.grad, theirs.grad)
    buckets.close()


def test_a_step_that_an_error_ends_waits_for_its_sum_until_the_group_breaks():
    """Its sum writes into the bucket meanwhile; an abort, as BROKEN or the end of the session is one, ends it (73)."""
    model, sums, began = network(), ThreadSums(2), threading.Event()

    def all_reduce(array, *, dtype=""):
        began.set()
        member(sums, 0)(array, dtype=dtype)

    def fail(*_):
        assert began.wait(WAIT_S)
        raise RuntimeError("out of memory")

    model[1].register_full_backward_hook(fail)
    buckets = small_buckets(model)
    buckets.begin(all_reduce)
    with pytest.raises(RuntimeError, match="out of memory"):
        contribute(model, buckets, [data(6)], 6)
    dropping = threading.Thread(target=buckets.drop)
    dropping.start()
    dropping.join(0.2)  # ample for a drop that does not wait
    assert dropping.is_alive()
    sums.abort()
    dropping.join(WAIT_S)
    assert not dropping.is_alive()
    buckets.close()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_parameter_that_one_rank_does_not_use_counts_as_zero_there(dtype):
    """All ranks reduce the same buckets in the same order, whatever their graphs; what none used has no gradient."""
    models = [nn.ModuleList([nn.Linear(3, 3, dtype=dtype) for _ in range(4)]).to(DEVICE) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    sums = ThreadSums(2)
    x = torch.ones(2, 3, dtype=dtype, device=DEVICE)

    def run(rank):
        buckets = GradientBuckets(models[rank].parameters(), first_bucket_bytes=100, bucket_bytes=100)
        buckets.begin(member(sums, rank))
        buckets.reduce_as_ready()
        buckets.backward(models[rank][rank](models[rank][3](x)).sum())
        buckets.finish()
        buckets.deliver()
        gradients = {name: parameter.grad for name, parameter in models[rank].named_parameters()}
        buckets.close()
        return gradients

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(run, range(2))
    assert sums.sizes[0] == sums.sizes[1]
    unused = {"2.weight", "2.bias"}
    assert {name for name in one if one[name] is None} == {name for name in other if other[name] is None} == unused
    assert all(torch.equal(one[name], other[name]) for name in one if name not in unused)
    assert other["0.weight"].abs().sum() > 0


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_parameter_that_only_one_micro_batch_uses_has_a_gradient_and_an_unused_one_has_none(is_shared):
    """Weight decay and momentum move no weight that a plain script would leave alone."""
    layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)]).to(DEVICE)
    x = torch.ones(1, 2, device=DEVICE)
    buckets = GradientBuckets(layers.parameters())
    buckets.begin(lambda array, *, dtype="": None, is_shared=is_shared)
    buckets.backward(layers[0](x).sum())
    buckets.reduce_as_ready()
    buckets.backward(layers[1](x).sum())
    buckets.finish()
    buckets.deliver()
    assert [layer.bias.grad is None for layer in layers] == [False, False, True]
    buckets.close()


def test_a_fused_optimizer_trains_weights_that_are_not_contiguous():
    """Gradients have the strides of their parameters: torch's fused kernels do not look at them."""
    torch.manual_seed(5)
    last = {"device": "cpu" if DEVICE.type == "deferred" else DEVICE, "memory_format": torch.channels_last}
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2)).to(**last)
    alone = copy.deepcopy(model)
    x = torch.rand(5, 3, 4, 4).to(**last)
    buckets = GradientBuckets(model.parameters())
    one, other = (torch.optim.AdamW(of.parameters(), lr=0.1, fused=True) for of in (model, alone))
    for _ in range(2):
        buckets.begin(ThreadSums(1).member(0))
        contribute(model, buckets, [x], 5)
        buckets.deliver()
        one.step()
        other.zero_grad()
        loss_of(alone, x).backward()
        other.step()
    assert model[0].weight.grad.stride() == model[0].weight.stride()
    buckets.close()
    for mine, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_backward_pass_of_the_scripts_own_within_a_step_is_refused(is_alone):
    """Its gradients have no weight of the step; the same in a group of one."""
    model = network()
    buckets = small_buckets(model)
    buckets.begin(None if is_alone else ThreadSums(1).member(0))
    buckets.reduce_as_ready()

    def misuse():
        loss_of(model, data(2)).backward()
        buckets.backward(loss_of(model, data(2)))

    with pytest.raises(UsageError, match="within a step; add that loss"):
        misuse()
    buckets.close()


def sizes(parameters, first_bytes=FIRST_BUCKET_BYTES, bytes_=BUCKET_BYTES):
    """Gradients in each bucket, in the order in which they are summed."""
    buckets = make_buckets(list(parameters), first_bytes, bytes_, None)
    return [sum(view.numel() for view in bucket.views) for bucket in buckets]


def test_buckets_depend_on_the_parameters_alone():
    """First small, then larger, from the last parameter on; a dtype begins a new one."""
    model = network()
    assert sizes(model.parameters(), 300, 800) == [3 + 27 + 9, 81 + 9 + 54]
    shared = nn.Linear(4, 4)
    mixed = [nn.Parameter(torch.zeros(3)), *shared.parameters(), nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))]
    assert sizes(mixed) == [2, 23]
    layers = nn.Sequential(*(nn.Linear(512, 512) for _ in range(3)), nn.Linear(512, 1))
    assert sizes(layers.parameters()) == [513 + 513 * 512, 2 * 513 * 512]


def test_outside_a_step_gradients_are_torchs_own():
    model = network()
    buckets = small_buckets(model)
    loss_of(model, data(2)).backward()
    assert model[0].weight.grad.abs().sum() > 0
    buckets.close()
    buckets.close()


def test_what_cannot_be_summed_is_refused():
    buckets = small_buckets(model := network())
    buckets.begin(ThreadSums(1).member(0))
    buckets.reduce_as_ready()
    first, second = loss_of(model, data(2)), loss_of(model, data(3))
    buckets.backward(first)
    with pytest.raises(UsageError, match="add the losses up"):
        buckets.backward(second)
    model[2].bias.requires_grad_(True)
    with pytest.raises(UsageError, match="frozen or thawed"):
        buckets.begin(ThreadSums(1).member(0))
    buckets.close()

    embedding = nn.Embedding(4, 2, sparse=True)
    buckets = GradientBuckets(embedding.parameters())
    buckets.begin(ThreadSums(1).member(0))
    with pytest.raises(UsageError, match="sparse=False"):
        buckets.backward(embedding(torch.from_numpy(np.array([1]))).sum())
    buckets.close()
    with pytest.raises(UsageError, match="nothing to train"):
        GradientBuckets([])
    with pytest.raises(UsageError, match="on meta"):
        GradientBuckets(nn.Linear(2, 2, device="meta").parameters())
    with pytest.raises(UsageError, match="complex64 cannot be summed"):
        GradientBuckets([nn.Parameter(torch.zeros(2, dtype=torch.complex64))])
