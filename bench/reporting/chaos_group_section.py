"""The section of the benchmarks on groups under faults: `make chaos-group ARGS=--keep`, not part of `make bench`.

The whole report, with commit and how busy the machine was, stands in `docs/reports/chaos-group.json`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Found = dict[str, Any]


def section(found: Found) -> list[str]:
    """Lines of Markdown."""
    before, after = found["load_before_and_after"]
    stamp = f"Commit {found['commit']}, load {before:.1f} and {after:.1f} on {found['cores']} cores"
    head = f"`make chaos-group`, seed {found['seed']}: {found['took_s'] / 60:.1f} minutes. {stamp}."
    heads = ["| figure | value | goal | met |", "|---|---|---|---|"]
    return ["", "## groups under faults", "", head, "", *heads, *_rows(found)]


def _rows(found: Found) -> Iterator[str]:
    wanted, resizes = found["wanted"], found["joins"] + found["drains"]
    yield _row(f"resizes ({found['joins']} joins, {found['drains']} drains)", resizes, wanted["resizes"])
    yield _row("faults, several of them at once", found["faults"], wanted["faults"])
    told = (
        "records lost or trained twice, replicas that differ, torn checkpoints, processes that ended by themselves "
        f"({found['steps']:,} steps, {found['checkpoints']} checkpoints compared with the order of the records)"
    )
    problems = len(found["problems"])
    yield f"| {told} | {problems} | 0 | {'MISS' if problems else 'met'} |"
    pauses = found["pauses"]
    yield f"| a change of members: median pause, {pauses['count']} of them | {pauses['median_s']:.3f} s | | |"
    for fault, row in found["by_fault"].items():
        told = f"{fault}, {row['count']} times: to the next step, median and longest, next faults included"
        yield f"| {told} | {row['median_s']:.1f} s, {row['longest_s']:.1f} s | | |"


def _row(what: str, value: int, wanted: int) -> str:
    return f"| {what} | {value} | >= {wanted} | {'met' if value >= wanted else 'MISS'} |"
