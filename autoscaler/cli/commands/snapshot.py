"""`edl snapshot save`, and the snapshots that `edl why`, `plan` and `what-if` answer from: of a place, or of a file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from autoscaler.cli.arguments.place_options import place_options
from autoscaler.cli.arguments.place_selection import PlaceSelector
from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.cli.place_values import JobFacts, PlannedSubmission
from master.api.host.log_lines import escape_controls

if TYPE_CHECKING:  # the codec is not for --help
    from autoscaler.snapshots import SnapshotContent

F = TypeVar("F", bound=Callable[..., Any])

_LARGEST_FILE_BYTES: Final = 256 << 20
"""Ten thousand nodes with a hundred thousand pods take about 50 MB."""

snapshot_option: Callable[[F], F] = click.option(
    "--snapshot",
    "snapshot",
    type=click.Path(path_type=Path),
    default=None,
    help="Plan from this file of edl snapshot save (-: standard input) instead of the live place.",
)


@click.group("snapshot")
def snapshots() -> None:
    """Save a snapshot of a run or a cluster: what the planner sees, its policy, memory, clock.

    \b
    edl snapshot save -o snapshot.json
    """  # noqa: D301 - click keeps the lines after this mark as they are


@snapshots.command(short_help="Write a snapshot into one file.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=None, help="Output file; -: standard output.")
@place_options
def save(*, output: Path | None, selector: PlaceSelector) -> None:
    """Write a snapshot into one file: a bug report about the planner.

    edl plan, edl why and edl what-if answer from it as the run would have at that moment.  Environments, commands and
    tokens of pods are not in it.

    \b
    edl snapshot save
    edl snapshot save -o snapshot.json
    """  # noqa: D301 - click keeps the lines after this mark as they are
    from importlib.metadata import version  # noqa: PLC0415 - not for --help

    from autoscaler.snapshots import format_document, to_document  # noqa: PLC0415

    with selector.open() as place:
        title, snapshot = place.title, place.snapshot()
    snapshot = replace(snapshot, made_by=f"edl {version('edl')}, {snapshot.made_by}")
    target = output or Path(f"{title.replace('/', '-')}.snapshot.json")
    text = format_document(to_document(snapshot))
    if str(target) == "-":
        sys.stdout.write(text)
        return
    if not target.name:
        raise CommandError(Exit.USAGE, f"{target} is not a file name")
    partial = target.with_name(f".{target.name}.part")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    except OSError as error:
        with suppress(OSError):  # a full disk must not keep the partial file
            partial.unlink(missing_ok=True)
        raise CommandError(Exit.FAILED, f"{target} cannot be written: {error.strerror}") from None
    print(escape_controls(str(target)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSource:
    """A snapshot with its place's default namespace and file reader."""

    snapshot: SnapshotContent
    namespace: str
    read_submission: Callable[[Path, float], PlannedSubmission]
    job_facts: Callable[[str], JobFacts]  # by the job's name; a file has none


@contextmanager
def open_snapshot(selector: PlaceSelector, file: Path | None) -> Iterator[SnapshotSource]:
    """The snapshot in the file, or of the selected place.  Raises CommandError."""
    if file is None:
        with selector.open() as place:
            snapshot = place.snapshot()
            yield SnapshotSource(
                snapshot=snapshot,
                namespace=place.namespace,
                read_submission=place.read_submission,
                job_facts=place.job_facts,
            )
        return
    if selector.run is not None:
        raise click.UsageError("choose one of --run and --snapshot")
    from autoscaler.cli.local.what_if_submission import read_local_submission  # noqa: PLC0415 - not for --help

    yield SnapshotSource(
        snapshot=_load(file),
        namespace=selector.namespace or "",
        read_submission=read_local_submission,
        job_facts=lambda _: JobFacts(),
    )


def _load(file: Path) -> SnapshotContent:
    from autoscaler.errors import InvalidSpecError  # noqa: PLC0415 - not for --help
    from autoscaler.snapshots import parse_document  # noqa: PLC0415 - with it

    try:
        return parse_document(_read(file))
    except InvalidSpecError as error:
        raise CommandError(Exit.REFUSED, f"{file}: {error}") from None


def _read(file: Path) -> bytes:
    if str(file) == "-":
        content = sys.stdin.buffer.read(_LARGEST_FILE_BYTES + 1)
    else:
        try:
            with file.open("rb") as source:  # a device or a pipe has size 0 for stat
                content = source.read(_LARGEST_FILE_BYTES + 1)
        except OSError as error:
            raise CommandError(Exit.NOT_FOUND, f"{file} cannot be read: {error.strerror}") from None
    if len(content) > _LARGEST_FILE_BYTES:
        raise CommandError(Exit.REFUSED, f"{file} is larger than {_LARGEST_FILE_BYTES >> 20} MiB")
    return content
