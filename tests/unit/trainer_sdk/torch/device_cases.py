"""What holds of an accelerator alone: `test_accelerator.py` runs these tests, on a GPU or on the deferred device."""

from threading import Barrier

import pytest
import torch

from master.api.identities import DatasetSpec
from tests.harness.device_of_tests import device_of_tests
from tests.harness.thread_group import WAIT_S, ThreadGroup, ThreadSums
from tests.harness.torch_training import Script, assert_same_bits, train_group, whole_loop
from trainer_sdk import torch as edl_torch
from trainer_sdk.errors import UsageError
from trainer_sdk.torch.gradient_buckets import GradientBuckets
from trainer_sdk.torch.replica_state import TorchReplica
from trainer_sdk.torch.seeds import TRAINING, seed_generators

pytestmark = pytest.mark.timeout(120)
DEVICE = device_of_tests()
DATASET = DatasetSpec(name="records", size=24, epochs=2, batch_size=8, seed=3)
nn, optim = torch.nn, torch.optim

OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: optim.Adam(p, lr=0.01, amsgrad=True),
    "fused": lambda p: optim.AdamW(p, lr=0.01, fused=True),
    "capturable": lambda p: optim.AdamW(p, lr=0.01, capturable=True),
}


@pytest.fixture
def deferred():
    """Controls of the deferred device, which works again afterwards."""
    if DEVICE.type != "deferred":
        pytest.skip("a real device fails for good")
    from tests.harness.deferred_device import extension  # noqa: PLC0415  there is none on a GPU

    yield extension()
    extension().limit_bytes(2**62)
    extension().recover()


def whole(seed, make_optimizer):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)).to(DEVICE)
    optimizer = make_optimizer(list(model.parameters()))
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=4.0, growth_interval=2)
    return {"model": model, "optimizer": optimizer, "schedule": schedule, "scaler": scaler}


def train(parts, steps, seed):
    model, optimizer, scaler = parts["model"], parts["optimizer"], parts["scaler"]
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        scaler.scale(model(torch.randn(8, 4, generator=generator).to(DEVICE)).pow(2).mean()).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        parts["schedule"].step()


def test_device_is_the_accelerator_of_the_process():
    """What a script gives to `.to(...)`."""
    assert edl_torch.device() == torch.device(DEVICE.type, 0)


@pytest.mark.parametrize("make_optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_replica_on_the_device_travels_through_host_memory(make_optimizer):
    """Weights, slots, steps and the scale, also those on the device: who takes them trains on with the same bits."""
    source, joiner = whole(1, make_optimizer), whole(2, make_optimizer)
    train(source, 3, seed=1)
    captured = TorchReplica(source).capture()
    train(joiner, 1, seed=9)
    places = [{key: held.device for key, held in slots.items()} for slots in source["optimizer"].state.values()]
    TorchReplica(joiner).restore(captured)
    assert places == [{key: held.device for key, held in slots.items()} for slots in joiner["optimizer"].state.values()]
    train(source, 3, seed=2)
    train(joiner, 3, seed=2)
    mine, theirs = TorchReplica(source).capture(), TorchReplica(joiner).capture()
    assert {name: array.tobytes() for name, array in mine.arrays.items()} == {
        name: array.tobytes() for name, array in theirs.arrays.items()
    }
    assert mine.meta == theirs.meta


def test_gradients_of_a_group_of_one_never_leave_the_device():
    """Accumulation too: nobody else contributes, so nothing is copied."""
    model = nn.Linear(4, 4).to(DEVICE)
    buckets = GradientBuckets(model.parameters())
    seen = []
    buckets.begin(lambda array, *, dtype="": seen.append(array.copy()), is_shared=False)
    for is_last in (False, True):
        if is_last:
            buckets.reduce_as_ready()
        buckets.backward(model(torch.ones(2, 4).to(DEVICE)).sum())
    buckets.finish()
    buckets.deliver()
    assert seen
    assert not any(array.any() for array in seen)
    assert torch.equal(model.bias.grad.cpu(), torch.full((4,), 4.0))
    buckets.close()


def test_copies_run_beside_the_backward_pass(deferred):
    """Each bucket goes to host memory and back without that the script's thread waits for it."""
    before = deferred.deferred_copies()
    train_group(ThreadGroup(DATASET, {0: 2}), whole_loop)
    assert deferred.deferred_copies() - before == 2 * 2 * 6 * 1  # ranks, ways, steps, buckets


def test_dropped_steps_leave_no_trace_though_their_copies_come_late(deferred):
    """A copy of a step that was dropped runs when the next one has begun, and must not reach its gradients."""
    model = nn.Linear(4, 4).to(DEVICE)
    buckets = GradientBuckets(model.parameters())
    sums = ThreadSums(1)
    for factor in (1.0, 2.0, 3.0):
        buckets.begin(sums.member(0))
        buckets.reduce_as_ready()
        buckets.backward(model(torch.full((2, 4), factor).to(DEVICE)).sum())
        if factor < 3:
            buckets.drop()
    buckets.finish()
    buckets.deliver()
    assert torch.equal(model.weight.grad.cpu(), torch.full((4, 4), 6.0))
    buckets.close()


class Failing(Script):
    """The device of rank 1 fails in its third round, as a CUDA device does: told later, at the next wait."""

    fail = staticmethod(lambda script: None)

    def round(self, loader, x, y):
        self.rounds = getattr(self, "rounds", 0) + 1
        if self.rounds == 3:
            self.fail(self)
        super().round(loader, x, y)

    def __init__(self, rank):
        super().__init__(rank)
        self.rank = rank
        self.before = {}

    def update(self):
        self.before = {name: value.cpu().clone() for name, value in self.model.state_dict().items()}
        super().update()


def test_device_that_fails_in_a_step_writes_no_parameter(deferred):
    """The error is raised before the step's word, with what it means; the rank contributes to nothing after it."""
    group = ThreadGroup(DATASET, {0: 2})
    scripts = []

    def make(rank):
        scripts.append(Failing(rank))
        return scripts[-1]

    both = Barrier(2)

    def fail(script):
        both.wait(WAIT_S)  # the device is one for both: nobody is in the update of the step before
        if script.rank == 1:
            group.sums[2].abort()  # as the group hears of a member that raises
            deferred.fail("device-side assert triggered")

    Failing.fail = staticmethod(fail)
    with pytest.raises(torch.AcceleratorError, match="device-side assert"):
        train_group(group, whole_loop, make=make)
    deferred.recover()
    steps = [state["step"] for script in scripts for state in script.optimizer.state.values()]
    assert all(step == 2 for step in steps)


def test_check_tells_what_an_error_of_the_device_means(deferred):
    """The line that raises is not the line that failed."""
    model = nn.Linear(2, 2).to(DEVICE)
    buckets = GradientBuckets(model.parameters())
    buckets.begin(ThreadSums(1).member(0))
    buckets.reduce_as_ready()
    buckets.backward(model(torch.ones(1, 2).to(DEVICE)).sum())
    buckets.finish()
    deferred.fail("an illegal memory access was encountered")
    with pytest.raises(torch.AcceleratorError, match="illegal memory access") as caught:
        buckets.check_device()
    assert "the step counts at no trainer" in "".join(caught.value.__notes__)
    deferred.recover()
    buckets.close()


def test_memory_that_ends_in_a_backward_pass_leaves_the_replica_as_it_was(deferred):
    """Out of memory is an error of the call: gradients are gone, parameters and slots untouched."""
    script = Script(0)
    buckets = GradientBuckets(script.model.parameters())
    before = {name: value.cpu().clone() for name, value in script.model.state_dict().items()}
    buckets.begin(ThreadSums(1).member(0))
    buckets.reduce_as_ready()
    loss = script.model(torch.ones(4, 6, dtype=torch.float64).to(DEVICE)).sum()
    deferred.limit_bytes(deferred.allocated_bytes() + 64)
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        buckets.backward(loss)
    deferred.limit_bytes(2**62)
    buckets.drop()
    script.optimizer.step()
    assert not script.optimizer.state
    for name, value in script.model.named_parameters():
        assert torch.equal(value.cpu(), before[name])
    buckets.close()


def test_generators_of_the_device_begin_anew_with_each_micro_batch():
    """Dropout on the device is a function of seed and position."""
    seed_generators(3, 5, TRAINING)
    if DEVICE.type == "deferred":
        from tests.harness.deferred_device import SEEDS  # noqa: PLC0415  there is none on a GPU

        assert SEEDS[-1] == torch.default_generator.initial_seed()
        return
    first = torch.rand(4, device=DEVICE)
    seed_generators(3, 5, TRAINING)
    assert torch.equal(first, torch.rand(4, device=DEVICE))


def test_model_on_two_devices_is_refused():
    """A part of it on the host would be copied with every pass: pipelines over devices are not what a group sums."""
    model = nn.Sequential(nn.Linear(2, 2).to(DEVICE), nn.Linear(2, 2))
    with pytest.raises(UsageError, match="a trainer's model is on one device"):
        GradientBuckets(model.parameters())


def test_device_is_part_of_the_layout():
    """Kernels of two kinds of device round differently, so replicas of a mixed group would not stay the same bits."""
    with_device, without = (
        TorchReplica({"model": nn.Linear(2, 2).to(device)}).layout for device in (DEVICE, torch.device("cpu"))
    )
    assert with_device == f"{without} device:{DEVICE.type}"


def test_members_that_come_late_or_with_other_weights_agree_on_the_device():
    """A state goes from device to device by way of host memory (rule 71)."""
    scripts = train_group(ThreadGroup(DATASET, {0: 1, 1: 3}, late={3: 1}), whole_loop, micro_batch=3)
    assert_same_bits([script.state() for script in scripts])
