"""Arguments and options that several commands share, and the shell completion of TYPE/NAME.

For completion a cluster has one second to answer (`kubernetes.name_completion`); after a failure no names are
offered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from autoscaler.cli.arguments.parameter_types import split_target
from autoscaler.cli.arguments.place_options import parse_place_selector
from autoscaler.cli.arguments.place_selection import PlaceKind, choose_place, find_run, observe_environment

F = TypeVar("F", bound=Callable[..., Any])

_TYPES: Final = ("tj", "deployment", "node", "pod")
_GPUS: Final = "gpus"  # have the names of nodes: offered to who has written it


def target_argument(metavar: str, *, needs_name: bool = True) -> Callable[[F], F]:
    """TYPE/NAME or TYPE NAME, completed from the objects of the place; the command gets `kind` and `name`."""

    def store(context: click.Context, _: click.Parameter, words: Sequence[str]) -> None:
        context.params["kind"], context.params["name"] = split_target(words, needs_name=needs_name)

    return click.argument(
        "target",
        nargs=-1,
        required=True,
        metavar=metavar,
        shell_complete=complete_target,
        expose_value=False,
        callback=store,
    )


def complete_target(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """TYPE/NAME of every object that begins so; nothing if no place answers."""
    kind, slash, _name = incomplete.partition("/")
    kinds = [known for known in _TYPES if known == kind or (not slash and known.startswith(kind))]
    if kind == _GPUS:
        kinds = [_GPUS]
    selector = parse_place_selector(dict(context.params))
    try:
        if choose_place(selector, observe_environment(context)).kind is PlaceKind.LOCAL:
            from autoscaler.cli.local import run_place  # noqa: PLC0415 - not for --help

            names = run_place.list_names(find_run(selector.run, is_quiet=True), kinds)
        else:
            from autoscaler.cli.kubernetes.name_completion import list_names  # noqa: PLC0415 - not for runs

            names = list_names(selector.kubeconfig, selector.context, selector.namespace, kinds)
    except click.ClickException:
        return []
    return [name for name in names if name.startswith(incomplete)]


output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "yaml", "name"]),
    default="table",
    help="Output format.",
)


def json_option(what: str) -> Callable[[F], F]:
    """-o text|json; the command gets `is_json`.  --json, its older name, is not shown."""

    def add(command: F) -> F:
        def store(context: click.Context, _: click.Parameter, value: Any) -> None:
            context.params["is_json"] = context.params.get("is_json", False) or value in {True, "json"}

        older = click.option("--json", is_flag=True, hidden=True, expose_value=False, callback=store)
        chosen = click.option(
            "-o",
            "--output",
            type=click.Choice(["text", "json"]),
            default="text",
            expose_value=False,
            callback=store,
            help=f"Output format; json: {what}.",
        )
        return chosen(older(command))

    return add


def role_options(command: F) -> F:
    """Add --trainer N, --server N and --master, which select a pod of a job (`role`, `ordinal`)."""

    def store(role: str, has_number: bool) -> Callable[[click.Context, click.Parameter, Any], None]:
        def handle_option(context: click.Context, _: click.Parameter, value: Any) -> None:
            if value is None or value is False:
                context.params.setdefault("role", None)
                context.params.setdefault("ordinal", None)
                return
            if context.params.get("role") is not None:
                raise click.UsageError("choose one of --trainer, --server and --master")
            context.params["role"] = role
            context.params["ordinal"] = value if has_number else None

        return handle_option

    number = click.IntRange(min=0)
    for role in ("server", "trainer"):
        option = click.option(
            f"--{role}",
            type=number,
            expose_value=False,
            callback=store(role, True),
            help=f"The job's {role} of this number.",
        )
        command = option(command)
    return click.option(
        "--master", is_flag=True, expose_value=False, callback=store("master", False), help="The job's master."
    )(command)


def page_options(command: F) -> F:
    """--page, --no-page and --page-port; the command gets `is_page` (None: not said) and `page_port`."""
    port = click.option(
        "--page-port", type=click.IntRange(0, 65535), default=None, help="Port of the page (default: a free one)."
    )
    shown = click.option(
        "--page/--no-page",
        "is_page",
        default=None,
        help="Serve the page on this machine alone, and print its address (default: where a terminal is attached).",
    )
    return shown(port(command))
