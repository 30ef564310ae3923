"""Figure of a run: shares of the cluster, sizes and progress of the jobs, and the faults, over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from experiments.demo.demo_samples import FaultMark, JobSample, Sample

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette: told apart by colour-blind readers and in print.
WEB: Final = "#E69F00"
SERVERS: Final = "#56B4E9"
TRAINERS: Final = "#009E73"
JOB_COLOURS: Final = ("#0072B2", "#CC79A7", "#D55E00", "#000000")
FAULT: Final = "#B22222"


def draw_run(samples: Sequence[Sample], marks: Sequence[FaultMark], path: Path, *, title: str) -> None:
    """Write the figure of a run to `path` (PNG).  Capacity is accounting on one machine: no speed is shown."""
    import matplotlib as mpl  # noqa: PLC0415 - half a second, wanted only here

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    with plt.rc_context(
        {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left"}
    ):
        figure, (use, sizes, servers, progress) = plt.subplots(
            4, 1, figsize=(9.5, 10), sharex=True, height_ratios=(3, 2.4, 1.6, 1.8), layout="constrained"
        )
        figure.suptitle(title, fontsize=12, fontweight="bold", x=0.01, ha="left")
        _draw_use(use, samples)
        _draw_counts(sizes, samples, lambda job: (job.trainers, job.target), minimum=True)
        sizes.set(ylabel="trainers", title="Trainers of each job (dotted: target; thin: minimum)")
        _draw_counts(servers, samples, lambda job: (job.servers, job.servers_target), minimum=False)
        servers.set(ylabel="servers", title="Parameter servers of each job (dotted: target): the model moves with them")
        _draw_progress(progress, samples)
        for axes in (use, sizes, servers, progress):
            _draw_marks(axes, marks, labels=axes is use)
        progress.set_xlabel("seconds since the start")
        progress.set_xlim(0, samples[-1].at_s)
        figure.align_ylabels()
        figure.savefig(path, dpi=150)
        plt.close(figure)


def _draw_use(axes: Axes, samples: Sequence[Sample]) -> None:
    at = [s.at_s for s in samples]
    layers = (
        ("web", WEB, [100 * s.web_millicores / s.capacity_millicores for s in samples]),
        ("servers and masters", SERVERS, [100 * s.server_millicores / s.capacity_millicores for s in samples]),
        ("trainers", TRAINERS, [100 * s.trainer_millicores / s.capacity_millicores for s in samples]),
    )
    floor = [0.0] * len(samples)
    for label, colour, values in layers:
        top = [a + b for a, b in zip(floor, values, strict=True)]
        axes.fill_between(at, floor, top, step="post", color=colour, alpha=0.85, linewidth=0, label=label)
        floor = top
    axes.axhline(100, color="0.4", linewidth=0.8)
    axes.set(ylim=(0, 112), ylabel="% of CPU requested", title="Who has the cluster")
    _place_legend(axes)


def _draw_counts(
    axes: Axes, samples: Sequence[Sample], counts: Callable[[JobSample], tuple[int, int]], *, minimum: bool
) -> None:
    """How many there are and shall be of one role, a line each job that has any: a group has no servers."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - half a second, wanted only here

    at = [s.at_s for s in samples]
    for (name, colour), offset in zip(_job_colours(samples), (0.0, 0.06, -0.06, 0.12), strict=False):
        seen = [(t, s.jobs[name]) for t, s in zip(at, samples, strict=True) if name in s.jobs]
        times, found = [t for t, _ in seen], [counts(job) for _, job in seen]
        if not any(map(any, found)):
            continue
        axes.step(times, [now + offset for now, _ in found], where="post", color=colour, linewidth=1.8, label=name)
        axes.step(times, [goal + offset for _, goal in found], where="post", color=colour, linewidth=0.8, linestyle=":")
        if minimum:
            axes.axhline(seen[0][1].minimum + offset, color=colour, linewidth=0.6, alpha=0.5)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    _place_legend(axes)


def _draw_progress(axes: Axes, samples: Sequence[Sample]) -> None:
    for name, colour in _job_colours(samples):
        seen = [(s.at_s, s.jobs[name]) for s in samples if name in s.jobs and s.jobs[name].total]
        axes.step(
            [t for t, _ in seen],
            [100 * j.committed / j.total for _, j in seen],
            where="post",
            color=colour,
            linewidth=1.5,
            label=name,
        )
    axes.set(ylim=(0, 105), ylabel="% committed", title="Samples in the last checkpoint")


def _draw_marks(axes: Axes, marks: Sequence[FaultMark], *, labels: bool) -> None:
    for mark in marks:
        axes.axvline(mark.at_s, color=FAULT, linewidth=1.0, linestyle="--", alpha=0.8)
        if labels:
            axes.annotate(
                f"{mark.label}\n{mark.job}",
                (mark.at_s, 111),
                fontsize=7,
                color=FAULT,
                ha="center",
                va="top",
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
            )


def _place_legend(axes: Axes) -> None:
    """Above the panel, on the right: nothing is drawn there."""
    axes.legend(loc="lower right", bbox_to_anchor=(1, 0.98), ncols=4, frameon=False, fontsize=8)


def _job_colours(samples: Sequence[Sample]) -> list[tuple[str, str]]:
    names = sorted({name for s in samples for name in s.jobs})
    return list(zip(names, JOB_COLOURS, strict=False))
