"""The whole state of a replica travels as arrays and JSON, and a replica that got it goes on bit for bit alike."""

import json
import random
from collections import Counter, OrderedDict

import numpy as np
import pytest

from trainer_sdk.errors import UsageError

torch = pytest.importorskip("torch", reason="LEFT OUT: torch is not installed (make frameworks)")

from trainer_sdk.torch.replica_state import TorchReplica  # noqa: E402
from trainer_sdk.torch.state_encoding import StateDecoder, StateEncoder  # noqa: E402

nn, optim, schedules = torch.nn, torch.optim, torch.optim.lr_scheduler

OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: optim.AdamW(p, lr=0.01, weight_decay=0.1),
}
SCHEDULES = {
    "cosine": lambda o: schedules.CosineAnnealingLR(o, T_max=10),
    "one cycle": lambda o: schedules.OneCycleLR(o, max_lr=0.2, total_steps=12),
    "milestones": lambda o: schedules.MultiStepLR(o, milestones=[2, 4]),
    "warm-up": lambda o: schedules.SequentialLR(
        o, [schedules.LinearLR(o, total_iters=3), schedules.CosineAnnealingLR(o, T_max=9)], milestones=[3]
    ),
}


class RandomNumbers:
    """The generators that a script uses unnamed: a part with a state of its own kind."""

    def state_dict(self):
        numbers = np.random.get_state()  # noqa: NPY002  the one that scripts use unnamed
        return {"torch": torch.get_rng_state(), "numpy": numbers, "python": random.getstate()}

    def load_state_dict(self, state_dict):
        torch.set_rng_state(state_dict["torch"])
        np.random.set_state(state_dict["numpy"])  # noqa: NPY002
        random.setstate(state_dict["python"])


class Remembers:
    """A part of the script's own, with this state."""

    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state_dict):
        self.state = state_dict


class Tied(nn.Module):
    """Embedding and output share their weights."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight


def network(seed, dtype=torch.float32):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Linear(6, 2)).to(dtype)
    model[0].bias.requires_grad_(False)
    return model


def whole(seed, make_optimizer, make_schedule, dtype=torch.float32):
    model = network(seed, dtype)
    optimizer = make_optimizer([p for p in model.parameters() if p.requires_grad])
    parts = {"model": model, "optimizer": optimizer, "schedule": make_schedule(optimizer)}
    is_half = dtype == torch.float16  # torch scales no gradients of 16-bit weights
    parts["scaler"] = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2, enabled=not is_half)
    return parts | {"random": RandomNumbers()}


def train(parts, steps, data):
    model, optimizer, scaler = parts["model"], parts["optimizer"], parts["scaler"]
    dtype = next(model.parameters()).dtype
    for step in range(steps):
        optimizer.zero_grad()
        scaler.scale(model(data[step % len(data)].to(dtype)).float().pow(2).mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        parts["schedule"].step()


def assert_same(one, other):
    """Equal in structure, dtypes and every bit."""
    first, second = TorchReplica(one).capture(), TorchReplica(other).capture()
    assert first.meta == second.meta
    assert first.dtypes == second.dtypes
    assert first.arrays.keys() == second.arrays.keys()
    for name, array in first.arrays.items():
        assert (array.dtype, array.shape) == (second.arrays[name].dtype, second.arrays[name].shape)
        assert array.tobytes() == second.arrays[name].tobytes(), name


@pytest.mark.parametrize("make_schedule", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize("make_optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step:UserWarning")  # torch's own SequentialLR
def test_a_joiner_goes_on_with_the_same_bits(make_optimizer, make_schedule):
    """A replica made anew, with other weights and no slots, takes the state and trains on as its source (M10)."""
    data = torch.randn(4, 8, 4)
    source = whole(1, make_optimizer, make_schedule)
    train(source, 3, data)
    captured = TorchReplica(source).capture()
    joiner = whole(2, make_optimizer, make_schedule)
    TorchReplica(joiner).restore(captured)
    assert_same(source, joiner)
    TorchReplica(source).restore(captured)  # the joiner's construction drew random numbers
    train(source, 3, data)
    after = TorchReplica(source).capture()
    TorchReplica(joiner).restore(captured)
    train(joiner, 3, data)
    received = TorchReplica(joiner).capture()
    assert {k: v.tobytes() for k, v in after.arrays.items()} == {k: v.tobytes() for k, v in received.arrays.items()}
    assert after.meta == received.meta


def test_slots_lie_in_memory_as_their_parameters():
    """A fused optimizer goes through both side by side: a joiner with weights in another order trains the same bits."""

    def convolution(seed):
        torch.manual_seed(seed)
        model = nn.Conv2d(3, 2, 3).to(memory_format=torch.channels_last)
        return {"model": model, "optimizer": optim.AdamW(model.parameters(), lr=0.1, fused=True)}

    def step(parts):
        parts["model"](torch.ones(1, 3, 4, 4).to(memory_format=torch.channels_last)).pow(2).mean().backward()
        parts["optimizer"].step()
        parts["optimizer"].zero_grad()

    source, joiner = convolution(1), convolution(2)
    step(source)
    TorchReplica(joiner).restore(TorchReplica(source).capture())
    weight = joiner["model"].weight
    assert {key: slot.stride() for key, slot in joiner["optimizer"].state[weight].items() if slot.ndim} == {
        "exp_avg": weight.stride(),
        "exp_avg_sq": weight.stride(),
    }
    step(source)
    step(joiner)
    assert_same(source, joiner)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_every_dtype_keeps_its_bits(dtype):
    """Weights and slots of 16 bits go as they are, bfloat16 as the integers that carry it."""
    source = whole(1, OPTIMIZERS["adam"], SCHEDULES["cosine"], dtype)
    train(source, 2, torch.randn(2, 8, 4))
    captured = TorchReplica(source).capture()
    assert ("model.0.weight" in captured.dtypes) == (dtype == torch.bfloat16)
    assert not any(array.dtype.hasobject for array in captured.arrays.values())
    joiner = whole(2, OPTIMIZERS["adam"], SCHEDULES["cosine"], dtype)
    TorchReplica(joiner).restore(captured)
    assert_same(source, joiner)


def test_slots_of_another_dtype_than_their_parameter_keep_it():
    """torch casts slots to the dtype of their parameter as it loads; a float32 moment of bfloat16 weights stays."""
    model = nn.Linear(2, 2, dtype=torch.bfloat16)
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer.state[model.weight]["momentum_buffer"] = torch.full((2, 2), 1 + 2**-20)
    replica = TorchReplica({"model": model, "optimizer": optimizer})
    replica.restore(replica.capture())
    held = optimizer.state[model.weight]["momentum_buffer"]
    assert held.dtype == torch.float32
    assert held[0, 0].item() == 1 + 2**-20


def test_a_capture_is_a_copy_and_a_restored_replica_owns_its_slots():
    """Training on changes neither the capture nor, through it, another replica."""
    parts = whole(1, OPTIMIZERS["momentum"], SCHEDULES["cosine"])
    data = torch.randn(2, 8, 4)
    train(parts, 2, data)
    replica = TorchReplica(parts)
    captured = replica.capture()
    before = {name: array.tobytes() for name, array in captured.arrays.items()}
    replica.restore(captured)
    train(parts, 2, data)
    assert {name: array.tobytes() for name, array in captured.arrays.items()} == before


def test_restore_keeps_tensors_of_the_model_in_their_place():
    """Optimisers, compiled models and the script hold references to them."""
    model = network(1)
    places = {name: value.data_ptr() for name, value in model.state_dict().items()}
    TorchReplica({"model": model}).restore(TorchReplica({"model": network(2)}).capture())
    assert {name: value.data_ptr() for name, value in model.state_dict().items()} == places
    assert torch.equal(model[0].weight, network(2)[0].weight)


def test_tied_weights_travel_once_and_stay_tied():
    source, joiner = Tied(), Tied()
    captured = TorchReplica({"model": source}).capture()
    assert list(captured.arrays) == ["model.embedding.weight"]
    TorchReplica({"model": joiner}).restore(captured)
    assert joiner.head.weight is joiner.embedding.weight
    assert torch.equal(joiner.head.weight, source.head.weight)


def test_several_optimizers_and_a_moving_average_are_parts_of_their_own():
    def parts(seed):
        model = network(seed)
        average = optim.swa_utils.AveragedModel(model, multi_avg_fn=optim.swa_utils.get_ema_multi_avg_fn(0.9))
        one, two = optim.Adam(model[0].parameters(), lr=0.1), optim.SGD(model[3].parameters(), lr=0.2, momentum=0.5)
        return {"model": model, "average": average, "one": one, "two": two}

    source, joiner = parts(1), parts(2)
    for _ in range(2):
        source["model"](torch.randn(8, 4)).sum().backward()
        source["one"].step()
        source["two"].step()
        source["average"].update_parameters(source["model"])
    TorchReplica(joiner).restore(TorchReplica(source).capture())
    assert_same(source, joiner)
    assert joiner["two"].state[joiner["model"][3].weight]["momentum_buffer"].abs().sum() > 0


def test_random_numbers_of_all_three_generators_repeat():
    replica = TorchReplica({"random": RandomNumbers()})
    captured = replica.capture()

    def draw():
        return torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random()  # noqa: NPY002

    first = draw()
    assert draw() != first
    replica.restore(captured)
    assert draw() == first


def test_a_state_of_another_model_is_refused_before_anything_changes():
    """The message names the tensor; the replica is as it was."""
    model = nn.Linear(4, 2)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    replica = TorchReplica({"optimizer": optimizer, "model": model})
    before = model.weight.detach().clone()
    wrong = nn.Linear(4, 3)
    captured = TorchReplica({"optimizer": optim.SGD(wrong.parameters(), lr=0.5), "model": wrong}).capture()
    with pytest.raises(UsageError, match=r"model\.weight: torch\.float32 \(3, 4\) in the state"):
        replica.restore(captured)
    assert torch.equal(model.weight, before)
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_hyperparameters_of_the_state_count_and_those_of_the_script_are_told(capsys):
    """As after torch's load_state_dict; a state whose maker did not say its own tells nothing (ADR 0273)."""

    def parts(rate):
        model = nn.Linear(4, 2)
        optimizer = optim.SGD(model.parameters(), lr=rate)
        return {"model": model, "optimizer": optimizer, "schedule": schedules.StepLR(optimizer, step_size=3)}

    earlier = TorchReplica(parts(0.1)).capture()
    now = parts(0.5)
    replica = TorchReplica(now)
    replica.restore(earlier)
    assert now["optimizer"].param_groups[0]["lr"] == 0.1
    told = capsys.readouterr().err
    assert "optimizer.0.lr is 0.5, and was 0.1; " in told
    assert "schedule.base_lrs is [0.5], and was [0.1]" in told
    assert "set in the loop" in told
    without = {key: value for key, value in json.loads(earlier.meta).items() if key != "layout"}
    for silent in (json.dumps(without), replica.capture().meta):
        replica.restore(type(earlier)(arrays=earlier.arrays, meta=silent))
        assert capsys.readouterr().err == ""


def test_state_of_an_optimizer_with_other_groups_is_refused_before_anything_changes():
    """torch's own error comes while parts are loaded already."""
    model = nn.Linear(4, 2)
    captured = TorchReplica({"model": model, "optimizer": optim.SGD(model.parameters(), lr=0.1)}).capture()
    other = nn.Linear(4, 2)
    before = other.weight.detach().clone()
    optimizer = optim.SGD([{"params": [one]} for one in other.parameters()], lr=0.1)
    with pytest.raises(UsageError, match=r"optimizer: its groups have \[2\] parameters in the state, and \[1, 1\]"):
        TorchReplica({"model": other, "optimizer": optimizer}).restore(captured)
    assert torch.equal(other.weight, before)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, as its compiler is imported
def test_state_goes_from_a_compiled_model_to_one_that_is_not_and_back():
    """Names are those of the module that was compiled; files of earlier releases have the compiled names (ADR 0274)."""

    def compiled(seed):
        model = network(seed)
        model[3] = torch.compile(model[3], backend="eager")
        return torch.compile(model, backend="eager")

    source, plain = compiled(1), network(2)
    captured = TorchReplica({"model": source}).capture()
    assert set(captured.arrays) == {f"model.{name}" for name in plain.state_dict()}
    TorchReplica({"model": plain}).restore(captured)
    assert torch.equal(plain[3].weight, source.state_dict()["_orig_mod.3._orig_mod.weight"])
    other = compiled(3)
    TorchReplica({"model": other}).restore(TorchReplica({"model": plain}).capture())
    assert torch.equal(other.state_dict()["_orig_mod.3._orig_mod.weight"], plain[3].weight)

    meta = json.loads(captured.meta)
    pairs = meta["parts"]["model"]["dict"]
    meta["parts"]["model"]["dict"] = [[f"_orig_mod.{name}", held] for name, held in pairs]
    for model in (network(4), compiled(4)):
        TorchReplica({"model": model}).restore(type(captured)(arrays=captured.arrays, meta=json.dumps(meta)))
        assert torch.equal(model.state_dict()[next(iter(model.state_dict()))], plain[0].weight)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda meta: "no json", "no JSON"),
        (lambda meta: json.dumps({**meta, "version": 99}), "not of version 1"),
        (lambda meta: json.dumps({**meta, "parts": {}}), "holds"),
        (
            lambda meta: json.dumps({**meta, "parts": {"model": {"tensor": "nowhere"}}}),
            "nothing that this release saves",
        ),
        (lambda meta: json.dumps({**meta, "parts": {"model": {"pickle": "x"}}}), "nothing that this release saves"),
    ],
)
def test_a_damaged_description_is_refused(change, message):
    replica = TorchReplica({"model": nn.Linear(2, 2)})
    captured = replica.capture()
    damaged = type(captured)(arrays=captured.arrays, meta=change(json.loads(captured.meta)))
    with pytest.raises(UsageError, match=message):
        replica.restore(damaged)


def test_a_value_that_would_need_a_pickle_is_refused_by_its_path():
    class Odd:
        def state_dict(self):
            return {"hooks": [print]}

        def load_state_dict(self, state):
            pass

    with pytest.raises(UsageError, match=r"odd\.hooks\.0: builtin_function_or_method cannot travel"):
        TorchReplica({"odd": Odd()})
    with pytest.raises(UsageError, match=r"own\.seen: is a set whose values have no order \('<' not supported"):
        TorchReplica({"own": Remembers({"seen": {1, "a"}})})
    with pytest.raises(UsageError, match="loss: function has no state_dict"):
        TorchReplica({"loss": nn.functional.mse_loss})
    with pytest.raises(UsageError, match="has no shape yet"):
        TorchReplica({"lazy": nn.LazyLinear(3)})


def test_nested_values_come_back_as_they_were():
    value = OrderedDict(
        [
            ("numbers", {0: 1, 1.5: (True, None), (1, "a"): [2**80, -0.0, 1e-310]}),
            ("odd", {"nan": float("nan"), "inf": float("-inf"), "bytes": b"\0\xff", "set": {3, 1}}),
            ("counter", Counter({2: 1, 5: 2})),
            ("arrays", [np.arange(3, dtype=np.uint8), torch.tensor(True), torch.zeros(0, 3), torch.ones(2, 2).t()]),
        ]
    )
    encoder = StateEncoder()
    text = json.dumps(encoder.encode(value, "v"), allow_nan=False)
    back = StateDecoder({name: encoder.copied(name) for name in encoder.shapes}, encoder.dtypes).decode(
        json.loads(text)
    )
    assert back["numbers"] == value["numbers"]
    assert np.isnan(back["odd"].pop("nan"))
    assert back["odd"] == {"inf": float("-inf"), "bytes": b"\0\xff", "set": {3, 1}}
    assert back["counter"] == value["counter"]
    assert type(back["counter"]) is Counter
    assert back["arrays"][0].dtype == np.uint8
    assert back["arrays"][1].item() is True
    assert back["arrays"][2].shape == (0, 3)
    assert torch.equal(back["arrays"][3], value["arrays"][3])
