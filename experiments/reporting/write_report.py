"""Report writer: results and summary as JSON, figures, and `docs/reports/experiments.md`, from stored passes.

Only results of one version of the code are used; other versions are named in the report.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from experiments.errors import RefusedInputError
from experiments.published.curves import Curves, find_curves, read_curves
from experiments.published.published_numbers import read_figures
from experiments.real.recording import REAL, list_recordings
from experiments.reporting.frontier import draw_frontier
from experiments.reporting.goals import GoalResult, evaluate_goals
from experiments.reporting.page import Report, write_page
from experiments.reporting.plots import STYLES, Drawing, draw
from experiments.reporting.real_page import format_real
from experiments.reporting.statistics import Gathered, gather
from experiments.running.code_version import ROOT, describe_machine
from experiments.running.result_store import ResultStore, StoredPass
from experiments.scenarios.loading import list_scenarios
from experiments.scenarios.schema import Scenario

DOCS: Final = ROOT / "docs" / "reports"
FIGURES: Final = DOCS / "experiments"


def write_report(store: ResultStore, seed: int | None = None) -> int:
    """Write everything that was run with the seed, or with the only one there is; returns 0.

    Raises:
        RefusedInputError: this version has no passes with the seed, or it has passes of several.
        MixedCommitsError: a result of another version lies among them.
    """
    passes = store.read_all(seed)
    if not passes:
        others = ", ".join(store.other_versions())
        hint = f"there are results of {others}" if others else "run `python -m experiments run` first"
        origin = f"version {store.version}" + ("" if seed is None else f" with seed {seed}")
        raise RefusedInputError(store.folder, "", f"no passes of {origin}", hint)
    gathered = gather(passes)
    verdicts = evaluate_goals(gathered)
    scenarios = [s for s in list_scenarios() if any(key[0] == s.name for key in gathered)]
    figures, curves = read_figures(), read_curves()  # refused before anything is written
    recordings = list_recordings(store.folder / REAL.name)
    write_results(store, passes)
    (store.folder / "summary.json").write_text(json.dumps(summarise(gathered, verdicts), indent=1) + "\n")
    drawn = draw_figures(scenarios, gathered, curves)
    frontiers = draw_frontier(gathered, FIGURES)
    report = Report(
        version=store.version,
        scenarios=scenarios,
        gathered=gathered,
        verdicts=verdicts,
        figures=figures,
        drawn=drawn | frontiers,
        real=format_real(recordings, list_scenarios(), figures, curves, FIGURES),
    )
    write_page(report, DOCS / "experiments.md")
    print(f"{len(passes)} passes reported in {(DOCS / 'experiments.md').relative_to(ROOT)}")
    return 0


def write_results(store: ResultStore, passes: Sequence[StoredPass]) -> None:
    """Write one file per experiment: who made it, on what machine, and every pass's metrics."""
    machine = describe_machine()
    for name in sorted({one.experiment for one in passes}):
        rows = [
            {"mix": one.mix, "arm": one.arm, "pass": one.number, "seed": one.seed, "metrics": one.metrics}
            for one in passes
            if one.experiment == name
        ]
        document = {"experiment": name, "commit": store.version, "machine": machine, "passes": rows}
        lines = ",\n".join(json.dumps(row) for row in document.pop("passes"))
        head = json.dumps(document)[:-1]
        (store.folder / f"{name}.json").write_text(f'{head}, "passes": [\n{lines}\n]}}\n', encoding="utf-8")


def summarise(gathered: Mapping[tuple[str, str], Gathered], verdicts: Sequence[GoalResult]) -> list[dict[str, Any]]:
    """Return one row per experiment, mix, arm and metric; a metric with two goals has two rows."""
    rows = []
    for (experiment, arm), found in gathered.items():
        for mix, passes in found.by_mix.items():
            bounds = {
                name: round(found.on(mix, f"{name}_mean_percent").value, 3)
                if found.has(f"{name}_mean_percent")
                else None
                for name in ("pinned", "free")
            }
            for metric in sorted(passes[0].metrics):
                if not found.has(metric):
                    continue
                spread = found.on(mix, metric)
                row = {
                    "experiment": experiment,
                    "mix": mix,
                    "arm": arm,
                    "metric": metric,
                    "value": round(spread.value, 4),
                    "low": spread.low,
                    "high": spread.high,
                    **bounds,
                }
                about = [
                    v
                    for v in verdicts
                    if (v.goal.experiment, v.arm, v.mix, v.goal.metric) == (experiment, arm, mix, metric)
                ]
                rows += [{**row, "goal": round(v.limit, 4), "met": v.is_met} for v in about]
                if not about:
                    rows.append({**row, "goal": None, "met": None})
    return rows


def draw_figures(
    scenarios: Sequence[Scenario], gathered: Mapping[tuple[str, str], Gathered], published: tuple[Curves, ...]
) -> dict[str, Path]:
    """Draw one figure per experiment; the published band lies under those with the clock of 2017."""
    drawn = {}
    for scenario in scenarios:
        arms = [gathered[scenario.name, arm] for arm in STYLES if (scenario.name, arm) in gathered]
        if not arms:
            continue
        under = None
        if scenario.published is not None and scenario.clocks:
            under = find_curves(published, scenario.published, is_autoscaled=True)
        file = FIGURES / f"{scenario.name}.png"
        draw(Drawing(title=scenario.title, arms=arms, published=under, until_s=scenario.until_s), file)
        drawn[scenario.name] = file
    return drawn
