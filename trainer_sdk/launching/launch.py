"""`edl.launch`: check the function and what it is given, and start the job."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainer_sdk.errors import UsageError
from trainer_sdk.launching.function_reference import refer_to
from trainer_sdk.launching.job_handle import JobHandle
from trainer_sdk.launching.json_values import check_json
from trainer_sdk.launching.launch_process import LaunchProcess


def launch_function(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    trainers: int | tuple[int, int] | None,
    sizes: Sequence[int] | None,
    group: bool | None,
    servers: int | tuple[int, int] | None,
    name: str | None,
    env: Mapping[str, str],
    options: Mapping[str, object],
    has_etcd: bool,
) -> JobHandle:
    """The handle of the started job.  `options`: of `edl launch`, None where its default holds.  Raises UsageError."""
    if os.environ.get("EDL_MASTER"):
        raise UsageError("launch was called within a trainer: put the call under if __name__ == '__main__':")
    reference = refer_to(function)
    given, named = _arguments(args, kwargs)
    check_json(given, "args")
    check_json(named, "kwargs")
    words = [] if trainers is None else ["--trainers", _range("trainers", trainers)]
    words += [] if servers is None else ["--servers", _range("servers", servers)]
    words += [] if sizes is None else ["--sizes", _listed(sizes)]
    words += [] if group is None else ["--group" if group else "--no-group"]
    for option, value in options.items():
        words += [] if value is None else [f"--{option.replace('_', '-')}", str(value)]
    if not isinstance(env, Mapping):
        raise UsageError(f"launch: env is {env!r}; write texts by name, {{'LOG_LEVEL': 'debug'}}")
    variables = {variable: str(text) for variable, text in env.items()}
    for variable, text in variables.items():
        if not variable.isidentifier() or "\0" in text:
            raise UsageError(f"launch: env has {variable!r}: a name has no space and no =, a value no zero byte")
        words += ["--env", variable]  # every user can read a command line, so it has no values
    words += [] if has_etcd else ["--no-etcd"]
    _check_arguments(function, given, named)
    job = name or re.sub(r"[^a-z0-9]+", "-", function.__name__.lower()).strip("-") or "function"
    return JobHandle(job, LaunchProcess(job, reference, given, named, words, variables=variables))


def _arguments(args: object, kwargs: object) -> tuple[list[Any], dict[str, Any]]:
    """What the function is called with.  Raises UsageError."""
    if isinstance(args, str) or not isinstance(args, Sequence):
        raise UsageError(f"launch: args is {args!r:.80}; write a list or a tuple, args=[0.1]")
    if not isinstance(kwargs, Mapping):
        raise UsageError(f"launch: kwargs is {kwargs!r:.80}; write arguments by name, kwargs={{'rate': 0.1}}")
    return list(args), dict(kwargs)


def _check_arguments(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> None:
    """Raises UsageError for a call that could only fail, which trainers would tell after their starts."""
    try:
        inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
    except TypeError as error:
        raise UsageError(f"launch: {function.__qualname__} cannot take these args and kwargs: {error}") from None


def _listed(sizes: object) -> str:
    if isinstance(sizes, str) or not isinstance(sizes, Sequence) or not sizes:
        raise UsageError(f"launch: sizes is {sizes!r:.80}; write the numbers that are allowed, [1, 2, 4, 8]")
    return ",".join(map(str, sizes))


def _range(name: str, count: object) -> str:
    match count:
        case bool():
            pass
        case int():
            return str(count)
        case (int(least), int(most)):
            return f"{least}:{most}"
        case _:
            pass
    raise UsageError(f"launch: {name} is {count!r}; write 4, or (1, 8) for 1 to 8")
