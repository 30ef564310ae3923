"""`replicate` takes what a script made, as it made it, and refuses by name what cannot train in a group."""

import pytest

from tests.harness.thread_group import ThreadGroup
from trainer_sdk.errors import UsageError

torch = pytest.importorskip("torch", reason="LEFT OUT: torch is not installed (make frameworks)")

from tests.harness.torch_parts import DATASET, STEPS, parts, run_parts  # noqa: E402
from tests.harness.torch_training import Records  # noqa: E402
from trainer_sdk import torch as edl_torch  # noqa: E402
from trainer_sdk.torch.training_replica import TrainingReplica  # noqa: E402

nn, optim = torch.nn, torch.optim
pytestmark = pytest.mark.timeout(60)


def test_the_same_objects_come_back(session):
    """References that a script holds stay right; their kinds are still what they were."""
    model, optimizer = parts()
    schedule = optim.lr_scheduler.StepLR(optimizer, 2)
    assert edl_torch.replicate(session, model, optimizer, schedule) == (model, optimizer, schedule)
    assert isinstance(schedule, optim.lr_scheduler.StepLR)
    assert type(schedule).__name__ == "StepLR"
    assert "step" not in schedule.state_dict()


def test_parts_are_named_by_kind(session):
    """Names stand in checkpoints and in errors."""
    model, optimizer = parts()
    second = nn.Linear(3, 3)
    edl_torch.replicate(
        session, model, second, optimizer, optim.SGD(second.parameters(), lr=1.0), critic=nn.Linear(2, 2)
    )
    names = {name.split(".")[0] for name in session.replica.capture().arrays}
    assert names == {"model", "model-2", "critic"}


def wrapped():
    model, optimizer = parts()
    return nn.DataParallel(model), optimizer


def without_optimizer():
    return (parts()[0],)


def foreign_parameter():
    return parts()[0], parts()[1]


def forgotten_schedule():
    model, optimizer = parts()
    optim.lr_scheduler.StepLR(optimizer, 2)
    return model, optimizer


def schedule_of_another():
    model, optimizer = parts()
    optim.lr_scheduler.StepLR(optimizer, 2)
    second, other = parts()
    return model, optimizer, second, other, optim.lr_scheduler.StepLR(other, 2)


def synchronised():
    model = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)))
    return model, optim.SGD(model.parameters(), lr=0.1)


def teacher_of_ranks():
    teacher = nn.Sequential(nn.Linear(6, 3), nn.SyncBatchNorm(3))
    return (*parts(), teacher)


def no_part():
    return (*parts(), 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (wrapped, "model: is wrapped in DataParallel; give the module within"),
        (synchronised, r"model\.1: is SyncBatchNorm.*leave convert_sync_batchnorm out"),
        (teacher_of_ranks, r"model-2\.1: is SyncBatchNorm.*call eval\(\) of it before"),
        (without_optimizer, "give the model and its optimizer"),
        (foreign_parameter, "optimizer: trains a parameter that is in no module"),
        (forgotten_schedule, "a learning-rate schedule was made for the optimizer; give it too"),
        (schedule_of_another, "a learning-rate schedule was made for the optimizer; give it too"),
        (no_part, "int: int has no state_dict"),
    ],
)
def test_what_cannot_train_in_a_group_is_refused_by_name(session, make, message):
    """Before the first step, and nothing is declared."""
    with pytest.raises(UsageError, match=message):
        edl_torch.replicate(session, *make())
    assert session.replica is None


@pytest.fixture
def two_ranks():
    """A process group of torch in which nothing is sent."""
    from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415 - takes a second

    torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield torch.distributed.init_device_mesh("cpu", (2,))
    torch.distributed.destroy_process_group()


def test_sharded_model_is_refused_by_name(session, two_ranks):
    """Sharded in place (`fully_shard`), of which `isinstance` sees no wrapper, or a layer of it wrapped."""
    from torch.distributed import fsdp  # noqa: PLC0415 - takes a second

    in_place = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3))
    fsdp.fully_shard(in_place[0], mesh=two_ranks)
    wrapped_layer = nn.Sequential(fsdp.FullyShardedDataParallel(nn.Linear(6, 4), device_id=torch.device("cpu")))
    for model, kind in ((in_place, "DTensor"), (wrapped_layer, "FullyShardedDataParallel")):
        with pytest.raises(UsageError, match=rf"model: is sharded .*\({kind}\); in a group every trainer holds"):
            edl_torch.replicate(session, model, optim.SGD(model.parameters(), lr=0.1))
    assert session.replica is None


def test_frozen_teacher_with_synchronised_norm_may_be_replicated(session):
    """In evaluation mode the layer normalises by its running statistics, over no rank."""
    edl_torch.replicate(session, *teacher_of_ranks()[:2], teacher_of_ranks()[2].eval())
    assert session.replica is not None


def test_schedule_that_comes_too_late_is_refused_by_its_name(session):
    """It would advance with every micro-batch; torch's own words were of a missing attribute."""
    model, optimizer = parts()
    edl_torch.replicate(session, model, optimizer)
    with pytest.raises(UsageError, match="made after replicate"):
        optim.lr_scheduler.StepLR(optimizer, 2)


def test_nested_schedules_belong_to_their_optimizer(session):
    """A warm-up before another schedule is one schedule."""
    model, optimizer = parts()
    kinds = optim.lr_scheduler
    schedule = kinds.SequentialLR(
        optimizer,
        [kinds.LinearLR(optimizer, total_iters=2), kinds.CosineAnnealingLR(optimizer, T_max=9)],
        milestones=[2],
    )
    edl_torch.replicate(session, model, optimizer, schedule)
    assert session.replica is not None


def test_optimizer_that_evaluates_again_is_refused_as_it_does(session):
    """LBFGS would evaluate on this trainer's records alone."""
    model, _ = parts()
    optimizer = optim.LBFGS(model.parameters())
    edl_torch.replicate(session, model, optimizer)
    with pytest.raises(UsageError, match="LBFGS cannot be used in a group"):
        optimizer.step(lambda: 0.0)


def test_loader_before_replicate_is_refused(session):
    """It says what to call."""
    with pytest.raises(UsageError, match=r"replicate\(session, model, optimizer\) before"):
        edl_torch.loader(session, Records(12), epochs=1, global_batch=6)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(())


class Unsized:
    def __getitem__(self, record):
        return record


@pytest.mark.parametrize(
    ("dataset", "options", "message"),
    [
        (Stream(), {}, r"size: Stream is a stream without len\(\)"),
        (Unsized(), {}, r"Unsized has no len\(\)"),
        ([], {}, "list is empty"),
        (Records(12), {"micro_batch": 0}, "micro_batch: 0 is not an integer from 1 up"),
    ],
)
def test_data_set_that_cannot_be_dealt_out_is_refused(session, dataset, options, message):
    """With what to give instead."""
    edl_torch.replicate(session, *parts())
    with pytest.raises(UsageError, match=message):
        edl_torch.loader(session, dataset, epochs=2, global_batch=6, seed=3, **options)


def mixed_precision():
    model = nn.Linear(6, 3, dtype=torch.float32)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    return model, optimizer, torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)


def round_mixed(loader, x, y, model, optimizer, scaler):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x.float()), y)
    loader.backward(scaler.scale(loss))
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


def test_scaler_with_autocast_and_clipping_advances_once_a_step():
    """The loop of torch's own guide, with accumulation and a step that comes again: growth follows four steps."""
    _, _, scaler = run_parts(mixed_precision, round_mixed, micro_batch=2)
    assert scaler.get_scale() == 8.0 * 2 ** (STEPS // 2)


def round_overflowing(loader, x, y, model, optimizer, scaler):
    is_second = loader.step == 1
    round_mixed(loader, x * (float("inf") if is_second and loader._steps.rank == 0 else 1), y, model, optimizer, scaler)


def test_overflow_at_one_rank_skips_the_step_at_all():
    """The sum is not finite anywhere, so that every scaler comes to the same verdict."""
    model, _, scaler = run_parts(mixed_precision, round_overflowing, group=ThreadGroup(DATASET, {0: 2}))
    assert torch.isfinite(model.weight).all()
    assert scaler.get_scale() == 8.0 * 0.5 * 2


def two_models():
    generator, critic = nn.Linear(6, 6, dtype=torch.float64), nn.Linear(6, 3, dtype=torch.float64)
    kinds = optim.Adam(generator.parameters(), lr=0.01), optim.SGD(critic.parameters(), lr=0.1)
    return generator, critic, *kinds


def round_two(loader, x, y, generator, critic, first, second):
    loader.backward(nn.functional.cross_entropy(critic(generator(x)), y))
    for optimizer in (first, second):
        optimizer.step()
        optimizer.zero_grad()


def test_several_models_and_optimizers_train_on_one_loss():
    """All of them advance with the step."""
    generator, _, first, _ = run_parts(two_models, round_two, micro_batch=2)
    assert {int(slot["step"]) for slot in first.state_dict()["state"].values()} == {STEPS}
    assert generator.weight.grad is None


def compiled():
    model, optimizer = parts()
    return torch.compile(model, backend="eager"), optimizer


def round_compiled(loader, x, y, model, optimizer):
    loader.backward(nn.functional.cross_entropy(model(x), y))
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, as its compiler is imported
def test_compiled_model_trains_as_the_one_that_was_compiled():
    """Its state, and what trainers compare of it, have the names of that one (ADR 0274)."""
    model, optimizer = run_parts(compiled, round_compiled, micro_batch=2)
    plain, _ = run_parts(parts, round_compiled, micro_batch=2)
    for name, one in plain.state_dict().items():
        assert torch.equal(one, model.state_dict()[f"_orig_mod.{name}"])
    replica = TrainingReplica({"model": model, "optimizer": optimizer})
    assert {f"model.{name}" for name in plain.state_dict()} <= replica.digests().keys()
    replica.buckets.close()


def test_parameter_that_an_optimizer_gets_later_is_refused():
    """It would train on this trainer's gradients alone."""

    def one_round(loader, x, y, model, optimizer):
        loader.backward(nn.functional.cross_entropy(model(x), y))
        optimizer.step()
        model.register_parameter("scale", nn.Parameter(torch.ones(1)))
        optimizer.add_param_group({"params": [model.scale]})

    with pytest.raises(UsageError, match="optimizer: trains a parameter that the model did not have"):
        run_parts(parts, one_round, group=ThreadGroup(DATASET, {0: 1}))


def tied_half():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.into = nn.Linear(6, 4, bias=False, dtype=torch.float32)
            self.middle = nn.Linear(4, 4, bias=False, dtype=torch.float32)
            self.again = nn.Linear(6, 4, bias=False, dtype=torch.float32)
            self.again.weight = self.into.weight

        def forward(self, x):
            return self.middle(self.into(x)) + self.again(x)

    model = Tied()
    groups = [{"params": [model.into.weight], "lr": 0.1}, {"params": [model.middle.weight], "lr": 0.01}]
    return model, optim.AdamW(groups)


def round_tied(loader, x, y, model, optimizer):
    loader.backward(nn.functional.cross_entropy(model(x.float()), y))
    optimizer.step()
    optimizer.zero_grad()


def test_tied_weights_and_parameter_groups():
    """A weight of two names is summed once; each group keeps its rate."""
    model, optimizer = run_parts(tied_half, round_tied, micro_batch=2)
    assert model.again.weight is model.into.weight
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.01]
