"""Arguments and results of a launched function: values that JSON keeps as they are.  Pure.

What JSON would change (a tuple becomes a list, a key 1 becomes "1") is refused and not converted, so that a function
gets in a trainer what it would have got here.
"""

from __future__ import annotations

import math
from typing import Any

from trainer_sdk.errors import UsageError

MOST_DEPTH = 100


def check_json(value: Any, path: str, *, depth: int = 0) -> None:
    """Raises UsageError, naming the place in the value, for what JSON does not keep."""
    if depth > MOST_DEPTH:
        raise UsageError(f"{path}: nested more than {MOST_DEPTH} deep; write it to a file and pass its path")
    match value:
        case None | bool() | str():
            return
        case int() | float():
            if isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"{path}: {value} is no JSON number; pass None, or a text, in its place")
        case list():
            for number, item in enumerate(value):
                check_json(item, f"{path}[{number}]", depth=depth + 1)
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise UsageError(f"{path}: the key {key!r} is not text; JSON has no other keys")
                check_json(item, f"{path}[{key!r}]", depth=depth + 1)
        case _:
            raise UsageError(
                f"{path}: a {type(value).__name__} is not a JSON value (None, bool, int, float, str, list, dict); "
                "convert it, or write it to a file and pass its path"
            )
