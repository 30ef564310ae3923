"""`edl data`: audit and verify the checkpoints of a job or of a folder."""

from __future__ import annotations

import json
import time

import click

from autoscaler.cli.arguments.checkpoint_source import checkpoint_argument, find_uri
from autoscaler.cli.arguments.options import json_option
from autoscaler.cli.arguments.parameter_types import Duration
from autoscaler.cli.arguments.place_options import place_options
from autoscaler.cli.arguments.place_selection import PlaceSelector
from autoscaler.cli.commands.export import run_exporter
from autoscaler.cli.exit_codes import CommandError, Exit
from master.api.host.log_lines import escape_controls
from master.api.host.progress_lines import ProgressLines


@click.group()
def data() -> None:
    """Audit and verify checkpoints."""


@data.command(short_help="Print the samples of a checkpoint, and check its files.")
@checkpoint_argument
@click.option("--no-files", is_flag=True, help="Trust the manifest; do not read the files.")
@click.option("--replicas", is_flag=True, help="Compare the replicas of a group that trains; read no checkpoint.")
@click.option(
    "--timeout", "budget_s", type=Duration(), default="60s", show_default=True, help="Longest wait for --replicas."
)
@json_option("one object")
@place_options
def audit(
    *, checkpoint: str, no_files: bool, replicas: bool, budget_s: float, is_json: bool, selector: PlaceSelector
) -> None:
    """Print which samples a checkpoint contains, and whether its files are intact.

    For each epoch: how many samples are trained, quarantined and missing.  Of a group also its step, the id of its
    state, what it has skipped, and the digest of its replica's arrays.

    \b
    edl data audit runs/20260102-150405-digits/checkpoints/digits
    edl data audit tj/digits
    edl data audit tj/digits --replicas
    """  # noqa: D301 - click keeps the lines after this mark as they are
    if replicas:
        _audit_replicas(checkpoint, budget_s, is_json=is_json, selector=selector)
        return
    from autoscaler.cli.output.checkpoint_report import audit_content, audit_lines  # noqa: PLC0415 - fsspec is not for --help
    from master.api.checkpoints.audit import read_checkpoint  # noqa: PLC0415 - with it
    from master.api.errors import ContractError  # noqa: PLC0415 - with it

    uri = find_uri(checkpoint, selector)
    try:
        found = read_checkpoint(uri, verifies_files=not no_files)
    except ContractError as error:
        raise CommandError(Exit.NOT_FOUND, str(error)) from None
    except OSError as error:
        raise CommandError(Exit.NOT_FOUND, f"{uri} cannot be read: {error}") from None
    digest = _read_digest(uri, found.head.id) if found.head.state and found.files and found.is_sound else None
    if is_json:
        print(json.dumps(audit_content(found, digest), indent=2))
    else:
        print(escape_controls("\n".join(audit_lines(found, digest))))
    if not found.is_sound:
        raise CommandError(Exit.FAILED, f"{uri} is damaged")


def _audit_replicas(job: str, budget_s: float, *, is_json: bool, selector: PlaceSelector) -> None:
    """Exit code 1: they differ, so the job has failed; 3: nothing is compared yet."""
    if not job.startswith("tj/"):
        raise click.UsageError("--replicas compares those of a job that runs: name it as tj/NAME")
    with selector.open(changes=True) as place:
        found = place.compare_replicas(job.removeprefix("tj/"), budget_s=budget_s)
    print(json.dumps(found.content, indent=2) if is_json else escape_controls(found.line))
    if found.problem:
        raise CommandError(Exit.FAILED, f"{job} has failed")
    if not found.trainers:
        raise CommandError(Exit.NOT_FOUND, f"{job}: no replicas are compared yet")


@data.command(short_help="Read every byte of a checkpoint folder.")
@checkpoint_argument
@json_option("one object")
@place_options
def verify(*, checkpoint: str, is_json: bool, selector: PlaceSelector) -> None:
    """Read every byte of a checkpoint folder and print which checkpoints are intact.

    A job can resume from an intact one.  Exit code 1: something is damaged; 3: there is no checkpoint.

    \b
    edl data verify runs/20260102-150405-digits/checkpoints/digits
    edl data verify tj/digits -o json
    """  # noqa: D301 - click keeps the lines after this mark as they are
    from autoscaler.cli.output.checkpoint_report import verdict_content, verdict_lines  # noqa: PLC0415 - fsspec: not for --help
    from master.api.checkpoints.storage import open_storage  # noqa: PLC0415 - with it
    from master.api.checkpoints.verification import verify_folder  # noqa: PLC0415 - with it
    from master.api.errors import ContractError  # noqa: PLC0415 - with it

    uri = find_uri(checkpoint, selector)
    try:
        found = verify_folder(open_storage(uri), on_progress=ProgressLines("read"))
    except (ContractError, OSError) as error:
        raise CommandError(Exit.FAILED, f"{uri} cannot be read: {error}") from None
    if found.is_empty:
        raise CommandError(Exit.NOT_FOUND, f"{uri} contains no checkpoint")
    print(
        json.dumps(verdict_content(found), indent=2)
        if is_json
        else escape_controls("\n".join(verdict_lines(found, now_s=time.time())))
    )
    if not found.is_intact:
        raise CommandError(Exit.FAILED, f"{uri} is damaged")


def _read_digest(uri: str, checkpoint: str) -> str:
    """Digest of a group's replica, by the process that knows the inside of its file."""
    listed = run_exporter(["--list", "--digest", "--json", "--checkpoint", checkpoint, "--", uri], captures=True)
    if listed.returncode:  # it has said why
        raise CommandError(Exit.FAILED, f"the replica of checkpoint {checkpoint} cannot be read")
    return str(json.loads(listed.stdout)["digest"])
