"""What the shell offers behind <tab> for TYPE/NAME: the things that are there.

A cluster has one second to answer (`kubernetes.name_completion`); a failure offers nothing.
"""

from __future__ import annotations

from typing import Final

import click

from autoscaler.cli.arguments.place_selection import PlaceKind, choose_place, observe_environment, parse_place_selector
from autoscaler.cli.arguments.words import find_run
from autoscaler.cli.local.control_client import request

_TYPES: Final = ("tj", "deployment", "node", "pod")


def complete_target(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """TYPE/NAME of everything there that begins so; nothing when no place can be asked."""
    kind, slash, _name = incomplete.partition("/")
    kinds = [known for known in _TYPES if known == kind or (not slash and known.startswith(kind))]
    where = parse_place_selector(dict(context.params))
    try:
        if choose_place(where, observe_environment(context)).kind is PlaceKind.LOCAL:
            folder = find_run(where.run, is_quiet=True)
            names = [
                f"{known}/{found['metadata']['name']}"
                for known in kinds
                for found in request(folder, "get", type=known)
            ]
        else:
            from autoscaler.cli.kubernetes.name_completion import list_names  # noqa: PLC0415 - not for runs

            names = list_names(where.kubeconfig, where.context, where.namespace, kinds)
    except click.ClickException:
        return []
    return [name for name in names if name.startswith(incomplete)]
