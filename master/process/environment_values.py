"""Values read from environment variables: required texts, whole numbers, seconds, files.

Each raises InvalidSettingError, naming the variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from master.errors import InvalidSettingError

MOST_WHOLE: Final = 2**31 - 1  # of a whole number, as in a job's YAML


def required(environ: Mapping[str, str], variable: str, *, hint: str) -> str:
    value = environ.get(variable, "")
    if not value:
        raise InvalidSettingError(variable, "is not set", hint=hint)
    return value


def whole_number(environ: Mapping[str, str], variable: str, *, default: int, least: int, most: int = MOST_WHOLE) -> int:
    text = environ.get(variable) or str(default)
    is_whole = text.isascii() and text.isdigit() and len(text) <= len(str(MOST_WHOLE))
    if not (is_whole and least <= int(text) <= most):
        problem = f"{text[:40]!r} is not an integer from {least} to {most}"
        raise InvalidSettingError(variable, problem, hint="Write digits only")
    return int(text)


def seconds(environ: Mapping[str, str], variable: str, *, default: float) -> float:
    text = environ.get(variable) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < 1e9:
        raise InvalidSettingError(variable, f"{text!r} is not a time in seconds", hint="Write a number above 0")
    return value


def read_file(environ: Mapping[str, str], variable: str) -> bytes:
    path = Path(environ[variable])
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidSettingError(variable, f"{path}: {error.strerror}", hint="Name a readable file") from error
