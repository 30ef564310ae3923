"""Exit codes of `edl`, which scripts may rely on, and the error that carries one."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final, TypeVar

import click

T = TypeVar("T")


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    TIMEOUT = 5
    INTERRUPTED = 130


EXIT_CODES_HELP: Final = """\b
Exit codes:
  0    done
  1    failed: a job, or EDL itself
  2    the command line is wrong
  3    not found: no such object, or no run
  4    refused: the file or the value is wrong, nothing was changed
  5    timed out
  130  stopped by Ctrl-C"""


class CommandError(click.ClickException):
    """Error of a command: ends it with this exit code and prints the message to standard error."""

    def __init__(self, code: Exit, message: str) -> None:
        super().__init__(message)
        self.code = code


def try_find(find: Callable[[], T]) -> T | None:
    """Result of `find`; None if it raises CommandError NOT_FOUND."""
    try:
        return find()
    except CommandError as error:
        if error.code is Exit.NOT_FOUND:
            return None
        raise
