"""`python -m tests.mutants [--within PREFIXES] [--tests PLACES] [--only survivors|untried] [--keep]`.

Says which planted faults the tests notice.  Exit code 0: the score is at least the one asked for (`--least`).  Each
mutant is tried in a copy of the sources.
"""

from __future__ import annotations

import argparse
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.mutants.imports import files_of_tests, importers, nearest
from tests.mutants.operators import Mutant
from tests.mutants.reach import Reach, measure, read, with_imports
from tests.mutants.report import document, merged, outcomes_of, page, read_reasons, score
from tests.mutants.targets import all_mutants, sample, target_files
from tests.mutants.trial import Outcome, Workshop

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "docs" / "reports" / "mutants.json"
PAGE = ROOT / "docs" / "reports" / "mutants.md"
IN_PROCESS = "tests/unit,tests/property,tests/protocol,tests/perturb"


def main() -> int:
    arguments = _arguments()
    everything = all_mutants(ROOT)
    drawn = sample(everything, size=arguments.sample, seed=arguments.seed)
    kept = [
        one
        for file in (KEPT, *arguments.merge)
        if file.exists()
        for one in outcomes_of(file.read_text(encoding="utf-8"))
    ]
    chosen = _chosen(drawn, kept, within=tuple(arguments.within.split(",")), only=arguments.only)
    print(
        f"{len(chosen)} mutants of a draw of {len(drawn)} out of {len(everything)}, seed {arguments.seed}", flush=True
    )
    commit = _said("git", "rev-parse", "--short", "HEAD")
    tried: list[Outcome] = []

    def write() -> list[Outcome]:
        together = merged(kept, tried, drawn)
        KEPT.write_text(document(together, seed=arguments.seed, drawn=len(drawn)), encoding="utf-8")
        return together

    def keep(outcome: Outcome) -> None:
        tried.append(replace(outcome, commit=commit))
        mark = "" if outcome.is_killed else f"  {outcome.mutant.key}"
        print(f"{len(tried):4}/{len(chosen)} {outcome.verdict:11} {outcome.took_s:6.1f} s{mark}", flush=True)
        if arguments.keep:
            write()

    if chosen:
        began_s, limit_s = time.monotonic(), arguments.minutes * 60
        reach = _reach(arguments, [mutant.path for mutant in chosen], began_s + limit_s / 2)
        _try_all(chosen, reach, keep, jobs=arguments.jobs, budget_s=arguments.seconds, until_s=began_s + limit_s)
    reasons = read_reasons()
    result = score(tried, reasons)
    print(f"score {result:.1%}: {sum(one.is_killed for one in tried)} of {len(tried)} killed")
    if arguments.keep:
        told = page(write(), reasons, seed=arguments.seed, drawn=len(drawn), total=len(everything))
        PAGE.write_text(told, encoding="utf-8")
    if len(tried) < len(chosen):
        print(f"{len(chosen) - len(tried)} mutants were not tried: see above")
        return 2
    return 0 if not tried or result >= arguments.least else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=600, help="how many mutants are drawn")
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("--within", default="", help="those of the draw whose path begins so (a list with commas)")
    parser.add_argument("--only", choices=("survivors", "untried", "none"), help="as docs/reports/mutants.json has it")
    parser.add_argument("--tests", default=IN_PROCESS, help="folders or files of tests that may notice")
    parser.add_argument("--nearest", type=int, help="of each module so many files of tests, the nearest by imports")
    parser.add_argument("--reach", type=Path, default=ROOT / "build" / "reach", help="what was measured stays here")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=240.0, help="one mutant's time, its last test aside")
    parser.add_argument(
        "--minutes", type=float, default=1e6, help="nothing is begun after so long, half of it for measuring"
    )
    parser.add_argument("--least", type=float, default=0.0, help="the score below which the run fails, 0 to 1")
    parser.add_argument("--merge", type=Path, action="append", default=[], help="another run's mutants.json")
    parser.add_argument(
        "--keep", action="store_true", help="merge into docs/reports/mutants.json, write docs/reports/mutants.md"
    )
    return parser.parse_args()


def _chosen(drawn: list[Mutant], kept: list[Outcome], *, within: tuple[str, ...], only: str | None) -> list[Mutant]:
    known = {one.mutant.key: one for one in kept}
    wanted: Callable[[Outcome | None], bool] = {
        None: lambda _: True,
        "survivors": lambda one: one is not None and not one.is_killed,
        "untried": lambda one: one is None,
        "none": lambda _: False,
    }[only]
    return [mutant for mutant in drawn if mutant.path.startswith(within) and wanted(known.get(mutant.key))]


def _reach(arguments: argparse.Namespace, paths: list[str], until_s: float) -> Reach:
    """The reach of the tests that matter here: those that import a module which is mutated, and those named by file."""
    places = arguments.tests.split(",")
    files = files_of_tests(places, ROOT)
    if arguments.nearest:
        files = sorted({name for path in set(paths) for name in nearest(files, path, ROOT)[: arguments.nearest]})
    else:
        within = tuple(arguments.within.split(","))
        targets = {path for path in target_files(ROOT) if path.startswith(within)}
        files = sorted({*importers(files, targets, ROOT), *(place for place in places if place.endswith(".py"))})
    measured = measure(arguments.reach, files, ROOT, until_s)
    return with_imports(read(arguments.reach, measured), measured, paths, ROOT)


def _try_all(
    chosen: list[Mutant],
    reach: Reach,
    keep: Callable[[Outcome], None],
    *,
    jobs: int,
    budget_s: float,
    until_s: float,
) -> None:
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in chosen:
        waiting.put(mutant)
    one_at_a_time = threading.Lock()
    files = sorted({name.partition("::")[0] for name in reach.took_s})
    with tempfile.TemporaryDirectory(prefix="edl-mutants-", ignore_cleanup_errors=True) as folder:

        def work(number: int) -> None:
            shop = Workshop(ROOT, Path(folder) / str(number), files)
            while time.monotonic() < until_s:
                try:
                    mutant = waiting.get_nowait()
                except queue.Empty:
                    break
                outcome = shop.try_out(mutant, reach.tests_for(mutant), dict(reach.took_s), budget_s)
                with one_at_a_time:
                    keep(outcome)
            shop.close()

        workers = [threading.Thread(target=work, args=(number,)) for number in range(jobs)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


def _said(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
