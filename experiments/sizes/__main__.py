"""The experiment on sizes and its report: `python -m experiments.sizes [--jobs N --hours H --nodes N --seeds 1 2]`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from os import cpu_count
from statistics import mean, median
from typing import Any, Final

from experiments.sizes.bound import bound_of_mean_s
from experiments.sizes.cases_2017 import CASES, measure_case
from experiments.sizes.knees import EACH, KINDS, find_knee, list_jobs
from experiments.sizes.trace_pass import ARMS, Arm, simulate
from experiments.sizes.workload import GPUS, HOURS, JOBS, NODES, draw_trace

EFFICIENCIES: Final = (0.3, 0.5, 0.7)
SEEDS: Final = (1, 2, 3)
ASKED: Final = (0.0, 0.3, 0.7)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything and write the report; 0 when done."""
    parser = argparse.ArgumentParser(prog="python -m experiments.sizes", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--hours", type=float, default=float(HOURS))
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--workers", type=int, default=cpu_count() or 1)
    given = parser.parse_args(arguments)
    trace = run_trace(given.jobs, given.hours, given.nodes, given.seeds, given.workers)
    results = {"knees": run_knees(), "trace": trace, "cases": run_cases(given.workers)}
    from experiments.reporting.html_report import write_html  # noqa: PLC0415 - only a finished run needs them
    from experiments.sizes.report import write_report  # noqa: PLC0415 - matplotlib takes half a second

    write_report(results)
    write_html()
    return 0


def run_knees(each: int = EACH) -> dict[str, dict[str, float]]:
    """Return the share of the jobs within one step of their knee, by efficiency and kind."""
    found: dict[str, dict[str, float]] = {}
    for asked in EFFICIENCIES:
        results = [find_knee(job, asked) for job in list_jobs(each)]
        near = {kind: [one.steps_off <= 1 for one in results if one.kind == kind] for kind in KINDS}
        found[f"{asked:g}"] = {kind: mean(those) for kind, those in near.items()}
        found[f"{asked:g}"]["all"] = mean(one for those in near.values() for one in those)
    return found


def run_trace(jobs: int, hours: float, nodes: int, seeds: Sequence[int], workers: int) -> dict[str, Any]:
    """Return each arm's completion times over all draws of the trace, and the bound."""
    tasks = [(arm, seed, jobs, hours, nodes) for seed in seeds for arm in ARMS]
    with ProcessPoolExecutor(max_workers=workers) as pool:
        times = dict(zip([(arm.name, seed) for arm, seed, *_ in tasks], pool.map(times_of, tasks), strict=True))
    bounds_s = [bound_of_mean_s(draw_trace(seed, jobs=jobs, hours=hours), nodes * GPUS) for seed in seeds]
    bound_s = mean(bounds_s)
    arms: dict[str, Any] = {}
    for arm in ARMS:
        passes = [times[arm.name, seed] for seed in seeds]
        arms[arm.name] = {
            "mean_s": round(mean(map(mean, passes)), 1),
            "median_s": round(mean(map(median, passes)), 1),
            "to_bound": round(mean(map(mean, passes)) / bound_s, 3),
            "means_s": [round(mean(one), 1) for one in passes],
            "times_s": sorted(round(one, 1) for those in passes for one in those),
        }
    arms["bound"] = {"mean_s": round(bound_s, 1), "median_s": 0.0, "to_bound": 1.0}
    return {"jobs": jobs, "hours": hours, "nodes": nodes, "seeds": list(seeds), "arms": arms}


def run_cases(workers: int) -> dict[str, dict[str, float]]:
    """Return the mean utilisation of EDL on the cases of 2017, by efficiency."""
    tasks = [(case, asked, 1) for case in CASES for asked in ASKED]
    with ProcessPoolExecutor(max_workers=workers) as pool:
        found = dict(zip(tasks, pool.map(measure_case, tasks), strict=True))
    return {
        case: {f"{asked:g}": round(found[case, asked, 1]["mean_utilisation_percent"], 2) for asked in ASKED}
        for case in CASES
    }


def times_of(task: tuple[Arm, int, int, float, int]) -> list[float]:
    """Return the completion times of one pass."""
    arm, seed, jobs, hours, nodes = task
    began = time.perf_counter()
    found = simulate(draw_trace(seed, jobs=jobs, hours=hours), arm, nodes=nodes, seed=seed)
    took_s = time.perf_counter() - began
    print(
        f"{arm.name}, seed {seed}: {mean(found.values()) / 3600:.3f} h, simulated in {took_s:.0f} s",
        file=sys.stderr,
        flush=True,
    )
    return list(found.values())


if __name__ == "__main__":
    sys.exit(main())
