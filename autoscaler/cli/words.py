"""What users type, as values: TYPE/NAME in kubectl's two spellings, durations, and the run that is meant."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from autoscaler.cli.exits import CommandError, Exit
from autoscaler.clusters.local.folder import RunFolder, find_runs

RUNS: Final = Path("runs")
_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Duration(click.ParamType[float]):
    """`30s`, `5m`, `1h30m`, or a bare number of seconds; a float of seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        text = str(value).strip()
        if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
            return float(text)
        parts = re.findall(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)", text)
        if not parts or "".join(number + unit for number, unit in parts) != text:
            self.fail(f"{value!r} is no duration; write 30s, 5m or 1h30m", param, ctx)
        return sum(float(number) * _UNITS_S[unit] for number, unit in parts)


def split_target(words: Sequence[str], *, needs_name: bool) -> tuple[str, str]:
    """TYPE/NAME or TYPE NAME (or TYPE alone).  Raises click.UsageError."""
    kind, _, name = words[0].partition("/") if words else ("", "", "")
    rest = list(words[1:])
    if not name and rest:
        name = rest.pop(0)
    if not kind or rest or (needs_name and not name):
        raise click.UsageError("name one thing as TYPE/NAME or TYPE NAME, for example tj/digits")
    return kind, name


def find_run(chosen: Path | None) -> RunFolder:
    """The run of --run, else of $EDL_RUN, else the newest live one below ./runs.  Raises CommandError."""
    named = chosen or (Path(os.environ["EDL_RUN"]) if os.environ.get("EDL_RUN") else None)
    if named is not None:
        if not (named / "run.json").is_file():
            raise CommandError(Exit.NOT_FOUND, f"{named} is no run folder: it has no run.json")
        return RunFolder(root=named.absolute())
    for folder in find_runs(RUNS):
        if folder.is_live():
            return folder
    hint = "start one with edl run FILE, or name one with --run DIR or $EDL_RUN"
    raise CommandError(Exit.NOT_FOUND, f"no run is live below ./{RUNS}; {hint}")
