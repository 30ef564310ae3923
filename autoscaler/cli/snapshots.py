"""`edl snapshot save`, and where `edl why`, `edl plan` and `edl what-if` get their moment: a run, or such a file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from autoscaler.cli.client import ask
from autoscaler.cli.exits import CommandError, Exit
from autoscaler.cli.options import run_option
from autoscaler.cli.words import find_run

if TYPE_CHECKING:  # the codec is not for --help
    from autoscaler.snapshots import Snapshot

F = TypeVar("F", bound=Callable[..., Any])

_LARGEST_FILE_BYTES: Final = 256 << 20
"""Ten thousand nodes with a hundred thousand pods take about 50 MB."""

snapshot_option: Callable[[F], F] = click.option(
    "--snapshot",
    "snapshot",
    type=click.Path(path_type=Path),
    default=None,
    help="A file of edl snapshot save (-: standard input), instead of a live run.",
)


@click.group("snapshot")
def snapshots() -> None:
    """Save a moment of a run: what the planner sees, its policy, memory, clock.

    \b
    edl snapshot save -o moment.json
    """  # noqa: D301 - click keeps the lines after this mark as they are


@snapshots.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), default=None, help="The file; -: standard output.")
@run_option
def save(output: Path | None, run: Path | None) -> None:
    """Write this moment into one file: a bug report about the planner.

    edl plan, edl why and edl what-if answer from it as the run would have at that moment.  Environments, commands and
    tokens of pods are not in it.

    \b
    edl snapshot save
    edl snapshot save -o moment.json
    """  # noqa: D301 - click keeps the lines after this mark as they are
    from autoscaler.snapshots import format_document, from_document, to_document  # noqa: PLC0415 - not for --help

    folder = find_run(run)
    moment = replace(from_document(ask(folder, "snapshot")), made_by=f"edl {version('edl')}, run {folder.root.name}")
    target, text = output or Path(f"{folder.root.name}.snapshot.json"), format_document(to_document(moment))
    if str(target) == "-":
        sys.stdout.write(text)
        return
    try:
        partial = target.with_name(f".{target.name}.part")
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    except OSError as error:
        raise CommandError(Exit.FAILED, f"{target} cannot be written: {error.strerror}") from None
    print(target)


def load_moment(run: Path | None, file: Path | None) -> Snapshot:
    """Return the moment in the file, or that of the run which is meant.  Raises CommandError."""
    from autoscaler.errors import InvalidSpecError  # noqa: PLC0415 - not for --help
    from autoscaler.snapshots import from_document, parse_document  # noqa: PLC0415 - with it

    if file is None:
        return from_document(ask(find_run(run), "snapshot"))
    if run is not None:
        raise click.UsageError("choose one of --run and --snapshot")
    try:
        return parse_document(_read(file))
    except InvalidSpecError as error:
        raise CommandError(Exit.REFUSED, f"{file}: {error}") from None


def _read(file: Path) -> bytes:
    if str(file) == "-":
        return sys.stdin.buffer.read(_LARGEST_FILE_BYTES)
    try:
        if file.stat().st_size > _LARGEST_FILE_BYTES:
            raise CommandError(Exit.REFUSED, f"{file} is larger than {_LARGEST_FILE_BYTES >> 20} MiB")
        return file.read_bytes()
    except OSError as error:
        raise CommandError(Exit.NOT_FOUND, f"{file} cannot be read: {error.strerror}") from None
