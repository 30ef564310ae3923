"""`edl export`: a job's model as a file for other tools, by a process of `trainer_sdk.export` (ADR 0240).

Not here: reading checkpoints and writing files.  Whether torch is needed, and there, shows in that process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from autoscaler.cli.arguments.checkpoint_source import checkpoint_argument, find_uri
from autoscaler.cli.arguments.options import json_option
from autoscaler.cli.arguments.place_options import place_options
from autoscaler.cli.arguments.place_selection import PlaceSelector
from autoscaler.cli.exit_codes import CommandError, Exit

_HOME: Final = Path(__file__).resolve().parents[3]  # the exporter is this EDL's, not another one's on the path


@click.command()
@checkpoint_argument
@click.argument("out", required=False, type=click.Path(path_type=Path))
@click.option("--part", metavar="NAME", default=None, help="Replicated part (default: model, or the only one).")
@click.option(
    "--format", "layout", type=click.Choice(["dcp"]), help="OUT is a folder for torch.distributed.checkpoint."
)
@click.option("--checkpoint", "wanted", metavar="ID", default=None, help="Another checkpoint than the last one.")
@click.option("--list", "lists", is_flag=True, help="List the parts of the checkpoint; write nothing.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@json_option("one object")
@place_options
def export(
    *,
    checkpoint: str,
    out: Path | None,
    part: str | None,
    layout: str | None,
    wanted: str | None,
    lists: bool,
    force: bool,
    is_json: bool,
    selector: PlaceSelector,
) -> None:
    """Write the model of a checkpoint as a file for other tools.

    OUT ends with .safetensors, .pt (needs torch here) or .npz.  The names of its tensors are those of
    model.state_dict().  With --format dcp OUT is a new folder with all parts, which torch.distributed.checkpoint
    loads with its HuggingFaceStorageReader.  The job may be running, or long over.

    \b
    edl export tj/digits model.safetensors
    edl export runs/20260102-150405-digits/checkpoints/digits model.pt
    edl export tj/digits model-and-optimizer --format dcp
    edl export tj/digits --list
    """  # noqa: D301 - click keeps the lines after this mark as they are
    if out is None and not lists:
        raise click.UsageError("name a file, as in edl export tj/digits model.safetensors, or ask with --list")
    words = [
        word
        for name, value in (("--part", part), ("--format", layout), ("--checkpoint", wanted))
        if value
        for word in (name, value)
    ]
    words += [name for name, is_set in (("--list", lists), ("--force", force), ("--json", is_json)) if is_set]
    code = run_exporter([*words, "--", find_uri(checkpoint, selector), *([str(out)] if out else [])]).returncode
    if code < 0:
        raise CommandError(Exit.FAILED, f"the export was killed by signal {-code}; nothing was written under {out}")
    if code:
        raise click.exceptions.Exit(code)


def run_exporter(words: Sequence[str], *, captures: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs this EDL's `trainer_sdk.export`; with `captures` its standard output is in the result."""
    path = os.pathsep.join(filter(None, (str(_HOME), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-P", "-m", "trainer_sdk.export", *words],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE if captures else None,
        text=True,
        check=False,
    )
