"""`replicate` takes what a script made, as it made it, and refuses by name what cannot train in a group."""

import copy
import pickle
import warnings
from dataclasses import dataclass

import pytest

from master.api.identities import DatasetSpec
from tests.harness.thread_group import ThreadGroup
from trainer_sdk.errors import UsageError

torch = pytest.importorskip("torch", reason="LEFT OUT: torch is not installed (make frameworks)")

from tests.harness.thread_group import ThreadSession  # noqa: E402
from tests.harness.torch_training import Records, assert_same_bits, train_group  # noqa: E402
from trainer_sdk import torch as edl_torch  # noqa: E402

nn, optim = torch.nn, torch.optim
pytestmark = pytest.mark.timeout(60)
DATASET = DatasetSpec(name="records", size=12, epochs=2, batch_size=6, seed=3)
STEPS = 4


@pytest.fixture
def session():
    made = ThreadSession(ThreadGroup(DATASET, {0: 1}), 0)
    yield made
    if made.replica is not None:
        made.replica.buckets.close()


def parts():
    model = nn.Linear(6, 3, dtype=torch.float64)
    return model, optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


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
        (Records(12), {"micro_batch": 0}, "micro_batch: 0 is no number of records"),
    ],
)
def test_data_set_that_cannot_be_dealt_out_is_refused(session, dataset, options, message):
    """With what to give instead."""
    edl_torch.replicate(session, *parts())
    with pytest.raises(UsageError, match=message):
        edl_torch.loader(session, dataset, epochs=2, global_batch=6, seed=3, **options)


class Custom:
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


def run_custom(make_parts, one_round, group=None, **options):
    def loop(script, loader, session):
        for x, y in loader:
            one_round(loader, x, y, *script.made)

    group = group or ThreadGroup(DATASET, {0: 2}, aborts={1: 1})
    scripts = train_group(group, loop, make=lambda rank: Custom(make_parts, one_round), **options)
    assert_same_bits([script.state() for script in scripts])
    return scripts[0].made


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
    _, _, scaler = run_custom(mixed_precision, round_mixed, micro_batch=2)
    assert scaler.get_scale() == 8.0 * 2 ** (STEPS // 2)


def round_overflowing(loader, x, y, model, optimizer, scaler):
    is_second = loader.step == 1
    round_mixed(loader, x * (float("inf") if is_second and loader._steps.rank == 0 else 1), y, model, optimizer, scaler)


def test_overflow_at_one_rank_skips_the_step_at_all():
    """The sum is not finite anywhere, so that every scaler comes to the same verdict."""
    model, _, scaler = run_custom(mixed_precision, round_overflowing, group=ThreadGroup(DATASET, {0: 2}))
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
    generator, _, first, _ = run_custom(two_models, round_two, micro_batch=2)
    assert {int(slot["step"]) for slot in first.state_dict()["state"].values()} == {STEPS}
    assert generator.weight.grad is None


def averaged():
    model, optimizer = parts()
    return (
        model,
        optimizer,
        optim.swa_utils.AveragedModel(model, multi_avg_fn=optim.swa_utils.get_ema_multi_avg_fn(0.9)),
    )


def round_averaged(loader, x, y, model, optimizer, average):
    loader.backward(nn.functional.cross_entropy(model(x), y))
    optimizer.step()
    average.update_parameters(model)
    optimizer.zero_grad()


def test_moving_average_takes_in_each_step_once():
    """With accumulation and a step that comes again; its parameters are not summed over the group."""
    *_, average = run_custom(averaged, round_averaged, micro_batch=2)
    assert int(average.n_averaged) == STEPS


class Shadow(nn.Module):
    """A moving average as libraries write it: a module with `update`, maybe with the averaged model within."""

    def __init__(self, model, *, has_model):
        super().__init__()
        self.copy = copy.deepcopy(model).requires_grad_(requires_grad=False)
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self.within = model if has_model else None

    def update(self, model):
        self.updates += 1
        self.copy.weight.lerp_(model.weight.detach(), 0.1)


@pytest.mark.parametrize("has_model", [False, True])
def test_average_that_is_a_module_with_update_takes_in_each_step_once(has_model):
    """Its parameters are no optimizer's."""

    def make():
        model, optimizer = parts()
        return model, optimizer, Shadow(model, has_model=has_model)

    def one_round(loader, x, y, model, optimizer, average):
        loader.backward(nn.functional.cross_entropy(model(x), y))
        optimizer.step()
        average.update(model)

    *_, average = run_custom(make, one_round, micro_batch=2)
    assert int(average.updates) == STEPS


class Flat(nn.Module):
    """An average under names of its own, as some libraries write it."""

    def __init__(self, model):
        super().__init__()
        for name, parameter in model.named_parameters():
            self.register_buffer(name.replace(".", "_"), parameter.detach().clone())
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))

    def update(self):
        self.updates += 1


def part_of_a_model():
    model = nn.Sequential(parts()[0], nn.Tanh())
    return model, optim.SGD(model.parameters(), lr=0.1), Shadow(model[0], has_model=False)


def under_other_names():
    model, optimizer = parts()
    return model, optimizer, Flat(model)


@pytest.mark.parametrize("make", [part_of_a_model, under_other_names])
def test_average_of_a_layer_or_under_other_names_is_known_by_its_tensors(session, make):
    model, optimizer, average = make()
    edl_torch.replicate(session, model, optimizer, average)
    average.update(*([model[0]] if isinstance(average, Shadow) else []))
    assert int(average.updates) == 0


class RunningNorm(nn.Module):
    """Statistics of the inputs, which a script takes in before it calls its model."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6, dtype=torch.float64))
        self.register_buffer("var", torch.ones(6, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def update(self, x):
        self.count += 1
        self.mean += (x.mean(dim=0) - self.mean) / self.count


def test_module_that_follows_no_model_is_updated_where_the_script_does():
    """Before the backward pass, too: what it holds is no average of what is trained."""

    def one_round(loader, x, y, model, optimizer, norm):
        norm.update(x)
        round_plain(loader, x - norm.mean, y, model, optimizer)

    *_, norm = run_custom(lambda: (*normalised(), RunningNorm()), one_round, group=ThreadGroup(DATASET, {0: 1}))
    assert int(norm.count) == STEPS


class OwnUpdate(nn.Linear):
    def update(self):
        return "updated"


def test_method_of_a_model_that_is_trained_is_its_own_affair(session):
    model = OwnUpdate(2, 2)
    edl_torch.replicate(session, model, optim.SGD(model.parameters(), lr=0.1))
    assert model.update() == "updated"


@dataclass(slots=True)
class Best:
    value: int = 0

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]

    def update(self):
        self.value += 1


def test_parts_act_at_each_call_again_once_the_session_is_over(session):
    """In a notebook the objects outlive it; schedules, averages and parts of the script's own too."""
    model, optimizer, average = averaged()
    schedule, best = optim.lr_scheduler.StepLR(optimizer, 2), Best()
    edl_torch.replicate(session, model, optimizer, schedule, average, best)
    edl_torch.loader(session, Records(12), epochs=2, global_batch=6, seed=3)
    before = model.weight.detach().clone()

    def advance():
        model.weight.grad = torch.ones_like(model.weight)
        optimizer.step()
        schedule.step()
        average.update_parameters(model)
        best.update()

    advance()
    assert torch.equal(model.weight, before)
    assert (schedule.last_epoch, int(average.n_averaged), best.value) == (0, 0, 0)
    session.close()
    advance()
    assert not torch.equal(model.weight, before)
    assert (schedule.last_epoch, int(average.n_averaged), best.value) == (1, 1, 1)
    assert type(best) is Best
    optim.lr_scheduler.StepLR(optimizer, 2)


def test_guarded_part_can_be_pickled_and_copied(session):
    """As a whole module by torch.save: the copy is of the class that the script knows, without a guard."""
    model, optimizer = parts()
    average, best = optim.swa_utils.AveragedModel(model), Best(3)
    edl_torch.replicate(session, model, optimizer, average, best)
    for part, kind in ((average, optim.swa_utils.AveragedModel), (best, Best)):
        for made in (pickle.loads(pickle.dumps(part)), copy.deepcopy(part)):
            assert type(made) is kind
            assert made.state_dict().keys() == part.state_dict().keys()


def test_parameter_that_an_optimizer_gets_later_is_refused():
    """It would train on this trainer's gradients alone."""

    def one_round(loader, x, y, model, optimizer):
        loader.backward(nn.functional.cross_entropy(model(x), y))
        optimizer.step()
        model.register_parameter("scale", nn.Parameter(torch.ones(1)))
        optimizer.add_param_group({"params": [model.scale]})

    with pytest.raises(UsageError, match="optimizer: trains a parameter that the model did not have"):
        run_custom(parts, one_round, group=ThreadGroup(DATASET, {0: 1}))


def round_plain(loader, x, y, model, optimizer):
    loader.backward(nn.functional.cross_entropy(model(x), y))
    optimizer.step()


def normalised():
    model = nn.Sequential(nn.BatchNorm1d(6, dtype=torch.float64), nn.Linear(6, 3, dtype=torch.float64))
    return model, optim.SGD(model.parameters(), lr=0.1)


def test_running_statistics_do_not_depend_on_micro_batches_and_trainers():
    """Those of the first layer are of the records alone."""
    found = []
    for size, micro_batch in ((1, None), (1, 2), (3, 2)):
        model, _ = run_custom(normalised, round_plain, group=ThreadGroup(DATASET, {0: size}), micro_batch=micro_batch)
        assert int(model[0].num_batches_tracked) == STEPS
        found.append(model[0].running_mean)
    for one in found[1:]:
        torch.testing.assert_close(one, found[0])


class Holder(nn.Module):
    """An average with the averaged model within, whose layers are so there twice."""

    def __init__(self, model):
        super().__init__()
        self.copy = copy.deepcopy(model).requires_grad_(requires_grad=False)
        self.online = model


def beside_its_average():
    model, optimizer = normalised()
    return model, optimizer, Holder(model)


def beside_its_backbone():
    model, optimizer = normalised()
    return nn.Sequential(model), optimizer, model


def scripted():
    model = torch.jit.script(normalised()[0])
    return model, optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("make", [beside_its_average, beside_its_backbone, scripted])
@pytest.mark.parametrize("size", [1, 2])
def test_running_statistics_of_layers_in_two_modules_or_of_torchscript_are_those_of_the_plain_model(make, size):
    """A layer is updated once a step also where one module has another within; and a dropped step is none."""

    def one_round(loader, x, y, model, optimizer, *others):
        round_plain(loader, x, y, model, optimizer)

    found = []
    for parts_of in (normalised, make):
        group = ThreadGroup(DATASET, {0: size}, aborts={1: 0})
        made = run_custom(parts_of, one_round, group=group, micro_batch=2)
        state = made[0].state_dict()
        (mean,) = [value for name, value in state.items() if name.endswith("running_mean")]
        (count,) = [value for name, value in state.items() if name.endswith("num_batches_tracked")]
        assert int(count) == STEPS
        found.append(mean)
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-12)


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
    model, optimizer = run_custom(tied_half, round_tied, micro_batch=2)
    assert model.again.weight is model.into.weight
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.01]


def test_schedule_gives_no_warning_of_an_order_that_is_right(session):
    """torch warns when an optimizer's step was replaced after its schedule was made; EDL's guard is no such case."""
    model, optimizer = parts()
    schedule = optim.lr_scheduler.StepLR(optimizer, 2)
    edl_torch.replicate(session, model, optimizer, schedule)
    session.replica.gate.is_open = True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()
        schedule.step()
    assert schedule.last_epoch == 1
