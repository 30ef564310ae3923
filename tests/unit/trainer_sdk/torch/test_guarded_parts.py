"""Parts of a script act once a step, however often the loop calls them; what follows no model is left alone."""

import copy
import pickle
import warnings
from dataclasses import dataclass

import pytest

from tests.harness.thread_group import ThreadGroup

torch = pytest.importorskip("torch", reason="LEFT OUT: torch is not installed (make frameworks)")

from tests.harness.torch_parts import DATASET, STEPS, normalised, parts, round_plain, run_parts  # noqa: E402
from tests.harness.torch_training import Records  # noqa: E402
from trainer_sdk import torch as edl_torch  # noqa: E402

nn, optim = torch.nn, torch.optim
pytestmark = pytest.mark.timeout(60)


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
    *_, average = run_parts(averaged, round_averaged, micro_batch=2)
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

    *_, average = run_parts(make, one_round, micro_batch=2)
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

    *_, norm = run_parts(lambda: (*normalised(), RunningNorm()), one_round, group=ThreadGroup(DATASET, {0: 1}))
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
