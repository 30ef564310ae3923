"""`make bench`: run every bench/SUBJECT/bench_NAME.py in a process of its own, keep the figures, draw the table.

    python -m bench                 all of them
    python -m bench positions sdk   some of them; the figures of the others stay as they were
    python -m bench groups          those of PyTorch in groups, beside DDP, torchrun and torchft: a quarter of an hour
    python -m bench goodput --short to try one out: less is measured, and nothing is kept

Writes to docs/reports: benchmarks.json (a list of {name, value, unit, goal, met, note, commit, machine}),
benchmarks.md, and the figure of the planner's growth.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from bench.reporting import chaos_group_section, chaos_moves_section, control_plane_section
from bench.reporting.growth_figure import draw_growth

ROOT: Final = Path(__file__).parent.parent
RAW: Final = ROOT / "docs" / "reports" / "benchmarks.json"
TABLE: Final = ROOT / "docs" / "reports" / "benchmarks.md"
BESIDE: Final = ROOT / "docs" / "reports" / "beside-the-scheduler.json"
MOVED: Final = ROOT / "docs" / "reports" / "chaos-moves.json"
GROUPS: Final = ROOT / "docs" / "reports" / "chaos-group.json"
GROWTH: Final = ROOT / "docs" / "reports" / "planner-growth.svg"
LIMIT_S: Final = 900

MODULES: Final = {
    path.stem.removeprefix("bench_"): f"bench.{path.parent.name}.{path.stem}"
    for path in sorted(Path(__file__).parent.glob("*/bench_*.py"), key=lambda path: path.stem)
}
"""Benchmarks by name, in the order of the table."""

SETS: Final = {"groups": ("torch", "exactness", "goodput")}
TRIED_SHORT: Final = ("goodput",)
"""Those that know `--short`."""

Figure = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=str(__doc__).splitlines()[0])
    parser.add_argument("which", nargs="*", metavar="NAME", help=", ".join((*MODULES, *SETS)))
    parser.add_argument("--short", action="store_true", help=f"{', '.join(TRIED_SHORT)}: less, and nothing is kept")
    options = parser.parse_args()
    chosen = [name for one in options.which or MODULES for name in SETS.get(one, (one,))]
    if unknown := [name for name in chosen if name not in (TRIED_SHORT if options.short else MODULES)]:
        known = TRIED_SHORT if options.short else (*MODULES, *SETS)
        parser.error(f"{', '.join(unknown)}: not one of {', '.join(known)}")
    kept = {name: rows for name, rows in _load().items() if name not in chosen}
    failed = []
    for name in chosen:
        print(f"== {name}", flush=True)
        rows, ok = _run(name, *(["--short"] if options.short else []))
        kept[name] = rows
        failed += [] if ok else [name]
    if not options.short:
        _save({name: kept[name] for name in MODULES if name in kept})
    missed = [row for rows in kept.values() for row in rows if row["met"] is False]
    for row in missed:
        print(f"missed: {row['name']}: {row['value']:.4g} {row['unit']}, goal {row['goal']}")
    if failed:
        print(f"did not finish: {', '.join(failed)}")
    return 1 if failed else 0


def redraw() -> None:
    """Write the table anew from the figures that are kept."""
    _save(_load())


def _run(name: str, *arguments: str) -> tuple[list[Figure], bool]:
    """The figures that one script printed, and whether it ended well."""
    stamp = {"bench": name, "commit": _commit(), "machine": _machine()}
    rows: list[Figure] = []
    command = [sys.executable, "-m", MODULES[name], *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                print(f"   {line.rstrip()}", flush=True)
                continue
            rows.append({**row, **stamp})
            print(f"   {_verdict(row):4} {row['name']}: {_value(row)} {row['goal']}", flush=True)
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
    return rows, process.returncode == 0


def _value(row: Figure) -> str:
    return f"{row['value']:.4g} {row['unit']}"


def _verdict(row: Figure) -> str:
    return {True: "met", False: "MISS", None: ""}[row["met"]]


def _load() -> dict[str, list[Figure]]:
    grouped: dict[str, list[Figure]] = {}
    for row in json.loads(RAW.read_text()) if RAW.exists() else []:
        grouped.setdefault(row["bench"], []).append(row)
    return grouped


def _save(grouped: dict[str, list[Figure]]) -> None:
    rows = [row for group in grouped.values() for row in group]
    RAW.write_text(json.dumps(rows, indent=1) + "\n")
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`; the raw figures are in `benchmarks.json`. Medians; the machines are shared,",
        "so lean on ratios taken in one run more than on absolute figures.",
    ]
    for name, group in grouped.items():
        if group:
            lines += _section(name, group)
        if draw_growth(group, GROWTH):
            lines += ["", f"![CPU time of a plan over nodes, jobs and shapes]({GROWTH.name})"]
    if BESIDE.exists():
        lines += control_plane_section.section(json.loads(BESIDE.read_text()))
    if MOVED.exists():
        lines += chaos_moves_section.section(json.loads(MOVED.read_text()))
    if GROUPS.exists():
        lines += chaos_group_section.section(json.loads(GROUPS.read_text()))
    TABLE.write_text("\n".join(lines) + "\n")


def _section(name: str, group: list[Figure]) -> list[str]:
    head = f"Commit {group[0]['commit']}, {group[0]['machine']}."
    rows = [
        f"| {row['name']} | {_value(row)} | {row['goal']} | {_verdict(row)} | {row.get('note', '')} |" for row in group
    ]
    return ["", f"## {name}", "", head, "", "| figure | value | goal | met | note |", "|---|---|---|---|---|", *rows]


def _commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+changes" if git("status", "--porcelain") else "")


def _machine() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


if __name__ == "__main__":
    sys.exit(main())
