"""`python -m bench.gpus.idle_figure`: draws docs/reports/idle-gpus.svg, eight GPUs and who computes on them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.figure import Figure

from bench.gpus.idle_scene import HANGS_AT, IDLES_AT, MINUTES, UNUSED_FROM, WAITS_FROM, IdleScene

FILE: Final = Path(__file__).resolve().parents[2] / "docs" / "reports" / "idle-gpus.svg"
COLOURS: Final = {"vision": "#0072B2", "speech": "#D55E00", "notebook": "#999999", "late": "#009E73"}
MARKS: Final = (
    (IDLES_AT, "data of one trainer end"),
    (HANGS_AT, "one trainer hangs"),
    (UNUSED_FROM, "notebook is left"),
    (WAITS_FROM, "late waits"),
)


def draw(scene: IdleScene, file: Path) -> None:
    """Draw the lanes: full where somebody computes, pale where a GPU is held and unused."""
    with mpl.rc_context({"font.size": 8, "svg.hashsalt": "edl"}):
        figure = Figure(figsize=(7.2, 2.9), layout="constrained")
        axes = figure.subplots()
        for number, lane in enumerate(scene.lanes):
            for begin, end, whom, computes in lane.spans:
                alpha = 1.0 if computes else 0.25
                axes.barh(number, end - begin, left=begin, height=0.8, color=COLOURS[whom], alpha=alpha, linewidth=0)
        for number, (at, text) in enumerate(MARKS):
            axes.axvline(at, color="black", linewidth=0.6, linestyle=":")
            row = 0.6 * (number % 2)  # neighbours would touch
            axes.text(at + 0.5, len(scene.lanes) - 0.4 + row, text, fontsize=7, va="bottom")
        for whom, colour in COLOURS.items():
            axes.barh(0, 0, color=colour, label=whom)
        axes.barh(0, 0, color="black", alpha=0.25, label="held, unused")
        axes.set(xlim=(0, MINUTES), ylim=(-0.6, len(scene.lanes) + 1.0), xlabel="minutes", ylabel="GPU")
        axes.set_yticks(range(len(scene.lanes)))
        figure.legend(loc="outside lower center", ncols=5, frameon=False)
        figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else {})


def main() -> None:
    """Play the scene, draw it, and print when each GPU was in other hands."""
    scene = IdleScene()
    scene.run()
    draw(scene, Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)
    print(f"idle trainer given away {scene.given['idle'] - IDLES_AT:.1f} min after its data ended")
    print(f"hung trainer told of after {scene.told_s:.0f} s, replaced after {scene.given['hung'] - HANGS_AT:.1f} min")
    print(f"notebook gave its GPU back {scene.given['notebook'] - WAITS_FROM:.1f} min after somebody waited")
    print(f"sizes at the end: {scene.sizes()}")


if __name__ == "__main__":
    main()
