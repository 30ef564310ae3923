"""`edl validate`: check files as `edl run` would, or as a cluster would."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from autoscaler.cli.arguments.place_options import on_option
from autoscaler.cli.arguments.place_selection import PLUGIN, PlaceKind
from autoscaler.cli.exit_codes import CommandError, Exit
from master.api.host.log_lines import escape_controls


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@on_option
@click.pass_context
def validate(context: click.Context, files: Sequence[Path], on: str | None) -> None:
    """Check job files as `edl run` would, and start nothing.  All errors are printed together.

    With --on kubernetes, or as `kubectl edl validate`, the rules of a cluster apply; no cluster is contacted.

    \b
    edl validate examples/digits.yaml examples/web.yaml
    edl validate --on kubernetes examples/kubernetes/digits.yaml
    """  # noqa: D301 - click keeps the lines after this mark as they are
    from autoscaler.manifests import InvalidManifestError  # noqa: PLC0415 - pydantic is not for --help

    is_plugin = context.find_root().info_name == PLUGIN
    kind = on or (PlaceKind.KUBERNETES if is_plugin else PlaceKind.LOCAL)
    try:
        valid, notices = _validate_for_cluster(files) if kind == PlaceKind.KUBERNETES else _validate_for_run(files)
    except InvalidManifestError as error:
        raise CommandError(Exit.REFUSED, str(error)) from None
    for notice in notices:
        print(escape_controls(f"notice: {notice}"), file=sys.stderr)
    for name in valid:
        print(escape_controls(f"{name} is valid"))


def _validate_for_cluster(files: Sequence[Path]) -> tuple[list[str], Sequence[str]]:
    """TYPE/NAME of everything valid, and notices.  Raises InvalidManifestError."""
    from autoscaler.cli.kubernetes.validation import validate_files  # noqa: PLC0415 - not for --help

    found = validate_files(files)
    return [f"tj/{name}" for name in found.jobs], found.notices


def _validate_for_run(files: Sequence[Path]) -> tuple[list[str], Sequence[str]]:
    from autoscaler.manifests import parse_files  # noqa: PLC0415 - pydantic is not for --help

    manifests = parse_files(files)
    names = [f"tj/{job.name}" for job in manifests.jobs]
    names += [f"deployment/{deployment.name}" for deployment in manifests.deployments]
    names += [f"priorityclass/{one.name}" for one in manifests.classes]
    names += [f"node/{node.name}" for node in manifests.nodes]
    return names, manifests.notices
