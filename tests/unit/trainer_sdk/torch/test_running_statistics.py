"""Running statistics of normalisation layers are updated once a step, by the records of that step alone."""

import copy

import pytest

from tests.harness.thread_group import ThreadGroup

torch = pytest.importorskip("torch", reason="LEFT OUT: torch is not installed (make frameworks)")

from tests.harness.torch_parts import DATASET, STEPS, normalised, round_plain, run_parts  # noqa: E402

nn, optim = torch.nn, torch.optim
pytestmark = pytest.mark.timeout(60)


def test_running_statistics_do_not_depend_on_micro_batches_and_trainers():
    """Those of the first layer are of the records alone."""
    found = []
    for size, micro_batch in ((1, None), (1, 2), (3, 2)):
        model, _ = run_parts(normalised, round_plain, group=ThreadGroup(DATASET, {0: size}), micro_batch=micro_batch)
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
        made = run_parts(parts_of, one_round, group=group, micro_batch=2)
        state = made[0].state_dict()
        (mean,) = [value for name, value in state.items() if name.endswith("running_mean")]
        (count,) = [value for name, value in state.items() if name.endswith("num_batches_tracked")]
        assert int(count) == STEPS
        found.append(mean)
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-12)
