"""`python -m tests.mutants [--sample 600] [--seed N] [--reach FOLDER] [--survivors]`: which planted faults are noticed.

Exit code 0: the score is at least the one asked for (`--least`).  Each mutant is tried in a copy of the sources.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from tests.mutants.operators import Mutant
from tests.mutants.reach import DIGEST, Reach, measure, read
from tests.mutants.report import document, outcomes_of, page, read_reasons, score
from tests.mutants.targets import all_mutants, sample
from tests.mutants.trial import Outcome, Workshop

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "docs" / "mutants.json"
PAGE = ROOT / "docs" / "mutants.md"


def main() -> int:
    arguments = _arguments()
    folders = arguments.reach or [ROOT / "build" / "reach"]
    if arguments.measure or not all((folder / DIGEST).exists() for folder in folders):
        print("measuring which tests reach which function (half an hour on two quiet cores)", flush=True)
        measure(folders[0], ROOT)
    reach = read(folders)
    everything = all_mutants(ROOT, arguments.only)
    chosen = (
        _survivors(everything)
        if arguments.survivors
        else sample(everything, size=arguments.sample, seed=arguments.seed)
    )
    print(f"{len(chosen)} of {len(everything)} mutants, seed {arguments.seed}", flush=True)
    outcomes = _all_tried(chosen, reach, jobs=arguments.jobs, budget_s=arguments.seconds)
    reasons = read_reasons()
    result = score(outcomes, reasons)
    print(f"score {result:.1%}: {sum(one.is_killed for one in outcomes)} of {len(outcomes)} killed")
    if arguments.keep:
        _keep(outcomes, seed=arguments.seed, total=len(everything))
    if len(outcomes) < len(chosen):
        print(f"{len(chosen) - len(outcomes)} mutants were not tried: see above")
        return 2
    return 0 if result >= arguments.least else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=600, help="how many mutants are drawn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="those of files whose path contains this")
    parser.add_argument(
        "--reach", type=Path, action="append", help="a folder with what `measure` left (may be repeated)"
    )
    parser.add_argument("--measure", action="store_true", help="measure the reach of tests again")
    parser.add_argument("--survivors", action="store_true", help="only those that survived the run that docs/ holds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=240.0, help="one mutant's time, its last test aside")
    parser.add_argument("--least", type=float, default=0.0, help="the score below which the run fails, 0 to 1")
    parser.add_argument("--keep", action="store_true", help="write docs/mutants.json and docs/mutants.md")
    return parser.parse_args()


def _survivors(everything: list[tuple[Mutant, bytes]]) -> list[Mutant]:
    """Found again in today's sources by their keys.  Ends the program where no run was kept."""
    if not KEPT.exists():
        sys.exit(f"no {KEPT.name} in docs: --survivors tries those of a run that was made with --keep")
    kept = {one.mutant.key for one in outcomes_of(json.loads(KEPT.read_text(encoding="utf-8"))) if not one.is_killed}
    return [mutant for mutant, _ in everything if mutant.key in kept]


def _all_tried(chosen: list[Mutant], reach: Reach, *, jobs: int, budget_s: float) -> list[Outcome]:
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in chosen:
        waiting.put(mutant)
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory(prefix="edl-mutants-", ignore_cleanup_errors=True) as folder:

        def work(number: int) -> None:
            shop = Workshop(ROOT, Path(folder) / str(number))
            while not waiting.empty():
                mutant = waiting.get_nowait()
                outcome = shop.try_out(mutant, reach.tests_for(mutant), dict(reach.took_s), budget_s)
                outcomes[mutant.key] = outcome
                mark = "" if outcome.is_killed else f"  {mutant.key}"
                print(f"{len(outcomes):4}/{len(chosen)} {outcome.verdict:11} {outcome.took_s:6.1f} s{mark}", flush=True)

        workers = [threading.Thread(target=work, args=(number,)) for number in range(jobs)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    return [outcomes[mutant.key] for mutant in chosen if mutant.key in outcomes]


def _keep(outcomes: list[Outcome], *, seed: int, total: int) -> None:
    said = subprocess.run(
        ("git", "describe", "--always", "--dirty"), cwd=ROOT, capture_output=True, text=True, check=True
    )
    commit = said.stdout.strip()
    kept = document(outcomes, commit=commit, seed=seed, total=total)
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(outcomes, read_reasons(), commit=commit, seed=seed, total=total), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
