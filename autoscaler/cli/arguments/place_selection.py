"""Which place a command means: a run on this machine, or a Kubernetes cluster.

Whoever works with `edl run` must not find themselves in a cluster, nor the other way round (ADR 0153):

1. What the command line says: --run, or any of --context, --kubeconfig, --namespace, --all-namespaces, or --on.
2. `kubectl edl` means the cluster.
3. $EDL_ON, then $EDL_RUN.
4. A run that lives below ./runs.
5. A kubeconfig ($KUBECONFIG, ~/.kube/config), or the service account of this pod.  Where ./runs holds runs that are
   over, a command that changes something asks to be told (1).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from autoscaler.cli.arguments.place_options import complete_context, complete_namespace
from autoscaler.cli.arguments.words import RUNS, find_run
from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.cli.local.run_place import LocalRunPlace
from autoscaler.cli.places import Place
from autoscaler.clusters.local.folder import find_runs
from master.api.host.log_lines import at_rest

F = TypeVar("F", bound=Callable[..., Any])

PLUGIN: Final = "kubectl edl"
_OF_CLUSTERS: Final = "--context, --kubeconfig, -n and -A are of a cluster"
_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


class PlaceKind(StrEnum):
    """The two kinds of places."""

    LOCAL = "local"
    KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceEnvironment:
    """What stands around a command line that does not say where."""

    is_plugin: bool = False
    said: str = ""  # $EDL_ON
    names_run: bool = False  # $EDL_RUN
    has_live_run: bool = False
    has_runs: bool = False
    has_cluster: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceChoice:
    """`is_guess`: a cluster is meant only because no run is live, though there have been runs here."""

    kind: PlaceKind
    is_guess: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceSelector:
    """What a command line says."""

    run: Path | None = None
    on: str | None = None
    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    is_everywhere: bool = False

    @property
    def has_cluster_options(self) -> bool:
        """Whether it says something that only a cluster has."""
        return any((self.kubeconfig, self.context, self.namespace, self.is_everywhere))

    @contextmanager
    def open(self, *, changes: bool = False) -> Iterator[Place]:
        """The place that is meant.  `changes`: the command may change something there.  Raises CommandError."""
        choice = choose_place(self, observe_environment(click.get_current_context()))
        if choice.kind is PlaceKind.LOCAL:
            yield LocalRunPlace(find_run(self.run))
            return
        from autoscaler.cli.kubernetes.cluster_place import open_cluster  # noqa: PLC0415 - not for --help, nor for runs

        with open_cluster(self.kubeconfig, self.context, self.namespace, is_everywhere=self.is_everywhere) as place:
            if choice.is_guess and changes:
                hint = f"-n {place.namespace} or --on kubernetes means the cluster ({place.title}), --run DIR a run"
                raise CommandError(Exit.USAGE, f"no run is live below ./{RUNS}; say what is meant: {hint}")
            if choice.is_guess and sys.stderr.isatty():
                print(at_rest(f"edl: no run is live below ./{RUNS}; this is {place.title}"), file=sys.stderr)
            yield place


def choose_place(where: PlaceSelector, around: PlaceEnvironment) -> PlaceChoice:
    """The rule of the module.  Raises click.UsageError where the command line contradicts itself."""
    if where.run is not None and (where.has_cluster_options or where.on == PlaceKind.KUBERNETES):
        raise click.UsageError(f"--run names a run on this machine; {_OF_CLUSTERS}")
    if where.on == PlaceKind.LOCAL and where.has_cluster_options:
        raise click.UsageError(f"--on local means a run on this machine; {_OF_CLUSTERS}")
    if where.run is not None:
        return PlaceChoice(kind=PlaceKind.LOCAL)
    if where.has_cluster_options:
        return PlaceChoice(kind=PlaceKind.KUBERNETES)
    if said := where.on or (PlaceKind.KUBERNETES if around.is_plugin else around.said):
        return PlaceChoice(kind=PlaceKind(said))
    if around.names_run or around.has_live_run or not around.has_cluster:
        return PlaceChoice(kind=PlaceKind.LOCAL)
    return PlaceChoice(kind=PlaceKind.KUBERNETES, is_guess=around.has_runs)


def observe_environment(context: click.Context) -> PlaceEnvironment:
    """What stands around this process and the command.  Raises CommandError for an $EDL_ON that says nothing."""
    said = os.environ.get("EDL_ON", "")
    if said and said not in {*PlaceKind}:
        raise CommandError(Exit.USAGE, f"$EDL_ON is {said!r}; {' or '.join(PlaceKind)}")
    runs = list(find_runs(RUNS))
    return PlaceEnvironment(
        is_plugin=context.find_root().info_name == PLUGIN,
        said=said,
        names_run=bool(os.environ.get("EDL_RUN")),
        has_live_run=any(folder.is_live() for folder in runs),
        has_runs=bool(runs),
        has_cluster=has_cluster(),
    )


def has_cluster() -> bool:
    """Whether a kubeconfig or a pod's service account is at hand."""
    named = os.environ.get("KUBECONFIG", "")
    paths = [Path(path) for path in named.split(os.pathsep) if path] or [Path.home() / ".kube" / "config"]
    return any(path.is_file() for path in paths) or _SERVICE_ACCOUNT.is_file()


def place_options(command: F) -> F:
    """--run, --on, --kubeconfig, --context, -n: they arrive as `where`."""
    return _with_options(command, _EVERY_OPTION)


def listing_place_options(command: F) -> F:
    """The same and -A, for commands that list."""
    return _with_options(command, (*_EVERY_OPTION, _EVERYWHERE_OPTION))


def parse_place_selector(params: dict[str, Any]) -> PlaceSelector:
    """What the options of a command say, taken out of `params`."""
    return PlaceSelector(
        run=params.pop("run", None),
        on=params.pop("on", None),
        kubeconfig=params.pop("kubeconfig", None),
        context=params.pop("context", None),
        namespace=params.pop("namespace", None),
        is_everywhere=bool(params.pop("is_everywhere", False)),
    )


def _with_options(command: F, options: tuple[Callable[[Any], Any], ...]) -> F:
    @wraps(command)
    def called(*args: Any, **params: Any) -> Any:
        where = parse_place_selector(params)
        return command(*args, where=where, **params)

    decorated: Any = called
    for option in reversed(options):
        decorated = option(decorated)
    found: F = decorated
    return found


on_option: Final = click.option(  # of values: of members click would take the names, in capitals
    "--on",
    type=click.Choice([side.value for side in PlaceKind]),
    default=None,
    help="Which is meant, where both are there.",
)
_EVERY_OPTION: Final = (
    click.option(
        "--run",
        "run",
        type=click.Path(path_type=Path),
        default=None,
        help="The run's folder; else $EDL_RUN, else the newest live run below ./runs, else a cluster.",
    ),
    on_option,
    click.option("--kubeconfig", metavar="FILE", default=None, help="Else $KUBECONFIG, else ~/.kube/config."),
    click.option("--context", default=None, shell_complete=complete_context, help="Else the kubeconfig's current."),
    click.option(
        "-n", "--namespace", default=None, shell_complete=complete_namespace, help="Of the cluster; else the context's."
    ),
)
_EVERYWHERE_OPTION: Final = click.option(
    "-A", "--all-namespaces", "is_everywhere", is_flag=True, help="Of all namespaces of the cluster."
)
