"""Reference to the function that trainers run: by name, never by its pickled code.

A function of a module is imported; one of the script that was started is taken from its file, run under the name GUARD,
so that what stands under `if __name__ == "__main__"` stays out; one of a notebook's cell has no file, so its source is
written to one, with the imports and the functions of the notebook that it uses.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from trainer_sdk.errors import UsageError

GUARD: Final = "__edl_launch__"
_MAIN: Final = "__main__"
_NOT_RUN: Final = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_FUTURE: Final = "from __future__ import annotations\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionReference:
    """A function by its qualified name in a module (`module`), a file (`file`), or the text of one (`source`)."""

    qualname: str
    module: str = ""
    file: str = ""
    source: str = ""


def refer_to(function: Callable[..., Any]) -> FunctionReference:
    """The reference of this function.  Raises UsageError for one that another process could not find."""
    inner = inspect.unwrap(function)
    if not isinstance(function, FunctionType) or not isinstance(inner, FunctionType):
        raise UsageError(f"launch: {function!r} is not a function; define one with def and pass that")
    name = function.__qualname__
    if function.__code__.co_flags & _NOT_RUN:
        raise UsageError(
            f"launch: {name} is async or a generator, of which a call runs nothing; define a plain function"
        )
    if "<lambda>" in name:
        raise UsageError("launch: a lambda has no name by which a trainer could find it; define it with def")
    main = sys.modules[_MAIN]
    if function.__module__ != _MAIN:
        _check_found(function, sys.modules.get(function.__module__), function.__module__)
        return FunctionReference(qualname=name, module=function.__module__)
    if inner.__closure__:
        raise _captures(name, inner.__code__.co_freevars)
    if "<locals>" in name:
        raise UsageError(f"launch: {name} is defined within a function; define it at the top level of the script")
    spec = getattr(main, "__spec__", None)
    if spec is not None:  # python -m: its own name keeps relative imports
        _check_found(function, main, spec.name)
        return FunctionReference(qualname=name, module=spec.name)
    if (path := Path(inner.__code__.co_filename)).is_file():
        return FunctionReference(qualname=name, file=str(path.absolute()))
    if "." in name:
        raise UsageError(f"launch: {name} belongs to a class of the notebook; define a function at the top level")
    return FunctionReference(qualname=name, source=_FUTURE + "\n\n".join(_parts_of(name, function, {})))


def _check_found(function: Callable[..., Any], module: ModuleType | None, named: str) -> None:
    found: Any = module
    for step in function.__qualname__.split("."):
        found = getattr(found, step, None)
    if found is not function:
        hint = "define it at the top level of its module, under its own name"
        raise UsageError(f"launch: {named} has no {function.__qualname__} that is this function; {hint}")


def _captures(name: str, variables: tuple[str, ...]) -> UsageError:
    listed = ", ".join(variables)
    return UsageError(
        f"launch: {name} closes over {listed}, which a trainer does not have; pass that as an argument (args, kwargs)"
    )


def _parts_of(name: str, function: Callable[..., Any], taken: dict[str, None]) -> Iterator[str]:
    """Source of a cell's function, after that of all it uses.  `taken`: names that have their part already."""
    taken[name] = None
    inner = inspect.unwrap(function)
    assert isinstance(inner, FunctionType)
    if inner.__closure__:
        raise _captures(name, inner.__code__.co_freevars)
    try:
        source = textwrap.dedent(inspect.getsource(inner))
    except (OSError, TypeError):
        raise UsageError(f"launch: the source of {name} is not known here; put it into a file, and import it") from None
    variables = []
    for used in sorted(set(_globals_of(compile(_FUTURE + source, name, "exec"))) - taken.keys()):
        if used not in inner.__globals__:
            if not hasattr(builtins, used):
                raise UsageError(f"launch: {name} uses {used}, which is not defined here")
            continue
        value = inner.__globals__[used]
        if (line := _import_of(used, value)) is not None:
            taken[used] = None
            yield line
        elif isinstance(value, FunctionType) and value.__module__ == _MAIN and value.__name__ == used:
            yield from _parts_of(used, value, taken)
        else:
            variables.append(used)
    if variables:
        raise _captures(name, tuple(variables))
    yield source


def _globals_of(code: CodeType) -> Iterator[str]:
    """Global names that the code reads, in functions within it too, apart from those that it defines at its top."""
    defined = {step.argval for step in dis.get_instructions(code) if step.opname == "STORE_NAME"}
    for name in _reads_of(code):
        if name not in defined:
            yield name


def _reads_of(code: CodeType) -> Iterator[str]:
    for step in dis.get_instructions(code):
        if step.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
            yield str(step.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _reads_of(constant)


def _import_of(name: str, value: Any) -> str | None:
    """The statement that brings this name to another process; None if the value is of the notebook."""
    if isinstance(value, ModuleType):
        return f"import {value.__name__} as {name}" if value.__name__ != name else f"import {name}"
    module, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualname, str) or module == _MAIN or "." in qualname:
        return None
    is_found = getattr(sys.modules.get(module), qualname, None) is value
    return f"from {module} import {qualname} as {name}" if is_found else None
