"""The layout of a replica names what differs: tensors, groups, hyperparameters, frozen layers."""

import pytest

from master.api.replica_layout import compare_layouts

torch = pytest.importorskip("torch", reason="LEFT OUT: torch is not installed (make frameworks)")

from trainer_sdk.torch.replica_layout import MOST_LETTERS, describe_layout  # noqa: E402

nn, optim, schedules = torch.nn, torch.optim, torch.optim.lr_scheduler


def parts(*, width=3, rate=0.01, decay=0.1, tied=False, **more):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.Linear(width, width))
    if tied:
        model[2].bias = model[1].bias
    optimizer = optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
    found = {"model": model, "optimizer": optimizer, "schedule": schedules.CosineAnnealingLR(optimizer, T_max=10)}
    return found | more


def differences(one, other=None):
    return compare_layouts(describe_layout(one), describe_layout(other or parts()))


def test_layout_is_the_same_for_who_makes_the_parts_alike():
    """Whatever their values are: other weights, and slots of an optimizer that has stepped."""
    trained = parts()
    layout = describe_layout(trained)
    trained["model"](torch.randn(8, 4)).sum().backward()
    trained["optimizer"].step()
    assert describe_layout(trained) == layout == describe_layout(parts())


@pytest.mark.parametrize(
    ("other", "form", "settings"),
    [
        ({"rate": 0.02}, "", "optimizer.0.lr is 0.02, and was 0.01"),
        ({"decay": 0.0}, "", "optimizer.0.weight_decay is 0.0, and was 0.1"),
        ({"width": 5}, "model.0.weight is float32[5,4], and was float32[3,4]", ""),
        ({"tied": True}, "model.2.bias is that of model.1.bias, and was float32[3]", ""),
        ({"scaler": torch.amp.GradScaler("cpu")}, "scaler is new (GradScaler)", ""),
    ],
)
def test_what_differs_is_named(other, form, settings):
    """A state of another form cannot be loaded; settings may change with a new start (rule 98)."""
    found = differences(parts(**other))
    assert form in (found.form or ("",))
    assert bool(form) == bool(found.form)
    assert settings in (*found.settings, "")


def test_frozen_layers_classes_and_groups_are_named():
    frozen = parts()
    frozen["model"][0].bias.requires_grad_(False)
    assert differences(frozen).settings == ("model.0.bias is new (frozen)",)

    class Renamed(nn.Sequential):
        pass

    renamed = parts()
    renamed["model"].__class__ = Renamed
    (told,) = differences(renamed).settings
    assert told.endswith("Renamed, and was Sequential")
    grouped = parts()
    model = grouped["model"]
    grouped["optimizer"] = optim.AdamW([{"params": one.parameters()} for one in model], lr=0.01, weight_decay=0.1)
    assert differences(grouped).form[0] == "optimizer.0.params is 2, and was 6"


def test_model_of_very_many_tensors_has_a_short_layout():
    """The text is kept in the store; what differs is named by its layer."""

    def deep(width):
        layers = [nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.LayerNorm(4)) for _ in range(200)]
        layers[150][1] = nn.Linear(4, width)
        return {"model": nn.Sequential(*layers)}

    layout = describe_layout(deep(4))
    assert len(layout) < 2 * MOST_LETTERS
    assert describe_layout(deep(4)) == layout
    (told,) = compare_layouts(describe_layout(deep(5)), layout).form
    assert told.startswith("model.150 is 6 of digest ")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, as its compiler is imported
def test_compiled_model_has_the_layout_of_the_one_that_was_compiled():
    """As a whole or in part, so that a run that compiles and one that does not share checkpoints (ADR 0274)."""
    plain, whole, within = parts(), parts(), parts()
    whole["model"] = torch.compile(whole["model"], backend="eager")
    within["model"][2] = torch.compile(within["model"][2], backend="eager")
    assert describe_layout(whole) == describe_layout(plain)
    assert describe_layout(within) == describe_layout(plain)
