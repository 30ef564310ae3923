"""`edl bundle`: archive of a run's folder for a bug report, without secrets (`run_archive`)."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from autoscaler.cli.arguments.place_selection import RUNS
from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.clusters.local.run_files.run_folder import RunFolder, find_runs
from master.api.host.log_lines import escape_controls


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), default=None, help="Name of the archive.")
def bundle(folder: Path | None, output: Path | None) -> None:
    """Pack a run's folder into one archive, as a bug report.

    Without a folder: the newest run below ./runs.  Checkpoint files, tokens and etcd's database stay out.  Values of
    secrets are redacted in job files, logs and events, and listed by name.  Look into it before you send it.

    \b
    edl bundle
    edl bundle runs/20260102-150405-digits -o report.tar.gz
    """  # noqa: D301 - click keeps the lines after this mark as they are
    from autoscaler.cli.commands.run_archive import (  # noqa: PLC0415 - not for --help
        make_redactor,
        redaction_lines,
        write_archive,
    )

    run = RunFolder(root=folder.absolute()) if folder is not None else next(find_runs(RUNS), None)
    if run is None:
        raise CommandError(Exit.NOT_FOUND, f"there is no run below ./{RUNS}; name its folder: edl bundle FOLDER")
    if not run.manifest.is_file():
        raise CommandError(Exit.NOT_FOUND, f"{folder} is not a run folder: it has no run.json")
    target = output or Path(f"{run.root.name}.tar.gz")
    redactor = make_redactor(run)
    try:
        write_archive(run, target, redactor)
    except OSError as error:
        raise CommandError(Exit.FAILED, f"{target} cannot be written: {error}") from None
    for line in redaction_lines(redactor):
        print(escape_controls(line), file=sys.stderr)
    print(escape_controls(str(target)))
