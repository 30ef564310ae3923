"""Layout of a PyTorch replica (`master.api.replica_layout`): names, shapes and dtypes of its tensors, and its settings.

Of the form are tensors, ties between them, kinds of optimizers, schedules and scalers, and how many parameters a group
has.  Settings are hyperparameters, which layers are frozen, classes of modules and of the script's own parts, and the
kind of device.  A model of very many tensors has digests of layers in their place: the text is kept in the store.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch

from master.api.replica_layout import layout_text
from trainer_sdk.torch.module_names import inner_module, parameter_names, state_of
from trainer_sdk.torch.state_encoding import StateEncoder

MOST_ENTRIES: Final = 256
MOST_LETTERS: Final = 16384  # of the entries of all tensors
LONGEST_VALUE: Final = 60
_PLAIN_VALUES: Final = (str, bool, int, float, type(None))


def describe_layout(parts: Mapping[str, Any]) -> str:
    """The layout of the replica that consists of these parts, as the script has made them.

    Raises UsageError for a part whose state cannot travel.
    """
    tensors: dict[str, str] = {}
    frozen: dict[str, str] = {}
    form: dict[str, str] = {}
    settings: dict[str, str] = {}
    devices: set[str] = set()
    for name, part in parts.items():
        encoder = StateEncoder()
        if isinstance(part, torch.nn.Module):
            tensors |= _tensors_of(part, name, encoder)
            frozen |= {f"{name}.{key}": "frozen" for key, one in parameter_names(part) if not one.requires_grad}
            settings[name] = type(inner_module(part)).__qualname__
            devices |= {parameter.device.type for parameter in part.parameters()}
            continue
        encoder.encode(part.state_dict(), name)  # refused now, if at all
        kind = type(part).__qualname__
        match part:
            case torch.optim.Optimizer():
                form[name] = kind
                for number, group in enumerate(part.state_dict()["param_groups"]):  # slots come with the first step
                    form[f"{name}.{number}.params"] = str(len(group["params"]))
                    rest = {key: value for key, value in group.items() if key != "params"}
                    settings |= _values_of(rest, f"{name}.{number}")
            case torch.optim.lr_scheduler.LRScheduler():
                form[name] = kind
                settings |= _values_of(part.state_dict(), name)
            case torch.amp.GradScaler():
                form[name] = kind if part.is_enabled() else f"{kind} (disabled)"
                settings |= _values_of(part.state_dict(), name)
            case _:
                settings[name] = kind  # of the script's own: its values may be anything
    if devices := devices - {"cpu"}:  # kernels of two kinds of device round differently
        settings["device"] = ",".join(sorted(devices))
    return layout_text(_bounded(tensors) | form, _bounded(frozen) | settings)


def _tensors_of(module: Any, name: str, encoder: StateEncoder) -> dict[str, str]:
    """Shape of each tensor, or the tensor that it shares its memory with; of what is no tensor, that it is there."""
    found: dict[str, str] = {}
    for key, encoded in encoder.encode(state_of(module), name)["dict"]:
        match encoded:
            case {"tensor": str(path)} if path != f"{name}.{key}":
                found[f"{name}.{key}"] = f"that of {path}"
            case {"tensor": str(path)}:
                found[f"{name}.{key}"] = _shape_text(encoder, path)
            case _:
                found[f"{name}.{key}"] = "state of its own"
    return found


def _values_of(state: Mapping[str, Any], name: str) -> dict[str, str]:
    return {f"{name}.{key}": _value_text(value, f"{name}.{key}") for key, value in state.items()}


def _value_text(value: Any, path: str) -> str:
    """The value where it is short and plain, else its kind and a digest; of a tensor the shape, which is no value."""
    encoder = StateEncoder()
    encoded = encoder.encode(value, path)
    if path in encoder.shapes:
        return _shape_text(encoder, path)
    items = value if type(value) in (list, tuple) else (value,)
    if all(type(item) in _PLAIN_VALUES for item in items) and len(text := repr(value)) <= LONGEST_VALUE:
        return text
    shapes = {place: _shape_text(encoder, place) for place in encoder.shapes}
    return f"{type(value).__name__}-{_digest([encoded, shapes])}"


def _shape_text(encoder: StateEncoder, path: str) -> str:
    one = encoder.shapes[path]
    return f"{encoder.dtypes.get(path) or np.dtype(one.dtype).name}[{','.join(map(str, one.shape))}]"


def _bounded(entries: dict[str, str]) -> dict[str, str]:
    """The entries, or digests of those whose names begin alike where there are too many of them."""
    found = entries
    depth = max((name.count(".") for name in entries), default=0)
    while depth and (len(found) > MOST_ENTRIES or sum(map(len, (*found, *found.values()))) > MOST_LETTERS):
        groups: dict[str, dict[str, str]] = {}
        for name, value in entries.items():
            groups.setdefault(".".join(name.split(".")[:depth]), {})[name] = value
        found = {
            name: held[name] if held.keys() == {name} else f"{len(held)} of digest {_digest(held)}"
            for name, held in groups.items()
        }
        depth -= 1
    return found


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]
