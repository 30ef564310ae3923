"""Frontiers: what one setting costs and brings, over its values, on the mixes on which it was run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from matplotlib import pyplot as plt

from experiments.reporting.statistics import Gathered, Groups

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLANNER: Final = "ours-planner"
HEADROOM: Final = {0: PLANNER, 5: f"{PLANNER}+headroom-5", 10: f"{PLANNER}+headroom-10", 13: f"{PLANNER}+headroom-13"}
DRAIN: Final = {2: PLANNER, 10: f"{PLANNER}+drain-10s", 30: f"{PLANNER}+drain-30s"}
TRANSFERS: Final = {
    0: f"{PLANNER}+transfers-0",
    30: f"{PLANNER}+transfers-30",
    90: PLANNER,  # a quarter of some 360 trainers
    120: f"{PLANNER}+transfers-120",
    600: f"{PLANNER}+transfers-600",
}
TITLES: Final = {
    "mean_utilisation_percent": "mean utilisation, %",
    "web_wait_max_s": "longest wait of a web pod, s",
    "web_shortfall_percent": "web shortfall, %",
    "trainers_removed": "trainers removed",
    "jain_after_last_arrival_min": "least Jain index after the last arrival",
}
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73")


def draw_frontier(gathered: Groups, folder: Path) -> dict[str, Path]:
    """Draw the frontiers whose points were run; returns their files by name."""
    wanted = {
        "headroom": ("edl2017-case2", HEADROOM, "% of CPU kept free for the web"),
        "drain": ("edl2017-case2", DRAIN, "seconds that a trainer needs to hand over"),
        "transfers": ("edl2017-case1", TRANSFERS, "transfers allowed per minute (0: none)"),
    }
    shown = {
        "headroom": ("mean_utilisation_percent", "web_wait_max_s", "web_shortfall_percent"),
        "drain": ("mean_utilisation_percent", "web_wait_max_s", "web_shortfall_percent"),
        "transfers": ("mean_utilisation_percent", "trainers_removed", "jain_after_last_arrival_min"),
    }
    drawn = {}
    for name, (experiment, arms, label) in wanted.items():
        points = {x: gathered[experiment, arm] for x, arm in arms.items() if (experiment, arm) in gathered}
        if len(points) > 1:
            file = folder / f"frontier-{name}.png"
            draw_points(points, shown[name], label, file)
            drawn[f"frontier-{name}"] = file
    return drawn


def common_mixes(points: Mapping[int, Gathered]) -> list[str]:
    """Return the mixes on which every point was run: only there are they compared."""
    return sorted(set.intersection(*(set(point.by_mix) for point in points.values())))


def draw_points(points: Mapping[int, Gathered], metrics: tuple[str, ...], label: str, file: Path) -> None:
    """One panel a metric; a line a mix."""
    with plt.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure, panels = plt.subplots(1, len(metrics), figsize=(9.5, 2.6), layout="constrained")
        for axes, metric, colour in zip(panels, metrics, COLOURS, strict=True):
            draw_metric(axes, points, metric, colour)
            axes.set_xlabel(label, fontsize=7.5)
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, dpi=140, metadata={"Software": ""})
        plt.close(figure)


def draw_metric(axes: Axes, points: Mapping[int, Gathered], metric: str, colour: str) -> None:
    """Draw one metric over the setting's values."""
    places = range(len(points))
    for mix, line in zip(common_mixes(points), ("o-", "s--", "^:", "v-."), strict=False):
        values = [point.on(mix, metric).value for point in points.values()]
        axes.plot(places, values, line, color=colour, ms=4, lw=1.2, label=mix)
    axes.set_xticks(list(places), [str(x) for x in points])
    axes.set_title(TITLES[metric], fontsize=8.5, loc="left")
    axes.legend(fontsize=7, frameon=False)
