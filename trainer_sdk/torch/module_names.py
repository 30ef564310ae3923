"""A module's tensors by names that are the same whether it, or a module within, is compiled (`replica_description`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainer_sdk.replica_description import COMPILED, own_name


def inner_module(module: Any) -> Any:
    """The module that was compiled, or else the module itself."""
    return getattr(module, COMPILED, module)


def state_of(module: Any) -> dict[str, Any]:
    """Its state dict, by own names."""
    return {own_name(key): value for key, value in module.state_dict().items()}


def parameter_names(module: Any, *, remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]:
    """Its parameters, by own names."""
    found = module.named_parameters(remove_duplicate=remove_duplicate)
    return ((own_name(key), parameter) for key, parameter in found)


def load_state(module: Any, state: Mapping[str, Any]) -> None:
    """The module's state is this one, whose names may be of a compiled module or not."""
    given = {own_name(key): value for key, value in state.items()}
    module.load_state_dict({key: given[own_name(key)] for key in module.state_dict()})
