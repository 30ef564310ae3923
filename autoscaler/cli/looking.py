"""Commands that look at a live run: get, describe, logs, events, wait."""

from __future__ import annotations

import codecs
import json
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from autoscaler.cli.client import RunGoneError, ask, watch
from autoscaler.cli.describing import format_event, job_lines, part_lines
from autoscaler.cli.exits import CommandError, Exit
from autoscaler.cli.options import output_option, role_options, run_option, target_argument
from autoscaler.cli.tables import GrowingTable, format_table
from autoscaler.cli.words import Duration, find_run, parse_condition, split_target
from autoscaler.clusters.local.folder import RunFolder

_FOLLOW_EVERY_S: Final = 0.1
_LOG_CHUNK_BYTES: Final = 64 << 10
_LAST_LINES: Final = 1 << 20


@click.command()
@target_argument("TYPE[/NAME] [NAME]")
@click.option("-w", "--watch", "is_watching", is_flag=True, help="Print again whenever something is different.")
@output_option
@run_option
def get(target: Sequence[str], is_watching: bool, output: str, run: Path | None) -> None:
    """Show jobs (tj), nodes, pods or deployments.

    \b
    edl get tj
    edl get tj/digits -o yaml
    edl get pods -w -o wide
    """  # noqa: D301 - click keeps the lines after this mark as they are
    kind, name = split_target(target, needs_name=False)
    folder = find_run(run)
    if not is_watching:
        found = ask(folder, "get", type=kind, name=name)
        print(_render(found, output, is_single=bool(name)))
        return
    table = GrowingTable(is_wide=output == "wide")
    for item in watch(folder, "get", type=kind, name=name):
        text = "\n".join(table.add(item)) if output in {"table", "wide"} else _render([item], output, is_single=True)
        print(text, flush=True)


@click.command()
@target_argument("TYPE/NAME")
@run_option
def describe(target: Sequence[str], run: Path | None) -> None:
    """Tell about one thing: its state, why it has its size, its pods, the last decisions and events.

    \b
    edl describe tj/digits
    edl describe node/node-1
    """  # noqa: D301 - click keeps the lines after this mark as they are
    kind, name = split_target(target, needs_name=True)
    told = ask(find_run(run), "describe", type=kind, name=name)
    found = told["object"]
    print("\n".join(job_lines(found)) if found["kind"] == "TrainingJob" else _to_yaml(found))
    print("\n".join(part_lines(told)))


@click.command()
@target_argument("TYPE/NAME")
@role_options
@click.option("-f", "--follow", is_flag=True, help="Go on until the run ends.")
@click.option("--tail", type=click.IntRange(min=0), default=None, help="Only the last lines.")
@run_option
def logs(
    *, target: Sequence[str], role: str | None, ordinal: int | None, follow: bool, tail: int | None, run: Path | None
) -> None:
    """Print what a pod has written.

    \b
    edl logs tj/digits --trainer 2 -f
    edl logs tj/digits --master
    edl logs pod/web-0 --tail 20
    """  # noqa: D301 - click keeps the lines after this mark as they are
    kind, name = split_target(target, needs_name=True)
    folder = find_run(run)
    answer = ask(folder, "logs", type=kind, name=name, role=role, ordinal=ordinal)
    for chunk in _read_log(Path(answer["log"]), tail, folder if follow else None):
        sys.stdout.write(chunk)
        sys.stdout.flush()


@click.command()
@click.option("-w", "--watch", "is_watching", is_flag=True, help="Go on until the run ends.")
@click.option("--json", "is_json", is_flag=True, help="One JSON object a line.")
@run_option
def events(is_watching: bool, is_json: bool, run: Path | None) -> None:
    """Tell what has happened: starts, drains, failures, decisions.

    \b
    edl events
    edl events -w --json
    """  # noqa: D301 - click keeps the lines after this mark as they are
    folder = find_run(run)
    found = watch(folder, "events") if is_watching else iter(ask(folder, "events"))
    for event in found:
        print(json.dumps(event) if is_json else format_event(event), flush=True)


@click.command()
@target_argument("TYPE/NAME")
@click.option(
    "--for", "condition", required=True, metavar="condition=NAME|delete", help="condition=Completed, or delete."
)
@click.option("--timeout", type=Duration(), default="30s", show_default=True, help="Give up after this long (exit 5).")
@run_option
def wait(target: Sequence[str], condition: str, timeout: float, run: Path | None) -> None:
    """Wait until a condition holds.

    \b
    Jobs:         Running, Completed, Failed, Suspended
    Pods:         Ready
    Deployments:  Available
    Everything:   --for=delete

    Waiting for Completed ends with exit code 1 as soon as the job has failed.

    \b
    edl wait --for=condition=Completed tj/digits --timeout 10m
    edl wait --for=delete deployment/web
    """  # noqa: D301 - click keeps the lines after this mark as they are
    kind, name = split_target(target, needs_name=True)
    wanted = parse_condition(condition)
    folder, until_s = find_run(run), time.monotonic() + timeout
    while not _holds(folder, kind, name, wanted):
        if time.monotonic() >= until_s:
            raise CommandError(Exit.TIMEOUT, f"{kind}/{name} was not {_told(wanted)} within {timeout:g} s")
        time.sleep(min(_FOLLOW_EVERY_S, max(0.0, until_s - time.monotonic())))
    print(f"{kind}/{name} condition met")


def _told(wanted: str) -> str:
    return "deleted" if wanted == "delete" else wanted.title()


def _holds(folder: RunFolder, kind: str, name: str, wanted: str) -> bool:
    try:
        (found,) = ask(folder, "get", type=kind, name=name)
    except RunGoneError:
        return _held_at_the_end(folder, name, wanted)
    except CommandError as error:
        if error.code is Exit.NOT_FOUND and wanted == "delete":
            return True
        raise
    conditions = _conditions(found)
    if wanted in {"completed", "complete"} and "failed" in conditions:
        raise CommandError(Exit.FAILED, f"{kind}/{name} has failed: {found['status']['conditions'][0]['message']}")
    return wanted in conditions


def _held_at_the_end(folder: RunFolder, name: str, wanted: str) -> bool:
    """What the run wrote down about its jobs when it ended."""
    phase = str(folder.read_manifest().get("jobs", {}).get(name, "")).lower()
    if wanted in {phase, "delete"}:
        return True
    raise RunGoneError(folder)


def _conditions(found: Mapping[str, Any]) -> set[str]:
    status, phase = found["status"], str(found["status"].get("phase", "")).lower()
    match found["kind"]:
        case "TrainingJob":
            return {phase, "complete"} if phase == "completed" else {phase}
        case "Pod":
            return {"ready"} if phase == "running" else set()
        case "Deployment":
            return {"available"} if status["readyReplicas"] >= found["spec"]["replicas"] else set()
        case _:
            return {"ready"}


def _read_log(path: Path, tail: int | None, folder: RunFolder | None) -> Iterator[str]:
    """What stands in the file, and with a folder also what comes, until its run ends.

    A file that has become shorter (`logbound`) is read again from its beginning.
    """
    decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
    with path.open("rb") as log:
        if tail is not None:
            yield decode(b"".join(deque(log, maxlen=tail)))
        while True:
            if chunk := log.read(_LOG_CHUNK_BYTES):
                yield decode(chunk)
            elif folder is None or not folder.is_live():
                return
            elif path.stat().st_size < log.tell():
                log.seek(0)
            else:
                time.sleep(_FOLLOW_EVERY_S)


def _render(found: Sequence[Mapping[str, Any]], output: str, *, is_single: bool) -> str:
    match output:
        case "json":
            content: Any = found[0] if is_single else {"apiVersion": "v1", "kind": "List", "items": list(found)}
            return json.dumps(content, indent=2)
        case "yaml":
            content = found[0] if is_single else {"apiVersion": "v1", "kind": "List", "items": list(found)}
            return _to_yaml(content)
        case "name":
            return "\n".join(f"{o['kind'].lower()}/{o['metadata']['name']}" for o in found)
        case _:
            return "\n".join(format_table(found, is_wide=output == "wide")) or "nothing there"


def _to_yaml(content: Any) -> str:
    import yaml  # noqa: PLC0415 - only here, and not for --help

    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True).rstrip()
