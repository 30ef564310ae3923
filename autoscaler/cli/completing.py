"""What the shell offers behind <tab>: the things of the live run, as TYPE/NAME."""

from __future__ import annotations

from typing import Final

import click

from autoscaler.cli.client import ask
from autoscaler.cli.exits import CommandError
from autoscaler.cli.words import find_run

COMPLETION_VARIABLE: Final = "_EDL_COMPLETE"
_TYPES: Final = ("tj", "deployment", "node", "pod")


def complete_target(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """TYPE/NAME of everything there that begins so; nothing when no run is live."""
    kind, slash, _name = incomplete.partition("/")
    try:
        folder = find_run(context.params.get("run"), is_quiet=True)
        names = [
            f"{known}/{found['metadata']['name']}"
            for known in _TYPES
            if known == kind or (not slash and known.startswith(kind))
            for found in ask(folder, "get", type=known)
        ]
    except CommandError:
        return []
    return [name for name in names if name.startswith(incomplete)]
