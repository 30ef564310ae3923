"""`python -m tests.chaos.group --resizes 1000 --faults 500 --minutes 30 --seed N [--json]`: groups under real signals.

Exit code 0: as many resizes and faults as asked for came about, and every promise held.
The report also stands in the run folder, as report.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from bench.__main__ import GROUPS
from tests.chaos.chaos_run import start_etcd_members
from tests.chaos.group.group_campaign import GroupCampaign, GroupReport
from tests.chaos.report_files import machine, write_report

LAST_JOB_S = 120.0  # without new faults, so that the last job can end within the time


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.group", description=__doc__)
    parser.add_argument("--resizes", type=int, default=1000)
    parser.add_argument("--faults", type=int, default=500)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--json", action="store_true", help="one document instead of lines")
    parser.add_argument(
        "--keep", action="store_true", help="also into docs/reports/chaos-group.json and docs/reports/benchmarks.md"
    )
    parser.add_argument("--folder", type=Path, default=Path("runs"), help="where the run folder is made")
    return asyncio.run(run(parser.parse_args()))


async def run(arguments: argparse.Namespace) -> int:
    def say(line: str) -> None:
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    began_s, load = time.monotonic(), os.getloadavg()[0]
    folder = arguments.folder.absolute() / f"group-chaos-{int(time.time())}"
    folder.mkdir(parents=True)
    say(f"seed {arguments.seed}, {arguments.resizes} resizes and {arguments.faults} faults, run folder {folder}")
    until_s = began_s + max(30.0, arguments.minutes * 60.0 - LAST_JOB_S)
    async with start_etcd_members(folder, 1, say) as etcd:
        campaign = GroupCampaign(
            folder,
            etcd,
            resizes=arguments.resizes,
            faults=arguments.faults,
            until_s=until_s,
            seed=arguments.seed,
            say=say,
        )
        report = await campaign.run()
    took_s = time.monotonic() - began_s
    wanted = {"wanted": {"resizes": arguments.resizes, "faults": arguments.faults}}
    document = wanted | as_document(report, seed=arguments.seed, took_s=took_s) | machine(load)
    await asyncio.to_thread(write_report, document, [folder / "report.json", *([GROUPS] if arguments.keep else [])])
    print(json.dumps(document, indent=1) if arguments.json else as_text(document))
    is_enough = report.resizes >= arguments.resizes and report.faults.total() >= arguments.faults
    return 0 if is_enough and not report.problems else 1


def as_document(report: GroupReport, *, seed: int, took_s: float) -> dict[str, Any]:
    """Times in seconds."""
    return {
        "seed": seed,
        "took_s": round(took_s, 1),
        "jobs": report.jobs,
        "joins": report.joins,
        "drains": report.drains,
        "faults": report.faults.total(),
        "by_fault": {
            fault: {"count": len(times), **_spread(times)} for fault, times in sorted(report.recoveries_s.items())
        },
        "pauses": {"count": len(report.pauses_s), **_spread(report.pauses_s)},
        "steps": report.steps,
        "steps_done_again": report.redone,
        "checkpoints": report.heads,
        "checkpoints_missed": report.heads_missed,
        "quarantined": report.quarantined,
        "problems": report.problems,
    }


def _spread(times: list[float]) -> dict[str, float]:
    if not times:
        return {}
    return {"median_s": round(statistics.median(times), 3), "longest_s": round(max(times), 2)}


def as_text(document: dict[str, Any]) -> str:
    lines = ["", f"{'fault':42} {'landed':>7} {'next step: median':>18} {'longest':>9}"]
    for fault, row in document["by_fault"].items():
        lines.append(f"{fault:42} {row['count']:7} {row['median_s']:17.3f}s {row['longest_s']:8.2f}s")
    pauses = document["pauses"]
    minutes = document["took_s"] / 60
    changes = f"{document['joins']} joins, {document['drains']} drains, {document['faults']} faults"
    gone, quarantined = document["checkpoints_missed"], document["quarantined"]
    lines += [
        f"seed {document['seed']}, {minutes:.1f} minutes, {document['jobs']} jobs: {changes}",
        f"{pauses['count']} changes of members, median pause {pauses.get('median_s', 0):.3f} s",
        f"{document['steps']} steps, {document['steps_done_again']} of them done in more than one generation",
        f"{document['checkpoints']} checkpoints compared with the order of the records, {gone} gone before that",
        f"{quarantined} records in quarantine",
        *(f"PROBLEM {problem}" for problem in document["problems"]),
        "NOT in order" if document["problems"] else "every record exactly once in every checkpoint, replicas alike",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
