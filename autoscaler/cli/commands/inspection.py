"""`edl get`, `describe`, `logs`, `events` and `wait`: the commands that read the state of objects."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from autoscaler.cli.arguments.label_selector import LabelRequirement, LabelSelector
from autoscaler.cli.arguments.options import json_option, output_option, role_options, target_argument
from autoscaler.cli.arguments.parameter_types import Duration, parse_condition
from autoscaler.cli.arguments.place_options import listing_place_options, place_options
from autoscaler.cli.arguments.place_selection import PlaceSelector
from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.cli.output.formats import format_objects
from autoscaler.cli.output.object_order import sort_objects
from autoscaler.cli.output.object_tables import GrowingTable, ObjectList, PlainObject
from autoscaler.cli.place_values import LogOptions, PodSelector
from autoscaler.cli.terminal import EscapeFilter
from master.api.host.log_lines import escape_controls


@click.command()
@target_argument("TYPE[/NAME] [NAME]", needs_name=False)
@click.option("-w", "--watch", "is_watching", is_flag=True, help="Print an object again after each change.")
@output_option
@click.option(
    "--sort-by",
    default=None,
    metavar="COLUMN|.FIELD",
    help="In the order of a column, such as low-for, or of a field, such as .metadata.name; not with --watch.",
)
@click.option(
    "-l", "--selector", "labels", type=LabelSelector(), default=(), help="Only objects with these labels: KEY=VALUE,..."
)
@click.option("--no-headers", is_flag=True, help="Leave the heading of the table out.")
@listing_place_options
def get(
    *,
    kind: str,
    name: str,
    is_watching: bool,
    output: str,
    sort_by: str | None,
    labels: Sequence[LabelRequirement],
    no_headers: bool,
    selector: PlaceSelector,
) -> None:
    """Show jobs (tj), nodes, pods, deployments, or what GPUs do and for whom (gpus).

    \b
    edl get tj
    edl get tj/digits -o yaml
    edl get pods -w -o wide
    edl get tj -A
    edl get pods -l edl.dev/job=digits,edl.dev/role=trainer
    edl get gpus
    edl get gpus/node-1 -o wide
    edl get gpus --sort-by low-for
    """  # noqa: D301 - click keeps the lines after this mark as they are
    if is_watching and sort_by:
        raise click.UsageError("--sort-by and --watch exclude one another: what changes has no order")
    with selector.open() as place:
        if not is_watching:
            found = _selected(place.get(kind, name), labels)
            if sort_by:
                found = sort_objects(found, sort_by, are_rows=output in {"table", "wide"})
            is_single = bool(name and found.objects)
            text = format_objects(found, output, is_single=is_single, has_heading=not no_headers)
            print(escape_controls(text))
            return
        table = GrowingTable(is_wide=output == "wide", has_heading=not no_headers)
        for changed in place.watch(kind, name):
            if (found := _selected(changed, labels)).objects:
                print(escape_controls(_render_change(found, table, output)), flush=True)


def _selected(found: ObjectList, labels: Sequence[LabelRequirement]) -> ObjectList:
    """Those objects that have these labels."""
    kept = [one for one in found.objects if all(wanted.holds(_labels_of(one)) for wanted in labels)]
    return replace(found, objects=kept)


def _labels_of(found: PlainObject) -> Mapping[str, Any]:
    return found.get("metadata", {}).get("labels") or {}


@click.command()
@target_argument("TYPE/NAME")
@place_options
def describe(*, kind: str, name: str, selector: PlaceSelector) -> None:
    """Describe one object: its state, why it has its size, its pods, the last resizes and events.

    \b
    edl describe tj/digits
    edl describe node/node-1
    """  # noqa: D301 - click keeps the lines after this mark as they are
    with selector.open() as place:
        for line in place.describe(kind, name):
            print(escape_controls(line))


@click.command()
@target_argument("TYPE/NAME")
@role_options
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the run, or the container, ends.")
@click.option("-p", "--previous", is_flag=True, help="Log of the container before its last restart (masters only).")
@click.option("--tail", type=click.IntRange(min=0), default=None, help="Print only this many last lines.")
@place_options
def logs(
    *,
    kind: str,
    name: str,
    role: str | None,
    ordinal: int | None,
    follow: bool,
    previous: bool,
    tail: int | None,
    selector: PlaceSelector,
) -> None:
    """Print what a pod has written.

    \b
    edl logs tj/digits --trainer 2 -f
    edl logs tj/digits --master
    edl logs pod/web-0 --tail 20
    """  # noqa: D301 - click keeps the lines after this mark as they are
    options = LogOptions(tail=tail, is_followed=follow, is_previous=previous)
    with selector.open() as place:
        _show_log(place.log(kind, name, PodSelector(role=role, ordinal=ordinal), options))


def _show_log(chunks: Iterator[str]) -> None:
    """Print a log: escape sequences are filtered out for a terminal, not for a file or a pipe."""
    escapes = EscapeFilter() if sys.stdout.isatty() else None
    try:
        for chunk in chunks:
            sys.stdout.write(escapes.filter(chunk) if escapes else chunk)
            sys.stdout.flush()
    finally:
        if escapes:
            sys.stdout.write(escapes.flush())


@click.command()
@click.option("-w", "--watch", "is_watching", is_flag=True, help="Follow new events.")
@json_option("one object in each line")
@listing_place_options
def events(*, is_watching: bool, is_json: bool, selector: PlaceSelector) -> None:
    """List what has happened: starts, drains, failures, decisions.

    \b
    edl events
    edl events -w -o json
    """  # noqa: D301 - click keeps the lines after this mark as they are
    with selector.open() as place:
        for event in place.events(is_watching=is_watching):
            print(json.dumps(event.content) if is_json else escape_controls(event.text), flush=True)


@click.command()
@target_argument("TYPE/NAME")
@click.option("--for", "condition", required=True, metavar="condition=NAME|delete", help="Condition to wait for.")
@click.option("--timeout", type=Duration(), default="30s", show_default=True, help="Longest wait (exit code 5).")
@place_options
def wait(*, kind: str, name: str, condition: str, timeout: float, selector: PlaceSelector) -> None:
    """Wait until a condition holds.

    \b
    Jobs:         Running, Completed, Failed, Suspended,
                  Admitted, Ready, Scaled, Progressing,
                  CheckpointsCurrent, Idle, Degraded
    Pods:         Ready
    Deployments:  Available
    Everything:   --for=delete

    Waiting for Completed ends with exit code 1 as soon as the job has failed.

    \b
    edl wait --for=condition=Completed tj/digits --timeout 10m
    edl wait --for=delete deployment/web
    """  # noqa: D301 - click keeps the lines after this mark as they are
    wanted = parse_condition(condition)
    until_s = time.monotonic() + timeout
    with selector.open() as place:
        while not place.is_condition_met(kind, name, wanted):
            if time.monotonic() >= until_s:
                raise CommandError(Exit.TIMEOUT, f"{kind}/{name} was not {_state_of(wanted)} within {timeout:g} s")
            time.sleep(min(place.poll_interval_s, max(0.0, until_s - time.monotonic())))
    print(escape_controls(f"{kind}/{name} condition met"))


def _render_change(found: ObjectList, table: GrowingTable, output: str) -> str:
    """An object that appeared or changed, as the next lines of the table."""
    if output in {"table", "wide"}:
        rows = (row for one in found.objects for row in found.rows(one))
        return "\n".join(line for row in rows for line in table.add(row, found.columns))
    return format_objects(found, output, is_single=True)


def _state_of(wanted: str) -> str:
    return "deleted" if wanted == "delete" else wanted.title()
