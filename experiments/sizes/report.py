"""The report of the experiment: `docs/reports/sizes.md` with its figure, from the results that `__main__` keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

from experiments.sizes.knees import EACH, KINDS, NOISE, SIZES_SEEN
from experiments.sizes.trace_pass import ARMS

REPORTS: Final = Path(__file__).resolve().parents[2] / "docs" / "reports"
RESULTS: Final = REPORTS / "sizes.json"
PAGE: Final = REPORTS / "sizes.md"
FIGURE: Final = REPORTS / "experiments" / "sizes.png"
HOUR_S: Final = 3_600.0


def write_report(results: Mapping[str, Any]) -> None:
    """Write results, figure and page."""
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    draw(results, FIGURE)
    PAGE.write_text(page_of(results), encoding="utf-8")


def page_of(results: Mapping[str, Any]) -> str:
    """Return the page."""
    trace = results["trace"]
    head = " | ".join(KINDS)
    seeds = ", ".join(map(str, trace["seeds"]))
    knees = [knee_row(asked, shares) for asked, shares in results["knees"].items()]
    arms = [arm_row(name, found) for name, found in trace["arms"].items()]
    cases = [case_row(name, found) for name, found in results["cases"].items()]
    return f"""# Sizes that pay

Made by `python -m experiments.sizes` (part of `make experiments`). [ADR 0268](../adr/0268-the-experiment-on-sizes.md)
says what it rests on.

## The knee after four sizes

{len(KINDS) * EACH} synthetic curves. Each size is seen for a minute, with an error of {NOISE:.0%}. Goal: after
{SIZES_SEEN} sizes the chosen one is within one allowed step of the true knee for 95 % of the jobs. The planner measures
a job at its largest size and at a quarter of it, and goes where the fit says. The sizes that remain are granted: they
stand for what the demands of others show, and are those that tell most.

| trainer.efficiency | {head} | all |
|---|{"---|" * len(KINDS)}---|
{lines_of(knees)}

## Completion times on a trace

{trace["jobs"]} jobs in {trace["hours"]:g} hours on {trace["nodes"]} nodes of 4 GPUs, after the statistics of Pollux'
workload (draws {seeds}): mean completion time in hours, its ratio to the bound, and the mean of the
medians.{left_out(trace)}

| arm | mean (h) | x bound | median (h) |
|---|---|---|---|
{lines_of(arms)}

![Completion times by arm](experiments/sizes.png)

Pollux' policy is written anew from its paper: fixed batch sizes, a greedy choice in place of the genetic search, and
the true curves given to it. EDL learns them from what it sees, and pauses a job for 2 s per resize.

## The cases of 2017 with efficiency

Mean utilisation in percent, one pass on the first node mix.

| case | off | 0.3 | 0.7 |
|---|---|---|---|
{lines_of(cases)}

At 0.7 growth stops at the knee of the curve that the simulator assumes for these jobs (23 trainers of at most 60), so
the cluster is left emptier by request.
"""


def left_out(trace: Mapping[str, Any]) -> str:
    """Return a paragraph on the arms that were not run, or on some of the draws only; empty without any.

    Completion times of different draws are not comparable, so such an arm stands beside EDL on the same draw.
    """
    partial: Mapping[str, Mapping[str, float]] = trace.get("partial", {})
    told = []
    for name, means in partial.items():
        for seed, mean_s in means.items():
            edl_s = trace["arms"]["EDL"]["means_s"][trace["seeds"].index(int(seed))]
            told.append(f"Draw {seed} alone, {name}: {mean_s / HOUR_S:.3f} h; without it {edl_s / HOUR_S:.3f} h.")
    absent = [arm.name for arm in ARMS if arm.name not in trace["arms"] and arm.name not in partial]
    told += [f"Not run at this size: {'; '.join(absent)}."] if absent else []
    return "\n\n" + "\n".join(told) if told else ""


def lines_of(rows: Sequence[str]) -> str:
    """Return the rows of a table."""
    return "\n".join(rows)


def case_row(name: str, found: Mapping[str, float]) -> str:
    """Return a row of the last table."""
    return f"| {name} | " + " | ".join(f"{found[asked]:.2f}" for asked in ("0", "0.3", "0.7")) + " |"


def knee_row(asked: str, shares: Mapping[str, float]) -> str:
    """Return a row of the first table."""
    return f"| {asked} | " + " | ".join(f"{shares[kind]:.0%}" for kind in (*KINDS, "all")) + " |"


def arm_row(name: str, found: Mapping[str, float]) -> str:
    """Return a row of the second table."""
    return f"| {name} | {found['mean_s'] / HOUR_S:.3f} | {found['to_bound']:.2f} | {found['median_s'] / HOUR_S:.3f} |"


def draw(results: Mapping[str, Any], file: Path) -> None:
    """Write the figure: the mean of each arm beside the bound, and the distribution of completion times."""
    arms: Mapping[str, Any] = results["trace"]["arms"]
    figure, (means, spread) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    names = list(arms)
    means.barh(names[::-1], [arms[name]["mean_s"] / HOUR_S for name in names[::-1]], color="#4878a8")
    means.axvline(arms["bound"]["mean_s"] / HOUR_S, color="black", linestyle="--", linewidth=1)
    means.set_xlabel("mean completion time (h)")
    for name in names:
        times: Sequence[float] = arms[name].get("times_s", ())
        if times:
            shares = [(at + 1) / len(times) for at in range(len(times))]
            spread.plot([one / HOUR_S for one in times], shares, label=name)
    spread.set_xscale("log")
    spread.set_xlabel("completion time (h)")
    spread.set_ylabel("share of the jobs")
    spread.legend(fontsize=7)
    figure.savefig(file, dpi=110, metadata={"Software": None})
    plt.close(figure)
