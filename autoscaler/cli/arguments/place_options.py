"""Options that select a place (--run, --on, --kubeconfig, --context, -n, -A), and their shell completion.

A command that is decorated with them gets a `selector` (`place_selection.PlaceSelector`).  For completion a cluster
has one second to answer; after a failure no names are offered.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from autoscaler.cli.arguments.place_selection import PlaceKind, PlaceSelector
from autoscaler.cli.exit_codes import CommandError

F = TypeVar("F", bound=Callable[..., Any])


def place_options(command: F) -> F:
    """Add --run, --on, --kubeconfig, --context and -n; the command gets them as `selector`."""
    return _with_options(command, _PLACE_OPTIONS)


def listing_place_options(command: F) -> F:
    """Add the place options and -A, for commands that list objects."""
    return _with_options(command, (*_PLACE_OPTIONS, _ALL_NAMESPACES_OPTION))


def parse_place_selector(params: dict[str, Any]) -> PlaceSelector:
    """Selector by a command's parameters; removes these from `params`."""
    return PlaceSelector(
        run=params.pop("run", None),
        on=params.pop("on", None),
        kubeconfig=params.pop("kubeconfig", None),
        context=params.pop("context", None),
        namespace=params.pop("namespace", None),
        is_all_namespaces=bool(params.pop("is_all_namespaces", False)),
    )


def complete_context(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Names of the kubeconfig's contexts."""
    from autoscaler.cli.kubernetes.kubeconfig import read_kubeconfig  # noqa: PLC0415 - not for runs

    try:
        known = read_kubeconfig(context.params.get("kubeconfig")).contexts
    except CommandError:
        return []
    return [name for name in known if name.startswith(incomplete)]


def complete_namespace(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Names of the cluster's namespaces."""
    from autoscaler.cli.kubernetes.name_completion import list_namespaces  # noqa: PLC0415 - not for runs

    params = context.params
    names = list_namespaces(params.get("kubeconfig"), params.get("context"))
    return [name for name in names if name.startswith(incomplete)]


def _with_options(command: F, options: tuple[Callable[[Any], Any], ...]) -> F:
    @wraps(command)
    def called(*args: Any, **params: Any) -> Any:
        selector = parse_place_selector(params)
        return command(*args, selector=selector, **params)

    decorated: Any = called
    for option in reversed(options):
        decorated = option(decorated)
    found: F = decorated
    return found


on_option: Final = click.option(  # click would offer a StrEnum's member names, in capitals
    "--on",
    type=click.Choice([kind.value for kind in PlaceKind]),
    default=None,
    help="Kind of place, where a live run and a cluster are both available.",
)
_PLACE_OPTIONS: Final = (
    click.option(
        "--run",
        "run",
        type=click.Path(path_type=Path),
        default=None,
        help="Folder of the run (default: $EDL_RUN, then the newest live run below ./runs, then a cluster).",
    ),
    on_option,
    click.option(
        "--kubeconfig",
        metavar="FILE",
        default=None,
        help="Kubeconfig file (default: $KUBECONFIG, then ~/.kube/config).",
    ),
    click.option(
        "--context",
        default=None,
        shell_complete=complete_context,
        help="Context of the kubeconfig (default: its current one).",
    ),
    click.option(
        "-n",
        "--namespace",
        default=None,
        shell_complete=complete_namespace,
        help="Namespace on the cluster (default: the context's).",
    ),
)
_ALL_NAMESPACES_OPTION: Final = click.option(
    "-A", "--all-namespaces", "is_all_namespaces", is_flag=True, help="List objects of all namespaces of the cluster."
)
