"""`python -m tests.chaos.moves --faults 300 --resizes 100 --minutes 30 --seed N [--json]`: resizes under real signals.

Exit code 0: as many faults and resizes as asked for came about, the job got over each, and every promise held.
The report also stands in the run folder, as report.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
from pathlib import Path

from bench.__main__ import MOVED
from tests.chaos.chaos_run import start_etcd_members
from tests.chaos.moves.campaign import MovesCampaign
from tests.chaos.moves.failpoints import Step
from tests.chaos.moves.job_kinds import ChaosJobKind
from tests.chaos.moves.processes import MovesJobShape
from tests.chaos.moves.report import RequestedCounts, as_document, as_text, missing
from tests.chaos.moves.resize_plans import RandomPlan
from tests.chaos.report_files import machine, write_report

LAST_JOB_S = 150.0  # without new resizes, so that the last job can end within the time


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.moves", description=__doc__)
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--resizes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--steps", type=_steps, default=tuple(Step), help=f"of {','.join(Step)}")
    parser.add_argument("--kinds", type=_kinds, default=tuple(ChaosJobKind), help=f"of {','.join(_words())}")
    parser.add_argument("--json", action="store_true", help="one document instead of lines")
    parser.add_argument(
        "--keep", action="store_true", help="also into docs/reports/chaos-moves.json and docs/reports/benchmarks.md"
    )
    parser.add_argument("--folder", type=Path, default=Path("runs"), help="where the run folder is made")
    return asyncio.run(run(parser.parse_args()))


def _steps(text: str) -> tuple[Step, ...]:
    return tuple(Step(word.strip().upper()) for word in text.split(","))


def _words() -> dict[str, ChaosJobKind]:
    return {kind.name.lower(): kind for kind in ChaosJobKind}


def _kinds(text: str) -> tuple[ChaosJobKind, ...]:
    return tuple(_words()[word.strip().lower()] for word in text.split(","))


async def run(arguments: argparse.Namespace) -> int:
    def say(line: str) -> None:
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    began_at_s, load = time.monotonic(), os.getloadavg()[0]
    wanted = RequestedCounts(faults=arguments.faults, resizes=arguments.resizes, seed=arguments.seed)
    rng = random.Random(wanted.seed)
    plan = RandomPlan(rng, faults=wanted.faults, resizes=wanted.resizes, steps=arguments.steps)
    until_s = began_at_s + max(30.0, arguments.minutes * 60.0 - LAST_JOB_S)
    folder = arguments.folder / f"moves-{os.getpid()}"
    await asyncio.to_thread(folder.mkdir, parents=True)
    say(f"seed {wanted.seed}, {wanted.faults} faults over {wanted.resizes} resizes; run folder {folder}")
    async with start_etcd_members(folder, 3, say) as etcd:
        campaign = MovesCampaign(folder, etcd, plan=plan, rng=rng, until_s=until_s, say=say)
        try:
            await campaign.run(MovesJobShape(), arguments.kinds)
        except (TimeoutError, RuntimeError) as error:
            campaign.report.problems.append(str(error))
    report, took_s = campaign.report, time.monotonic() - began_at_s
    document = as_document(report, wanted, took_s) | machine(load)
    await asyncio.to_thread(write_report, document, [folder / "report.json", *([MOVED] if arguments.keep else [])])
    print(json.dumps(document, indent=1) if arguments.json else as_text(report, wanted, took_s))
    return 1 if report.problems or missing(report, wanted) else 0


if __name__ == "__main__":
    sys.exit(main())
