"""Commands that change a live run: scale, drain, uncordon, suspend, resume, delete."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from autoscaler.cli.client import ask
from autoscaler.cli.options import role_options, run_option, target_argument
from autoscaler.cli.words import find_run, split_target


@click.command()
@target_argument("TYPE/NAME")
@click.option("--replicas", type=click.IntRange(min=0), default=None, help="Of a deployment.")
@click.option("--trainers", type=click.IntRange(min=0), default=None, help="Pins a job to this size; 0: EDL decides.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Check it and change nothing.")
@run_option
def scale(target: Sequence[str], replicas: int | None, trainers: int | None, is_dry: bool, run: Path | None) -> None:
    """Set how many replicas a deployment has, or pin a job's size.

    \b
    edl scale deployment/web --replicas 6
    edl scale tj/digits --trainers 4
    edl scale tj/digits --trainers 0
    """  # noqa: D301 - click keeps the lines after this mark as they are
    kind, name = split_target(target, needs_name=True)
    if (replicas is None) == (trainers is None):
        raise click.UsageError("say --replicas N for a deployment, or --trainers N for a job")
    done = ask(find_run(run), "scale", type=kind, name=name, replicas=replicas, trainers=trainers, dry_run=is_dry)
    print(f"{done['scaled']} scaled to {done['to']}" + (" (dry run)" if is_dry else ""))


@click.command()
@target_argument("TYPE/NAME")
@role_options
@click.option("--dry-run", "is_dry", is_flag=True, help="Check that it is there and change nothing.")
@run_option
def drain(*, target: Sequence[str], role: str | None, ordinal: int | None, is_dry: bool, run: Path | None) -> None:
    """Let a trainer finish its batch and leave, or empty a node.

    The planner fills the room as it sees fit; a drained trainer of a job at its minimum is replaced.

    \b
    edl drain tj/digits --trainer 2
    edl drain node/node-1
    """  # noqa: D301 - click keeps the lines after this mark as they are
    kind, name = split_target(target, needs_name=True)
    done = ask(find_run(run), "drain", type=kind, name=name, role=role, ordinal=ordinal, dry_run=is_dry)["drained"]
    print(f"{done} would be drained (dry run)" if is_dry else f"{done} is draining")


@click.command()
@target_argument("node/NAME")
@run_option
def uncordon(target: Sequence[str], run: Path | None) -> None:
    """Open a drained node again.

    \b
    edl uncordon node/node-1
    """  # noqa: D301 - click keeps the lines after this mark as they are
    kind, name = split_target(target, needs_name=True)
    print(f"{ask(find_run(run), 'uncordon', type=kind, name=name)['uncordoned']} is open")


@click.command()
@target_argument("tj/NAME")
@run_option
def suspend(target: Sequence[str], run: Path | None) -> None:
    """Take all pods of a job away and keep the job.

    \b
    edl suspend tj/digits
    """  # noqa: D301 - click keeps the lines after this mark as they are
    kind, name = split_target(target, needs_name=True)
    print(f"{ask(find_run(run), 'suspend', type=kind, name=name, on=True)['suspended']} suspended")


@click.command()
@target_argument("tj/NAME")
@run_option
def resume(target: Sequence[str], run: Path | None) -> None:
    """Let a suspended job start again, from its last checkpoint.

    \b
    edl resume tj/digits
    """  # noqa: D301 - click keeps the lines after this mark as they are
    kind, name = split_target(target, needs_name=True)
    print(f"{ask(find_run(run), 'suspend', type=kind, name=name, on=False)['resumed']} resumed")


@click.command()
@target_argument("TYPE/NAME")
@click.option("--dry-run", "is_dry", is_flag=True, help="Check that it is there and change nothing.")
@run_option
def delete(target: Sequence[str], is_dry: bool, run: Path | None) -> None:
    """Stop a job or a deployment and forget it, or let one pod leave.

    \b
    edl delete tj/digits
    edl delete deployment/web --dry-run
    """  # noqa: D301 - click keeps the lines after this mark as they are
    kind, name = split_target(target, needs_name=True)
    folder = find_run(run)
    if is_dry:
        ask(folder, "get", type=kind, name=name)
        print(f"{kind}/{name} would be deleted (dry run)")
        return
    print(f"{ask(folder, 'delete', type=kind, name=name)['deleted']} is being deleted")
