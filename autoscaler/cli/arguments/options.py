"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from autoscaler.cli.arguments.target_completion import complete_target

F = TypeVar("F", bound=Callable[..., Any])


def target_argument(shown: str) -> Callable[[F], F]:
    """TYPE/NAME or TYPE NAME, completed from what is there."""
    return click.argument("target", nargs=-1, required=True, metavar=shown, shell_complete=complete_target)


output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "yaml", "name"]),
    default="table",
    help="How to print it.",
)


def role_options(command: F) -> F:
    """--trainer N, --server N, --master: which pod of a job is meant (`role`, `ordinal`)."""

    def choose(role: str, has_number: bool) -> Callable[[click.Context, click.Parameter, Any], None]:
        def take(context: click.Context, _: click.Parameter, value: Any) -> None:
            if value is None or value is False:
                context.params.setdefault("role", None)
                context.params.setdefault("ordinal", None)
                return
            if context.params.get("role") is not None:
                raise click.UsageError("choose one of --trainer, --server and --master")
            context.params["role"] = role
            context.params["ordinal"] = value if has_number else None

        return take

    number = click.IntRange(min=0)
    for role in ("server", "trainer"):
        option = click.option(
            f"--{role}",
            type=number,
            expose_value=False,
            callback=choose(role, True),
            help=f"The job's {role} of this number.",
        )
        command = option(command)
    return click.option(
        "--master", is_flag=True, expose_value=False, callback=choose("master", False), help="The job's master."
    )(command)
