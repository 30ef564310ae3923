"""One figure: each arm on the real scheduler, over the simulator's pass of the same setting and the published curve.

The published steps of the web came later than planned: its curve is drawn with each step moved to where it was planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl

mpl.use("Agg")
import numpy as np
from matplotlib import pyplot as plt

from experiments.published.curves import Curves
from experiments.reporting.plots import LABELS, PAPER, STYLES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

USE: Final = ("utilisation_percent", "cpu_request_utilisation_percent")
WEB: Final = ("web_running", "nginx_running")
"""Of a pass, and of what was published."""

LEAST_PERCENT: Final = 60.0  # the climb at the beginning is cut off, it would flatten everything else


@dataclass(frozen=True, slots=True, kw_only=True)
class RealCurves:
    """One arm: its curves on the real scheduler and on the simulated cluster."""

    arm: str
    real: Mapping[str, Any]
    simulated: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """When the published steps of the web came, and when they were planned."""

    came_s: tuple[float, ...]
    planned_s: tuple[float, ...]

    def planned(self, at_s: Sequence[float]) -> list[float]:
        """Return published instants on the clock of the plan; after the last step the clocks run in parallel."""
        late_s = self.came_s[-1] - self.planned_s[-1] if self.came_s else 0.0
        last_s = max([*at_s, *self.came_s])
        came, planned = [0.0, *self.came_s, last_s + 1.0], [0.0, *self.planned_s, last_s + 1.0 - late_s]
        return [float(value) for value in np.interp(at_s, came, planned)]


def draw_real(title: str, arms: Sequence[RealCurves], published: Curves | None, clock: Clock, file: Path) -> None:
    """Write the figure as PNG: a column an arm, use above, web pods below."""
    with plt.rc_context(
        {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left"}
    ):
        figure, panels = plt.subplots(
            2,
            len(arms),
            figsize=(4.6 * len(arms), 6.0),
            sharex=True,
            sharey="row",
            squeeze=False,
            height_ratios=(3, 2),
            layout="constrained",
        )
        figure.suptitle(title, fontsize=12, fontweight="bold", x=0.01, ha="left")
        for column, arm in enumerate(arms):
            use, web = panels[0][column], panels[1][column]
            draw_panel(use, arm, USE, published, clock)
            draw_panel(web, arm, WEB, published, clock)
            wanted = arm.real["web_wanted"]
            web.step(times(arm.real, wanted), wanted, where="post", color="0.2", lw=0.8, label="wanted")
            use.set_title(LABELS[arm.arm].removesuffix(", simulated"))
            use.set_ylim(LEAST_PERCENT, 100)
            use.grid(axis="y", color="0.9", lw=0.6)
            use.legend(loc="lower right", fontsize=7.5, framealpha=0.9, edgecolor="none")
            web.set_ylim(bottom=0)
            web.set_xlim(0, times(arm.real, wanted)[-1])
            web.set_xlabel("seconds")
        panels[0][0].set_ylabel("% of CPU requested by running pods")
        panels[1][0].set_ylabel("web pods running (thin: wanted)")
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, dpi=130, metadata={"Software": ""})
        plt.close(figure)


def draw_panel(axes: Axes, arm: RealCurves, names: tuple[str, str], published: Curves | None, clock: Clock) -> None:
    """Draw the three curves of one quantity."""
    name, quantity = names
    if published is not None:
        band = published.bands[quantity]
        at_s = clock.planned(band.time_s)
        axes.fill_between(at_s, band.low, band.high, color=PAPER, alpha=0.3, lw=0)
        axes.plot(at_s, band.mean, color=PAPER, lw=1.6, label="2017, published (ten passes)")
    axes.plot(
        times(arm.simulated, arm.simulated[name]), arm.simulated[name], "--", color="0.1", lw=1.0, label="simulator"
    )
    colour = STYLES[arm.arm][0]
    axes.plot(times(arm.real, arm.real[name]), arm.real[name], color=colour, lw=1.8, label="real scheduler")


def times(curves: Mapping[str, Any], values: Sequence[float]) -> list[float]:
    return [number * float(curves["step_s"]) for number in range(len(values))]
