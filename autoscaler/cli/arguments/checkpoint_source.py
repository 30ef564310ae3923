"""The argument that names a checkpoint folder: its path or URI, or the job whose folder it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from autoscaler.cli.arguments.options import complete_target
from autoscaler.cli.arguments.place_selection import PlaceSelector

F = TypeVar("F", bound=Callable[..., Any])


def checkpoint_argument(command: F) -> F:
    """Add URI|tj/NAME, completed from the place's jobs; the command gets it as `checkpoint`."""
    return click.argument("checkpoint", metavar="URI|tj/NAME", shell_complete=complete_target)(command)


def find_uri(checkpoint: str, selector: PlaceSelector) -> str:
    """The folder's URI.  Raises CommandError if there is no such job."""
    if not checkpoint.startswith("tj/"):
        return checkpoint
    with selector.open() as place:
        return place.checkpoint_uri(checkpoint.removeprefix("tj/"))
