"""Selection of the place that a command works on: a run on this machine, or a Kubernetes cluster.

Users of `edl run` must not find themselves in a cluster, nor the other way round (ADR 0153).  The first rule that
applies decides:

1. The command line: --run, or any of --context, --kubeconfig, --namespace, --all-namespaces, or --on.
2. `kubectl edl` means the cluster.
3. $EDL_ON, then $EDL_RUN.
4. A live run below ./runs.
5. A kubeconfig ($KUBECONFIG, ~/.kube/config), or the service account of this pod.  Where ./runs holds runs that are
   over, a command that changes something refuses until the command line says which place is meant.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.clusters.local.run_files.run_folder import RunFolder, find_runs
from master.api.host.log_lines import escape_controls

if TYPE_CHECKING:  # places are not for --help
    from autoscaler.cli.kubernetes.cluster_place import ClusterPlace

PLUGIN: Final = "kubectl edl"
RUNS: Final = Path("runs")
_OF_CLUSTERS: Final = "--context, --kubeconfig, -n and -A select a cluster"
_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


class PlaceKind(StrEnum):
    """The two kinds of places."""

    LOCAL = "local"
    KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceEnvironment:
    """Environment variables and files that decide where the command line names no place."""

    is_plugin: bool = False
    edl_on: str = ""  # $EDL_ON
    has_edl_run: bool = False  # $EDL_RUN
    has_live_run: bool = False
    has_runs: bool = False
    has_cluster: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceChoice:
    """The place that the rules chose.  `is_guess`: a cluster was chosen only because no run here is live."""

    kind: PlaceKind
    is_guess: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceSelector:
    """The options of a command line that name a place."""

    run: Path | None = None
    on: str | None = None
    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    is_all_namespaces: bool = False

    @property
    def has_cluster_options(self) -> bool:
        """True if an option is given that only a cluster has."""
        return any((self.kubeconfig, self.context, self.namespace, self.is_all_namespaces))

    @contextmanager
    def open(self, *, changes: bool = False) -> Iterator[ClusterPlace]:
        """The selected place.  `changes`: the command may change something there.  Raises CommandError."""
        choice = choose_place(self, observe_environment(click.get_current_context()))
        if choice.kind is PlaceKind.LOCAL:
            from autoscaler.cli.local.run_place import open_run  # noqa: PLC0415 - not for --help

            with open_run(find_run(self.run)) as run:
                yield run
            return
        from autoscaler.cli.kubernetes.cluster_place import open_cluster  # noqa: PLC0415 - not for --help, nor for runs

        with open_cluster(
            self.kubeconfig, self.context, self.namespace, is_all_namespaces=self.is_all_namespaces
        ) as place:
            if choice.is_guess and changes:
                hint = f"-n {place.namespace} or --on kubernetes means the cluster ({place.title}), --run DIR a run"
                raise CommandError(Exit.USAGE, f"no run is live below ./{RUNS}; choose a place: {hint}")
            if choice.is_guess and sys.stderr.isatty():
                print(escape_controls(f"edl: no run is live below ./{RUNS}; this is {place.title}"), file=sys.stderr)
            yield place


def choose_place(selector: PlaceSelector, environment: PlaceEnvironment) -> PlaceChoice:
    """Apply the rules of this module.  Raises click.UsageError where the command line contradicts itself."""
    if selector.run is not None and (selector.has_cluster_options or selector.on == PlaceKind.KUBERNETES):
        raise click.UsageError(f"--run names a run on this machine; {_OF_CLUSTERS}")
    if selector.on == PlaceKind.LOCAL and selector.has_cluster_options:
        raise click.UsageError(f"--on local means a run on this machine; {_OF_CLUSTERS}")
    if selector.run is not None:
        return PlaceChoice(kind=PlaceKind.LOCAL)
    if selector.has_cluster_options:
        return PlaceChoice(kind=PlaceKind.KUBERNETES)
    if kind := selector.on or (PlaceKind.KUBERNETES if environment.is_plugin else environment.edl_on):
        return PlaceChoice(kind=PlaceKind(kind))
    if environment.has_edl_run or environment.has_live_run or not environment.has_cluster:
        return PlaceChoice(kind=PlaceKind.LOCAL)
    return PlaceChoice(kind=PlaceKind.KUBERNETES, is_guess=environment.has_runs)


def observe_environment(context: click.Context) -> PlaceEnvironment:
    """The environment of this process and command.  Raises CommandError for an $EDL_ON of no known value."""
    edl_on = os.environ.get("EDL_ON", "")
    if edl_on and edl_on not in {*PlaceKind}:
        raise CommandError(Exit.USAGE, f"$EDL_ON is {edl_on!r}; it must be {' or '.join(PlaceKind)}")
    runs = list(find_runs(RUNS))
    return PlaceEnvironment(
        is_plugin=context.find_root().info_name == PLUGIN,
        edl_on=edl_on,
        has_edl_run=bool(os.environ.get("EDL_RUN")),
        has_live_run=any(folder.is_live() for folder in runs),
        has_runs=bool(runs),
        has_cluster=has_cluster(),
    )


def has_cluster() -> bool:
    """True if a kubeconfig or a pod's service account is at hand."""
    listed = os.environ.get("KUBECONFIG", "")
    paths = [Path(path) for path in listed.split(os.pathsep) if path] or [Path.home() / ".kube" / "config"]
    return any(path.is_file() for path in paths) or _SERVICE_ACCOUNT.is_file()


def find_run(folder: Path | None, *, is_quiet: bool = False) -> RunFolder:
    """The run of --run, else of $EDL_RUN, else the newest live one below ./runs.  Raises CommandError.

    Of several live runs the choice is printed to standard error, unless `is_quiet`.
    """
    folder = folder or (Path(os.environ["EDL_RUN"]) if os.environ.get("EDL_RUN") else None)
    if folder is not None:
        if not (folder / "run.json").is_file():
            raise CommandError(Exit.NOT_FOUND, f"{folder} is not a run folder: it has no run.json")
        return RunFolder(root=folder.absolute())
    runs = list(find_runs(RUNS))
    live = [folder for folder in runs if folder.is_live()]
    if len(live) > 1 and not is_quiet:
        names = ", ".join(folder.root.name for folder in live[1:])
        notice = f"edl: of {len(live)} live runs this is {live[0].root.name}; --run chooses ({names})"
        print(escape_controls(notice), file=sys.stderr)
    if live:
        return live[0]
    hint = "start one with edl run FILE, or name one with --run DIR; --kubeconfig names a cluster"
    over = f" ({runs[0].root} is over; its logs/ and checkpoints/ remain)" if runs else ""
    raise CommandError(Exit.NOT_FOUND, f"no run is live below ./{RUNS}{over}; {hint}")
