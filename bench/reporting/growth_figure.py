"""Figure of the growth of a plan's time, drawn from the committed figures of `bench_planner`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

NAME: Final = re.compile(
    r"growth with (?P<what>\w+): (?P<kind>[\w ]+), "
    r"(?P<nodes>[\d,]+) nodes x (?P<jobs>[\d,]+) jobs, (?P<shapes>[\d,]+) shapes"
)
TITLES: Final = {
    "nodes": "nodes, a job to ten of them, 10 shapes",
    "jobs": "jobs on 1,000 nodes, 10 shapes",
    "shapes": "shapes, 1,000 jobs on 1,000 nodes",
}
LINES: Final = {"cold": {"marker": "o", "color": "#0072B2"}, "after one event": {"marker": "s", "color": "#D55E00"}}


def draw_growth(rows: Iterable[dict[str, Any]], file: Path) -> bool:
    """Draw what the rows tell of growth, on logarithmic axes; False, with nothing written, if they tell nothing."""
    points: defaultdict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        if found := NAME.fullmatch(row["name"]):
            what = found["what"]
            points[what, found["kind"]].append((float(found[what].replace(",", "")), row["value"]))
    if not points:
        return False
    with mpl.rc_context({"font.size": 8, "svg.hashsalt": "edl"}):
        figure = Figure(figsize=(7.2, 2.5), layout="constrained")
        for axes, (what, title) in zip(figure.subplots(1, len(TITLES), sharey=True), TITLES.items(), strict=True):
            for kind, style in LINES.items():
                axes.loglog(
                    *zip(*sorted(points[what, kind]), strict=True), label=kind, linewidth=1, markersize=4, **style
                )
            axes.set_xlabel(title)
            axes.grid(visible=True, which="major", linewidth=0.3)
        figure.axes[0].set_ylabel("CPU time of a plan, ms")
        figure.axes[0].legend(frameon=False)
        figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else {})
    return True
