"""One page-wide figure per experiment: utilisation with its bounds, web pods, job sizes.

Under ours lie the published curves (mean, and smallest to largest of ten passes) where there are any.  Colours are
Okabe and Ito's, told apart by colour-blind readers; line styles tell them apart in print.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

from experiments.published.curves import Curves
from experiments.reporting.statistics import Gathered

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAPER: Final = "0.55"
STYLES: Final[Mapping[str, tuple[str, str, float]]] = {  # arm: colour, line, width
    "static": ("#000000", ":", 1.3),
    "edl2017": ("#D55E00", "--", 1.6),
    "ours-scheduler": ("#56B4E9", "-", 1.4),
    "ours-planner+moves": ("#009E73", "-", 1.6),  # the colour of its bound
    "ours-planner": ("#0072B2", "-", 2.0),
}
LABELS: Final = {
    "static": "static, simulated",
    "edl2017": "2017 algorithm, simulated",
    "ours-scheduler": "ours, reclaim: scheduler",
    "ours-planner+moves": "ours, servers move too",
    "ours-planner": "ours, reclaim: planner",
}
PINNED: Final = ("#CC79A7", "--")
FREE: Final = ("#009E73", "-.")


CLIMB: Final = 15  # grid points


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """Content of one figure."""

    title: str
    arms: Sequence[Gathered]  # in the order of `STYLES`
    published: Curves | None
    until_s: float


def draw(drawing: Drawing, file: Path) -> None:
    """Write the figure as PNG."""
    has_web = any(any(arm.mean_curve("web_wanted")) for arm in drawing.arms)
    heights = (3, 1.6, 2.2) if has_web else (3, 2.2)
    with plt.rc_context(
        {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left"}
    ):
        figure, panels = plt.subplots(
            len(heights), 1, figsize=(9.5, 2.6 * len(heights)), sharex=True, height_ratios=heights, layout="constrained"
        )
        figure.suptitle(drawing.title, fontsize=12, fontweight="bold", x=0.01, ha="left")
        draw_use(panels[0], drawing)
        if has_web:
            draw_web(panels[1], drawing)
        draw_sizes(panels[-1], drawing)
        panels[-1].set_xlabel("seconds")
        panels[-1].set_xlim(0, drawing.until_s)
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, dpi=140, metadata={"Software": ""})
        plt.close(figure)


def draw_use(axes: Axes, drawing: Drawing) -> None:
    """Utilisation over time; ours with the range of mixes, and the bounds of what stood."""
    draw_published(axes, drawing, "cpu_request_utilisation_percent")
    for arm in drawing.arms:
        draw_arm(axes, arm, "utilisation_percent")
    ours = next((arm for arm in reversed(drawing.arms) if arm.arm == "ours-planner"), None)
    bounds = [] if ours is None else ours.mean_bounds()
    for (colour, line), column, label in ((PINNED, 1, "bound, servers pinned"), (FREE, 2, "bound, servers free")):
        if bounds:
            axes.plot(
                [row[0] for row in bounds], [row[column] for row in bounds], line, color=colour, lw=1.2, label=label
            )
    axes.set(ylim=(lowest(drawing), 101), ylabel="% of CPU requested", title="Utilisation: requests of running pods")
    axes.grid(axis="y", color="0.9", lw=0.6)
    axes.legend(loc="lower right", ncols=2, fontsize=7.5, framealpha=0.9, edgecolor="none")


def lowest(drawing: Drawing) -> float:
    """Return where the axis begins: the first minute's climb is cut off, it would flatten everything else."""
    curves = [arm.mean_curve("utilisation_percent") for arm in drawing.arms]
    least = min(min(curve[min(CLIMB, len(curve) // 2) :]) for curve in curves)
    return max(0.0, 10 * (least // 10) - 15)


def draw_web(axes: Axes, drawing: Drawing) -> None:
    """Web pods that run, beside those that are wanted."""
    draw_published(axes, drawing, "nginx_running")
    wanted = drawing.arms[-1].mean_curve("web_wanted")
    axes.step(times(drawing.arms[-1], wanted), wanted, where="post", color="0.2", lw=0.8, label="wanted (ours)")
    for arm in drawing.arms:
        draw_arm(axes, arm, "web_running")
    axes.set(ylabel="web pods", title="Web pods running (thin black: wanted, beside ours)")
    axes.set_ylim(bottom=0)


def draw_sizes(axes: Axes, drawing: Drawing) -> None:
    """Each job's trainers in the first pass on the first mix: the 2017 algorithm thin, ours thick."""
    for arm in drawing.arms:
        if arm.arm not in {"edl2017", "ours-planner"}:
            continue
        colour, _, _ = STYLES[arm.arm]
        first = next(iter(arm.by_mix.values()))[0]
        width = 1.0 if arm.arm == "ours-planner" else 0.7
        for number, sizes in enumerate(first.curves["job_sizes"]):
            label = LABELS[arm.arm] if number == 0 else None
            axes.step(times(arm, sizes), sizes, where="post", color=colour, lw=width, alpha=0.75, label=label)
    axes.set(ylabel="trainers", title="Size of each job (one pass, one mix)")
    axes.set_ylim(bottom=0, top=1.2 * max(1.0, axes.get_ylim()[1]))  # the legend stands above the curves
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper right", fontsize=7.5, framealpha=0.9, edgecolor="none")


def draw_published(axes: Axes, drawing: Drawing, quantity: str) -> None:
    """Lay the band of 2017 under everything."""
    if drawing.published is None or not any(drawing.published.bands[quantity].high):
        return
    band = drawing.published.bands[quantity]
    axes.fill_between(band.time_s, band.low, band.high, color=PAPER, alpha=0.3, lw=0, label="2017, published: range")
    axes.plot(band.time_s, band.mean, color=PAPER, lw=1.6, label="2017, published: mean")


def draw_arm(axes: Axes, arm: Gathered, name: str) -> None:
    """Draw the mean over mixes, and the range of the mixes' means where it is ours."""
    colour, line, width = STYLES[arm.arm]
    middle = arm.mean_curve(name)
    at_s = times(arm, middle)
    if arm.arm == "ours-planner" and len(arm.by_mix) > 1:
        curves = [arm.mean_curve(name, mix) for mix in arm.by_mix]
        low, high = ([f(values) for values in zip(*curves, strict=True)] for f in (min, max))
        axes.fill_between(at_s, low, high, color=colour, alpha=0.2, lw=0)
    axes.plot(at_s, middle, color=colour, linestyle=line, lw=width, label=LABELS[arm.arm])


def times(arm: Gathered, values: Sequence[float]) -> list[float]:
    """Return the instants of a curve."""
    step_s = float(next(iter(arm.by_mix.values()))[0].curves["step_s"])
    return [number * step_s for number in range(len(values))]
