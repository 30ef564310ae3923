"""Commands about files: validate, data audit, and what the shell and bug reports need: completion, version."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Final, TextIO

import click

from autoscaler.cli.arguments.place_options import COMPLETION_VARIABLE
from autoscaler.cli.arguments.place_selection import PLUGIN, PlaceKind, PlaceSelector, on_option, place_options
from autoscaler.cli.arguments.target_completion import complete_target
from autoscaler.cli.exit_codes import CommandError, Exit
from master.api.host.log_lines import at_rest

_TELL_AFTER_S: Final = 2.0
_SHOWN: Final = ("edl", "grpcio", "protobuf", "numpy", "click", "rich", "pydantic")


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@on_option
@click.pass_context
def validate(context: click.Context, files: Sequence[Path], on: str | None) -> None:
    """Check job files as `edl run` would, and start nothing.  Everything that is wrong is said at once.

    With --on kubernetes, and as `kubectl edl validate`: as a cluster would, which is not asked.

    \b
    edl validate examples/digits.yaml examples/web.yaml
    edl validate --on kubernetes examples/kubernetes/digits.yaml
    """  # noqa: D301 - click keeps the lines after this mark as they are
    is_plugin = context.find_root().info_name == PLUGIN
    if (on or (PlaceKind.KUBERNETES if is_plugin else PlaceKind.LOCAL)) == PlaceKind.KUBERNETES:
        _validate_for_cluster(files)
    else:
        _validate_for_run(files)


def _validate_for_cluster(files: Sequence[Path]) -> None:
    from autoscaler.cli.kubernetes.validation import validate_files  # noqa: PLC0415 - not for --help
    from autoscaler.manifests import InvalidManifestError  # noqa: PLC0415 - likewise

    try:
        judged = validate_files(files)
    except InvalidManifestError as error:
        raise CommandError(Exit.REFUSED, str(error)) from None
    for notice in judged.notices:
        print(at_rest(f"notice: {notice}"), file=sys.stderr)
    for name in judged.jobs:
        print(at_rest(f"tj/{name} is valid"))


def _validate_for_run(files: Sequence[Path]) -> None:
    from autoscaler.manifests import InvalidManifestError, parse_files  # noqa: PLC0415 - pydantic is not for --help

    try:
        manifests = parse_files(files)
    except InvalidManifestError as error:
        raise CommandError(Exit.REFUSED, str(error)) from None
    for notice in manifests.notices:
        print(at_rest(f"notice: {notice}"), file=sys.stderr)
    kinds = (("tj", manifests.jobs), ("deployment", manifests.deployments), ("priorityclass", manifests.classes))
    for kind, found in kinds:
        for item in found:
            print(at_rest(f"{kind}/{item.name} is valid"))
    for machine in manifests.nodes:
        print(at_rest(f"node/{machine.name} is valid"))


@click.group()
def data() -> None:
    """Look into checkpoints."""


@data.command()
@click.argument("checkpoint", metavar="URI|tj/NAME", shell_complete=complete_target)
@click.option("--no-files", is_flag=True, help="Believe the manifest and do not read the files again.")
@click.option("--json", "is_json", is_flag=True, help="One JSON object.")
@place_options
def audit(*, checkpoint: str, no_files: bool, is_json: bool, where: PlaceSelector) -> None:
    """Say which samples a checkpoint holds: per epoch trained, quarantined, missing; and whether its files are whole.

    \b
    edl data audit runs/20260102-150405-digits/checkpoints/digits
    edl data audit tj/digits
    """  # noqa: D301 - click keeps the lines after this mark as they are
    from autoscaler.cli.output.checkpoint_report import audit_content, audit_lines  # noqa: PLC0415 - fsspec is not for --help
    from master.api.checkpoints.audit import read_checkpoint  # noqa: PLC0415 - with it
    from master.api.errors import ContractError  # noqa: PLC0415 - with it

    uri = _uri_of(checkpoint, where)
    try:
        found = read_checkpoint(uri, verifies_files=not no_files)
    except ContractError as error:
        raise CommandError(Exit.NOT_FOUND, str(error)) from None
    except OSError as error:
        raise CommandError(Exit.NOT_FOUND, f"{uri} cannot be read: {error}") from None
    if is_json:
        print(json.dumps(audit_content(found), indent=2))
    else:
        print(at_rest("\n".join(audit_lines(found))))
    if not found.is_sound:
        raise CommandError(Exit.FAILED, f"{uri} is not sound")


@data.command()
@click.argument("checkpoint", metavar="URI|tj/NAME", shell_complete=complete_target)
@click.option("--json", "is_json", is_flag=True, help="One JSON object.")
@place_options
def verify(*, checkpoint: str, is_json: bool, where: PlaceSelector) -> None:
    """Read every byte of a checkpoint folder and say what of it is whole: what a job could go on from.

    Exit code 1: something is not whole; 3: there is no checkpoint.

    \b
    edl data verify runs/20260102-150405-digits/checkpoints/digits
    edl data verify tj/digits --json
    """  # noqa: D301 - click keeps the lines after this mark as they are
    from autoscaler.cli.output.checkpoint_report import verdict_content, verdict_lines  # noqa: PLC0415 - fsspec: not for --help
    from master.api.checkpoints.storage import open_storage  # noqa: PLC0415 - with it
    from master.api.checkpoints.verification import verify_folder  # noqa: PLC0415 - with it
    from master.api.errors import ContractError  # noqa: PLC0415 - with it

    uri = _uri_of(checkpoint, where)
    try:
        found = verify_folder(open_storage(uri), tell=ProgressPrinter(sys.stderr).report)
    except (ContractError, OSError) as error:
        raise CommandError(Exit.FAILED, f"{uri} cannot be read: {error}") from None
    if found.is_empty:
        raise CommandError(Exit.NOT_FOUND, f"{uri} holds no checkpoint")
    print(
        json.dumps(verdict_content(found), indent=2)
        if is_json
        else at_rest("\n".join(verdict_lines(found, now_s=time.time())))
    )
    if not found.is_whole:
        raise CommandError(Exit.FAILED, f"{uri} is not whole")


class ProgressPrinter:
    """Tells how far a long reading is, every two seconds.  Nothing is said of a short one."""

    def __init__(self, out: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._out, self._clock = out, clock
        self._told_s = clock()

    def report(self, read_bytes: int, of_bytes: int) -> None:
        """So many bytes of so many were read."""
        now_s = self._clock()
        if now_s - self._told_s >= _TELL_AFTER_S:
            self._told_s = now_s
            share = 100 * read_bytes // of_bytes if of_bytes else 100
            print(at_rest(f"read {read_bytes:,} of {of_bytes:,} bytes ({share} %)"), file=self._out, flush=True)


def _uri_of(checkpoint: str, where: PlaceSelector) -> str:
    if not checkpoint.startswith("tj/"):
        return checkpoint
    with where.open() as place:
        (job,) = place.get("tj", checkpoint.removeprefix("tj/")).objects
    return str(job["spec"]["checkpoint"]["uri"])


@click.command()
def version() -> None:
    """Versions of EDL and of what it stands on."""
    print(at_rest("\n".join(versions())))


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for a shell.

    \b
    eval "$(edl completion bash)"
    """  # noqa: D301 - click keeps the lines after this mark as they are
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - rarely needed

    kind = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    assert kind is not None
    print(at_rest(kind(root, {}, "edl", COMPLETION_VARIABLE).source()))


def versions() -> list[str]:
    """Lines about this machine and the packages that EDL stands on."""
    lines = [f"python {platform.python_version()} on {platform.platform()}, {os.cpu_count()} cores"]
    for package in _SHOWN:
        try:
            lines.append(f"{package} {version_of(package)}")
        except PackageNotFoundError:
            lines.append(f"{package} is not installed")
    return lines
