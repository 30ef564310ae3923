"""Names of a module's tensors, the same whether it, or a module within, is compiled.

`torch.compile(module)` returns a module that has the given one within, as `_orig_mod`: all names of its state dict
begin so.  Checkpoints and layouts have the names of the module that was compiled, so that a run that compiles and one
that does not share them (ADR 0274).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

COMPILED: Final = "_orig_mod"


def own_name(name: str) -> str:
    """The name without what compilation adds to it."""
    if COMPILED not in name:
        return name
    return ".".join(step for step in name.split(".") if step != COMPILED)


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
