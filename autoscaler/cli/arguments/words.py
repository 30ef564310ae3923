"""What users type, as values: TYPE/NAME in kubectl's two spellings, durations, and the run that is meant."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.clusters.local.folder import RunFolder, find_runs
from master.api.host.log_lines import at_rest

RUNS: Final = Path("runs")
CONDITIONS: Final = (
    *("Running", "Completed", "Failed", "Suspended", "Ready", "Available"),
    *("Admitted", "Scaled", "Progressing", "Degraded"),
)
"""What `edl wait` waits for: the first four of jobs, then of pods, of deployments; the last of a cluster's jobs."""

_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Duration(click.ParamType[float]):
    """`30s`, `5m`, `1h30m`, or a bare number of seconds; a float of seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        try:
            return parse_duration_s(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def parse_duration_s(text: str) -> float:
    """Seconds, from what `Duration` takes.  Raises ValueError with what to write."""
    text = text.strip()
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        return float(text)
    parts = re.findall(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no duration; write 30s, 5m or 1h30m")
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


def parse_condition(text: str) -> str:
    """`completed` of `condition=Completed`, or `delete`.  Raises click.UsageError."""
    wanted = text.removeprefix("condition=").lower()
    known = {name.lower() for name in CONDITIONS} | {"complete"}
    if text == "delete" or (text.startswith("condition=") and wanted in known):
        return wanted
    raise click.UsageError(f"write --for=condition=NAME or --for=delete; NAME is one of {', '.join(CONDITIONS)}")


def find_run(chosen: Path | None, *, is_quiet: bool = False) -> RunFolder:
    """The run of --run, else of $EDL_RUN, else the newest live one below ./runs.  Raises CommandError.

    Says which one it is when several are live, unless it is to be quiet.
    """
    named = chosen or (Path(os.environ["EDL_RUN"]) if os.environ.get("EDL_RUN") else None)
    if named is not None:
        if not (named / "run.json").is_file():
            raise CommandError(Exit.NOT_FOUND, f"{named} is no run folder: it has no run.json")
        return RunFolder(root=named.absolute())
    live = [folder for folder in find_runs(RUNS) if folder.is_live()]
    if len(live) > 1 and not is_quiet:
        names = ", ".join(folder.root.name for folder in live[1:])
        told = f"edl: of {len(live)} live runs this is {live[0].root.name}; --run chooses ({names})"
        print(at_rest(told), file=sys.stderr)
    if live:
        return live[0]
    hint = "start one with edl run FILE, or name one with --run DIR; --kubeconfig names a cluster"
    raise CommandError(Exit.NOT_FOUND, f"no run is live below ./{RUNS}; {hint}")
