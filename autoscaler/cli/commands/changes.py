"""`edl scale`, `drain`, `uncordon`, `suspend`, `resume`, `keep` and `delete`: the commands that change objects."""

from __future__ import annotations

from typing import Final

import click

from autoscaler.cli.arguments.options import role_options, target_argument
from autoscaler.cli.arguments.parameter_types import Duration
from autoscaler.cli.arguments.place_options import place_options
from autoscaler.cli.arguments.place_selection import PlaceSelector
from autoscaler.cli.place_values import PodSelector, SizeRequest
from master.api.host.log_lines import escape_controls

LONGEST_KEEP_S: Final = 30 * 86_400.0
SHORTEST_KEEP_S: Final = 1.0  # annotations are in whole seconds


@click.command()
@target_argument("TYPE/NAME")
@click.option("--replicas", type=click.IntRange(min=0), default=None, help="Replicas of a deployment.")
@click.option("--trainers", type=click.IntRange(min=0), default=None, help="Trainers to pin a job to; 0: EDL decides.")
@click.option(
    "--servers", type=click.IntRange(min=0), default=None, help="Parameter servers to pin a job to; 0: EDL decides."
)
@click.option("--dry-run", "is_dry", is_flag=True, help="Check the request and change nothing.")
@place_options
def scale(*, kind: str, name: str, is_dry: bool, selector: PlaceSelector, **counts: int | None) -> None:
    """Set how many replicas a deployment has, or pin a job's trainers, servers or both.

    The newest size replaces an earlier one that is in progress; the output reports that.

    \b
    edl scale deployment/web --replicas 9
    edl scale tj/digits --trainers 4
    edl scale tj/digits --servers 3
    edl scale tj/digits --trainers 4 --servers 2
    edl scale tj/digits --servers 0
    """  # noqa: D301 - click keeps the lines after this mark as they are
    sizes = [SizeRequest(field=field, count=count) for field, count in counts.items() if count is not None]
    if not sizes:
        raise click.UsageError("give --replicas N for a deployment, or --trainers N, --servers N or both for a job")
    if len(sizes) > 1 and counts["replicas"] is not None:
        raise click.UsageError(
            "--replicas applies to a deployment, --trainers and --servers to a job: give one or the other"
        )
    with selector.open(changes=not is_dry) as place:
        print(escape_controls(place.scale(kind, name, sizes, is_dry=is_dry)))


@click.command()
@target_argument("TYPE/NAME")
@role_options
@click.option("--dry-run", "is_dry", is_flag=True, help="Check that the object exists and change nothing.")
@place_options
def drain(
    *, kind: str, name: str, role: str | None, ordinal: int | None, is_dry: bool, selector: PlaceSelector
) -> None:
    """Let a trainer finish its batch and leave, or empty a node.

    The planner fills the free capacity again; a drained trainer of a job at its minimum is replaced.  On a cluster
    only EDL's pods leave the node; `kubectl drain` evicts all pods.

    \b
    edl drain tj/digits --trainer 2
    edl drain node/node-1
    """  # noqa: D301 - click keeps the lines after this mark as they are
    with selector.open(changes=not is_dry) as place:
        print(escape_controls(place.drain(kind, name, PodSelector(role=role, ordinal=ordinal), is_dry=is_dry)))


@click.command()
@target_argument("node/NAME")
@place_options
def uncordon(*, kind: str, name: str, selector: PlaceSelector) -> None:
    """Open a drained node again.

    \b
    edl uncordon node/node-1
    """  # noqa: D301 - click keeps the lines after this mark as they are
    with selector.open(changes=True) as place:
        print(escape_controls(place.uncordon(kind, name)))


@click.command()
@target_argument("tj/NAME")
@place_options
def suspend(*, kind: str, name: str, selector: PlaceSelector) -> None:
    """Commit a checkpoint, then delete all pods of a job; the job stays.

    \b
    edl suspend tj/digits
    """  # noqa: D301 - click keeps the lines after this mark as they are
    with selector.open(changes=True) as place:
        print(escape_controls(place.set_suspended(kind, name, is_suspended=True)))


@click.command()
@target_argument("tj/NAME")
@place_options
def resume(*, kind: str, name: str, selector: PlaceSelector) -> None:
    """Let a suspended job start again, from its last checkpoint.

    \b
    edl resume tj/digits
    """  # noqa: D301 - click keeps the lines after this mark as they are
    with selector.open(changes=True) as place:
        print(escape_controls(place.set_suspended(kind, name, is_suspended=False)))


@click.command()
@click.argument("pod", metavar="pod/NAME")
@click.option(
    "--for", "for_s", type=Duration(), required=True, help="How long its GPUs are left alone, e.g. 2h; 0s: no longer."
)
@place_options
def keep(*, pod: str, for_s: float, selector: PlaceSelector) -> None:
    """Keep a pod whose GPUs nobody uses: they are not given back until then.

    \b
    edl keep pod/alice-notebook-0 --for 2h
    """  # noqa: D301 - click keeps the lines after this mark as they are
    if for_s > LONGEST_KEEP_S:
        raise click.UsageError(f"--for is at most {LONGEST_KEEP_S / 3600:.0f}h; keep it again before that has passed")
    if 0 < for_s < SHORTEST_KEEP_S:
        raise click.UsageError(f"--for is {SHORTEST_KEEP_S:.0f}s at least, or 0s: keep it no longer")
    kind, slash, name = pod.partition("/")
    if not slash:
        kind, name = "pod", pod
    if kind not in {"pod", "pods", "po"} or not name:
        raise click.UsageError(f"name the pod as pod/NAME, not {pod}: edl keep pod/alice-notebook-0 --for 2h")
    with selector.open(changes=True) as place:
        print(escape_controls(place.keep_pod(name, for_s)))


@click.command()
@target_argument("TYPE/NAME")
@click.option("--dry-run", "is_dry", is_flag=True, help="Check that the object exists and change nothing.")
@place_options
def delete(*, kind: str, name: str, is_dry: bool, selector: PlaceSelector) -> None:
    """Delete a job or a deployment with its pods, or delete one pod.

    \b
    edl delete tj/digits
    edl delete deployment/web --dry-run
    """  # noqa: D301 - click keeps the lines after this mark as they are
    with selector.open(changes=not is_dry) as place:
        print(escape_controls(place.delete(kind, name, is_dry=is_dry)))
