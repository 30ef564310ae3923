"""The section of the benchmarks on moves under faults: `make chaos-moves ARGS=--keep`, not part of `make bench`.

The whole report, with commit and how busy the machine was, stands in `docs/reports/chaos-moves.json`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

Found = dict[str, Any]


def section(found: Found) -> list[str]:
    """Lines of Markdown."""
    before, after = found["load_before_and_after"]
    stamp = f"Commit {found['commit']}, load {before:.1f} and {after:.1f} on {found['cores']} cores"
    head = f"`make chaos-moves`, seed {found['seed']}: {found['took_s'] / 60:.1f} minutes. {stamp}."
    heads = ["| figure | value | goal | met |", "|---|---|---|---|"]
    return ["", "## servers come and go under faults", "", head, "", *heads, *_rows(found)]


def _rows(found: Found) -> Iterator[str]:
    wanted, resizes = found["wanted"], sum(found["resizes"].values())
    kinds = ", ".join(f"{count} {kind}" for kind, count in found["resizes"].items())
    yield _row(f"resizes ({kinds})", resizes, f">= {wanted['resizes']}", resizes >= wanted["resizes"])
    told = f"faults at named steps, {len(found['by_fault'])} kinds (kill or stop of whom, at which step)"
    yield _row(told, found["faults"], f">= {wanted['faults']}", found["faults"] >= wanted["faults"])
    for kind, share in found.get("kinds", {}).items():
        told = f"{share['made_good']} losses of one server made good by second copies, " if share["made_good"] else ""
        told = f"{share['jobs']} jobs with {kind}: {share['resizes']} resizes, {told}{share['roll_backs']} new lineages"
        yield f"| of the faults, on {told} | {share['faults']} | | |"
    told = (
        f"counters wrong in a bucket or a row, pushes lost or applied twice, torn checkpoints, processes that ended by "
        f"themselves, roll-backs for a loss that a second copy makes good "
        f"({found['positions']:,} positions, {found['pushes']:,} pushes, {found['checkpoints']} checkpoints read, "
        f"{found['roll_backs']} roll-backs)"
    )
    yield _row(told, len(found["problems"]), "0", not found["problems"])
    settled_s = found["settled_s"]
    told = "from the last fault to the end of the resize with training going on, median and longest"
    yield f"| {told} | {statistics.median(settled_s):.1f} s, {max(settled_s):.1f} s | |  |"


def _row(what: str, value: int, goal: str, is_met: bool) -> str:
    return f"| {what} | {value} | {goal} | {'met' if is_met else 'MISS'} |"
