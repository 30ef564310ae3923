"""What the shell offers behind <tab> for TYPE/NAME: the things that are there.

A cluster has one second to answer (`kubernetes.name_completion`); a failure offers nothing.
"""

from __future__ import annotations

from typing import Final

import click

from autoscaler.cli.arguments.place_selection import Side, choose, look_around, where_of
from autoscaler.cli.arguments.words import find_run
from autoscaler.cli.local.control_client import ask

_TYPES: Final = ("tj", "deployment", "node", "pod")


def complete_target(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """TYPE/NAME of everything there that begins so; nothing when no place can be asked."""
    kind, slash, _name = incomplete.partition("/")
    kinds = [known for known in _TYPES if known == kind or (not slash and known.startswith(kind))]
    where = where_of(dict(context.params))
    try:
        if choose(where, look_around(context)).side is Side.LOCAL:
            folder = find_run(where.run, is_quiet=True)
            names = [
                f"{known}/{found['metadata']['name']}" for known in kinds for found in ask(folder, "get", type=known)
            ]
        else:
            from autoscaler.cli.kubernetes.name_completion import offer_names  # noqa: PLC0415 - not for runs

            names = offer_names(where.kubeconfig, where.context, where.namespace, kinds)
    except click.ClickException:
        return []
    return [name for name in names if name.startswith(incomplete)]
