"""The tables of the report, as rows of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

from experiments.published.published_numbers import Figure
from experiments.reporting.goals import GoalResult
from experiments.reporting.statistics import Groups
from experiments.scenarios.node_mixes import read_mixes

QUANTITIES: Final = {
    "mean_utilisation_percent": "mean utilisation, %",
    "steady_utilisation_percent": "steady utilisation, %",
    "peak_utilisation_percent": "utilisation at 400 web pods, %",
    "off_peak_utilisation_percent": "utilisation at 100 web pods, %",
    "mean_pending_s": "mean pending (no trainer), s",
    "trainable_pending_s": "pending until trainable, s",
    "trainer_seconds": "trainer-seconds",
    "jobs_with_all_servers": "jobs with all servers at the end",
    "jobs_without_trainer": "jobs without a trainer at the end",
    "jain_index": "Jain index at the end",
    "trainers_killed": "trainers killed",
    "trainers_drained": "trainers drained",
    "web_rise_s": "web 100 to 200, median s",
    "web_shortfall_percent": "web shortfall, %",
    "web_shortfall_pod_s": "web shortfall, pod-seconds",
    "web_wait_max_s": "longest wait of a web pod for capacity, s",
    "web_back_at_peak_passes_percent": "passes back at the peak, %",
    "samples_trained": "samples trained",
    "samples_lost": "samples lost",
    "pinned_mean_percent": "bound, servers pinned, mean %",
    "free_mean_percent": "bound, servers free, mean %",
    "price_of_servers_points": "free - pinned, points",
}
OTHER_QUANTITIES: Final = {
    "mean_gpu_utilisation_percent": "mean utilisation of GPUs, %",
    "trainers_mean": "trainers, mean",
    "trainers_removed": "trainers removed",
    "transfers": "of them transfers",
    "all_trainable_at_s": "all jobs trainable at, s",
    "free_is_exact": "free is exact",
}
OF_MOVES: Final = {
    **{
        metric: QUANTITIES[metric]
        for metric in (
            "mean_utilisation_percent",
            "pinned_mean_percent",
            "free_mean_percent",
            "off_peak_utilisation_percent",
            "trainer_seconds",
            "samples_trained",
            "samples_lost",
            "web_shortfall_percent",
            "web_wait_max_s",
        )
    },
    "trainers_removed": "trainers removed",
    "servers_moved": "servers moved",
}
OF_2017: Final = frozenset(
    ["peak_utilisation_percent", "off_peak_utilisation_percent", "web_back_at_peak_passes_percent"]
)
"""Metrics that are meaningful only if the web goes from 400 to 100 and back."""
NEWER_LABELS: Final = {"web_rise_s": "first rise of the web, median s"}
POINTS: Final = 3.0
PERCENT: Final = 15.0


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def number(value: float | None) -> str:
    """Format a number with suitable precision; empty for None."""
    if value is None:
        return ""
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.2f}".rstrip("0").rstrip(".") if abs(value) < 100 else f"{value:.1f}".removesuffix(".0")


def ranged(gathered: Groups, experiment: str, arm: str, metric: str) -> str:
    """Return a figure with its range over mixes; nothing where it was not measured."""
    found = gathered.get((experiment, arm))
    if found is None or not found.has(metric):
        return ""
    result = found.over_mixes(metric)
    if number(result.low) == number(result.high):
        return number(result.value)
    return f"{number(result.value)} ({number(result.low)} to {number(result.high)})"


def mix_rows() -> list[list[str]]:
    """The mixes in use."""
    return [[mix.name, mix.text()] for mix in read_mixes()]


def case_rows(
    gathered: Groups, figures: Mapping[tuple[str, str, str], Figure], case: str, experiment: str
) -> list[list[str]]:
    """Published, recomputed, and every arm as planned."""
    arms = ("static", "edl2017", "ours-scheduler", "ours-planner")
    rows = []
    for metric, label in QUANTITIES.items():
        cells = [ranged(gathered, experiment, arm, metric) for arm in arms]
        on, off = figures.get((case, "on", metric)), figures.get((case, "off", metric))
        published = "" if on is None else number(on.published)
        recomputed = ["" if figure is None else number(figure.recomputed) for figure in (on, off)]
        if any(cells):
            rows.append([label, published, *recomputed, *cells])
    return rows


def calibration_rows(
    gathered: Groups, figures: Mapping[tuple[str, str, str], Figure], case: str, experiment: str
) -> list[list[str]]:
    """The simulated arms of 2017 against what was recomputed, point by point."""
    rows = []
    for arm, key in (("static", "off"), ("edl2017", "on")):
        found = gathered.get((experiment, arm))
        for metric, label in QUANTITIES.items():
            figure = figures.get((case, key, metric))
            reference = None if figure is None else figure.recomputed
            if found is None or reference is None or not found.has(metric):
                continue
            result = found.over_mixes(metric)
            deviation, is_within = compare(metric, result.value, reference)
            extent = f"{number(result.low)} to {number(result.high)}"
            cells = [number(reference), number(result.value), extent, deviation, "yes" if is_within else "**no**"]
            rows.append([arm, label, *cells])
    return rows


def compare(metric: str, value: float, reference: float) -> tuple[str, bool]:
    """Return the deviation as text and whether it is small enough."""
    if metric.endswith("utilisation_percent"):
        return f"{value - reference:+.1f} points", abs(value - reference) <= POINTS
    if not reference:
        return f"{value - reference:+.1f}", abs(value) <= 1.0
    percent = 100 * (value / reference - 1)
    return f"{percent:+.0f} %", abs(percent) <= PERCENT


def goal_rows(verdicts: Sequence[GoalResult]) -> list[list[str]]:
    """One row per goal and arm, over its mixes."""
    rows = []
    for (text, arm), group in groupby(verdicts, key=lambda verdict: (verdict.goal.text, verdict.arm)):
        found = list(group)
        values, limits = [v.value for v in found], [v.limit for v in found]
        met = sum(v.is_met for v in found)
        verdict = f"{met} of {len(found)}" if met == len(found) else f"**{met} of {len(found)}**"
        cells = [extent(values), extent(limits), verdict, bounds_of(found)]
        rows.append([found[0].goal.experiment, arm, text, *cells])
    return rows


def bounds_of(found: Sequence[GoalResult]) -> str:
    """Return the bounds beside a goal on utilisation; empty for other goals."""
    pinned = [v.pinned for v in found if v.pinned is not None]
    free = [v.free for v in found if v.free is not None]
    if not found[0].goal.metric.endswith("utilisation_percent") or not (pinned and free):
        return ""
    return f"{extent(pinned)} / {extent(free)}"


def extent(values: Sequence[float]) -> str:
    """Return the smallest and the largest, or the one that both are."""
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"


def variant_rows(gathered: Groups) -> list[list[str]]:
    """Variants, each below the arm that it varies on the same mixes."""
    metrics = (
        "mean_utilisation_percent",
        "web_wait_max_s",
        "web_shortfall_percent",
        "trainers_removed",
        "transfers",
        "jain_after_last_arrival_min",
    )
    rows = []
    for (experiment, arm), found in gathered.items():
        if not any(name == experiment and "+" in other for name, other in gathered) or not arm.startswith("ours"):
            continue
        cells = [ranged(gathered, experiment, arm, metric) for metric in metrics]
        rows.append([experiment, arm, *cells, str(len(found.by_mix))])
    return rows


def moves_rows(gathered: Groups, experiment: str, arms: Sequence[str]) -> list[list[str]]:
    """Gain and cost of servers' moves, arm by arm."""
    rows = []
    for metric, label in OF_MOVES.items():
        cells = [ranged(gathered, experiment, arm, metric) for arm in arms]
        if any(cells):
            rows.append([label, *cells])
    return rows


def metric_rows(gathered: Groups, experiment: str, arms: Sequence[str]) -> list[list[str]]:
    """Every reported metric of one experiment, arm by arm."""
    rows = []
    for metric, label in {**QUANTITIES, **OTHER_QUANTITIES}.items():
        cells = [ranged(gathered, experiment, arm, metric) for arm in arms]
        if any(cells) and metric not in OF_2017:
            rows.append([NEWER_LABELS.get(metric, label), *cells])
    return rows
