"""`python -m tests.chaos --faults 200 --seed N --minutes 20 [--json]`: real signals on the whole thread.

Exit code 0: as many faults as asked for landed and were recovered from, and every promise held.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from pathlib import Path

from tests.chaos.campaign import Campaign, Report
from tests.chaos.chaos_run import ChaosJobShape, start_chaos_run

LAST_JOB_S = 150.0  # without new faults, so that the last job can end within the time


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--json", action="store_true", help="one document instead of lines")
    parser.add_argument("--folder", type=Path, default=Path("runs"), help="where the run folder is made")
    arguments = parser.parse_args()
    return asyncio.run(run(arguments))


async def run(arguments: argparse.Namespace) -> int:
    def say(line: str) -> None:
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    began_at_s = time.monotonic()
    say(f"seed {arguments.seed}, {arguments.faults} faults in at most {arguments.minutes:g} minutes")
    until_s = began_at_s + max(30.0, arguments.minutes * 60.0 - LAST_JOB_S)
    async with start_chaos_run(arguments.folder, say=say) as chaos_run:
        say(f"run folder {chaos_run.root}")
        campaign = Campaign(chaos_run, ChaosJobShape(), faults=arguments.faults, until_s=until_s, seed=arguments.seed)
        try:
            await campaign.run()
        except TimeoutError as error:
            campaign.report.problems.append(str(error))
    took_s = time.monotonic() - began_at_s
    missing = arguments.faults - len(campaign.report.recoveries)
    tell = _as_json if arguments.json else _as_text
    print(tell(campaign.report, seed=arguments.seed, took_s=took_s, wanted=arguments.faults))
    return 1 if campaign.report.problems or missing > 0 else 0


def _as_text(report: Report, *, seed: int, took_s: float, wanted: int) -> str:
    lines = ["", f"{'fault':30} {'landed and recovered':>20} {'median':>8} {'longest':>8}"]
    for fault, (count, median, longest) in report.by_fault().items():
        lines.append(f"{fault:30} {count:20} {median:7.1f}s {longest:7.1f}s")
    if report.times_s:
        total, median, longest = len(report.times_s), statistics.median(report.times_s), max(report.times_s)
        lines.append(f"{'all':30} {total:20} {median:7.1f}s {longest:7.1f}s")
    lines += [
        f"seed {seed}, {took_s / 60:.1f} minutes, {len(report.recoveries)} of {wanted} faults",
        f"{report.jobs} jobs, {report.pushes} pushes, {report.roll_backs} roll-backs",
        f"{report.shrinks} trainers gave way to the web or to balance",
        f"{report.positions} positions trained, {report.quarantined} in quarantine",
        f"{report.heads} checkpoints compared with their data state, {report.heads_missed} gone before they were read",
        *(f"PROBLEM {problem}" for problem in report.problems),
        "every position exactly once in every checkpoint" if not report.problems else "the ledger is NOT in order",
    ]
    return "\n".join(lines)


def _as_json(report: Report, *, seed: int, took_s: float, wanted: int) -> str:
    document = {
        "seed": seed,
        "took_s": round(took_s, 1),
        "wanted": wanted,
        "faults": len(report.recoveries),
        "by_fault": {
            fault: {"count": count, "median_s": round(median, 2), "longest_s": round(longest, 2)}
            for fault, (count, median, longest) in report.by_fault().items()
        },
        "jobs": report.jobs,
        "positions": report.positions,
        "pushes": report.pushes,
        "roll_backs": report.roll_backs,
        "shrinks": report.shrinks,
        "quarantined": report.quarantined,
        "checkpoints": report.heads,
        "checkpoints_missed": report.heads_missed,
        "problems": report.problems,
    }
    return json.dumps(document, indent=1)


if __name__ == "__main__":
    sys.exit(main())
