"""The part of the page about passes on a real control plane: figure, differences, and load of the machine.

Everything here is computed from the recordings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final

from autoscaler.domain import Role
from experiments.arms.pass_setup import PassSetup, ReplicaChange
from experiments.published.curves import Curves, find_curves
from experiments.published.published_numbers import Figure
from experiments.real.measurement import curves_of, list_phases, measure_real, phase_metric, setting_of
from experiments.real.recording import RealPod, Recording
from experiments.reporting.real_figure import Clock, RealCurves, draw_real
from experiments.reporting.report_tables import QUANTITIES, number, table
from experiments.running.result_store import digest
from experiments.scenarios.schema import Scenario

ORDER: Final = ("edl2017", "ours-scheduler", "ours-planner")
SHOWN_METRICS: Final[Mapping[str, str]] = {
    **{
        name: QUANTITIES[name]
        for name in (
            "mean_utilisation_percent",
            "steady_utilisation_percent",
            "mean_pending_s",
            "trainable_pending_s",
            "trainer_seconds",
            "jain_index",
            "trainers_killed",
            "trainers_drained",
        )
    },
    "trainers_preempted": "of them by the scheduler's preemption",
    "web_rise_s": "web's first rise, s until all run",
    **{name: QUANTITIES[name] for name in ("web_shortfall_percent", "web_wait_max_s")},
    "web_back_at_peak_passes_percent": "back at the peak, % of passes",
}
HEADLINES: Final[Mapping[str, tuple[str, str]]] = {
    "mean_utilisation_percent": ("mean utilisation", "points"),
    "trainers_removed": ("trainers removed", ""),
    "web_wait_max_s": ("the longest wait of a web pod for capacity", "s"),
}

NOISY_PERCENT: Final = 20.0  # of the seconds, no core idle
ONE_GO_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RealPass:
    """A recording with its metrics."""

    recording: Recording
    metrics: Mapping[str, float]

    def simulated(self, metric: str) -> list[float]:
        """The simulator's passes; the first has the real one's seed."""
        return [found[metric] for found in self.recording.simulated.metrics if metric in found]


def format_real(
    recordings: Sequence[Recording],
    scenarios: Sequence[Scenario],
    figures: Mapping[tuple[str, str, str], Figure],
    published: tuple[Curves, ...],
    folder: Path,
) -> list[str]:
    """Draw one figure per experiment into the folder; return the page's part.  Empty where nothing was recorded.

    A recording of another version of its scenario is left out.
    """
    parts: list[str] = []
    by_name = {scenario.name: scenario for scenario in scenarios}
    for scenario in scenarios:
        found = [one for one in recordings if (one.experiment, one.scenario) == (scenario.name, digest(scenario))]
        found.sort(key=lambda one: ORDER.index(one.arm) if one.arm in ORDER else len(ORDER))
        if not found:
            continue
        file = folder / f"{scenario.name}-real.png"
        clock = clock_of(scenario, by_name.get(f"{scenario.name}-logged"))
        under = find_curves(published, scenario.published, is_autoscaled=True) if scenario.published else None
        drawn = [
            RealCurves(
                arm=one.arm,
                real=curves_of(setting_of(one, scenario), one.pods),
                simulated=one.simulated.curves,
            )
            for one in found
        ]
        draw_real(f"{scenario.title}: real scheduler", drawn, under, clock, file)
        passes = [RealPass(recording=one, metrics=measure_real(setting_of(one, scenario), one.pods)) for one in found]
        parts += [f"### {scenario.title} (`{scenario.name}`)\n", f"![{scenario.name}](experiments/{file.name})\n"]
        parts += [CAPTION, *format_headlines(passes), table(head_of(passes), rows_of(passes, scenario, figures)), NOTE]
        parts += [table(MACHINE_HEAD, machine_rows(passes)), "", *format_noise(passes), *format_cpu(passes)]
        parts += format_remarks(passes)
    return ["## On the real scheduler\n", INTRODUCTION, *parts] if parts else []


def clock_of(scenario: Scenario, logged: Scenario | None) -> Clock:
    """Return when the published steps came, and when they were planned; nothing where that is not known."""
    planned = tuple(step.at_s for web in scenario.web for step in web.steps)
    came = logged.clocks["edl2017"].web_at_s if logged is not None and "edl2017" in logged.clocks else ()
    return Clock(came_s=came, planned_s=planned) if len(came) == len(planned) else Clock(came_s=(), planned_s=())


def format_headlines(passes: Sequence[RealPass]) -> list[str]:
    """Say how far the real scheduler is from the simulator's pass with the same seed, arm by arm."""
    lines = ["Difference between the real scheduler and the simulated pass of the same seed:\n"]
    for one in passes:
        differences = []
        for metric, (label, unit) in HEADLINES.items():
            if metric in one.metrics and one.simulated(metric):
                difference = one.metrics[metric] - one.simulated(metric)[0]
                differences.append(f"{label} {signed(difference)}{f' {unit}' if unit else ''}")
        lines.append(f"- {one.recording.arm}: {', '.join(differences)}.")
    return [*lines, ""]


def head_of(passes: Sequence[RealPass]) -> list[str]:
    """The table's head: two columns an arm."""
    return ["quantity", "2017", *(f"{one.recording.arm}, {kind}" for one in passes for kind in ("simulated", "real"))]


def rows_of(
    passes: Sequence[RealPass], scenario: Scenario, figures: Mapping[tuple[str, str, str], Figure]
) -> list[list[str]]:
    """One row per quantity: recomputed from 2017, and for each arm the simulator's passes and the real one."""
    changes = PassSetup(setting_of(passes[0].recording, scenario)).changes
    rows = []
    for metric, words in {**SHOWN_METRICS, **phase_labels(scenario, changes)}.items():
        figure = figures.get((str(scenario.published), "on", metric))
        cells = [cell for one in passes for cell in cells_of(one, metric)]
        if any(cells):
            rows.append([words, "" if figure is None else number(figure.recomputed), *cells])
    return rows


def cells_of(one: RealPass, metric: str) -> tuple[str, str]:
    """The simulator's passes with their range, and the real one with its difference; empty where one has it not."""
    simulated = one.simulated(metric)
    if metric not in one.metrics or not simulated:
        return "", ""
    value, low, high = one.metrics[metric], min(simulated), max(simulated)
    extent = "" if number(low) == number(high) else f" ({number(low)} to {number(high)})"
    return f"{number(simulated[0])}{extent}", f"{number(value)} ({signed(value - simulated[0])})"


def phase_labels(scenario: Scenario, changes: Sequence[ReplicaChange]) -> dict[str, str]:
    """Return the phases between the web's steps, by metric."""
    if len(scenario.web) != 1:
        return {}
    phases = list_phases(changes, scenario.web[0].replicas, scenario.until_s)
    return {
        phase_metric(phase): f"utilisation {phase.from_s:g} to {phase.until_s:g} s, {phase.web} web pods wanted, %"
        for phase in phases
    }


def machine_rows(passes: Sequence[RealPass]) -> list[list[str]]:
    """Machine and version of each pass."""
    rows = []
    for one in passes:
        machine = one.recording.machine
        rows.append(
            [
                one.recording.arm,
                f"`{one.recording.version}`",
                one.recording.begun,
                str(machine.cores),
                f"{number(machine.load_mean)} / {number(machine.load_max)}",
                number(machine.busy_percent),
                number(machine.saturated_percent),
                number(machine.late_s),
                number(machine.late_beats_percent),
                number(pace_s(one.recording.pods)),
            ]
        )
    return rows


def pace_s(pods: Sequence[RealPod]) -> float | None:
    """Return the median time between two trainers that were created in one go: what a write takes, if one follows
    the other.  None: never were there two."""
    instants = sorted(pod.created_at_s for pod in pods if pod.role is Role.TRAINER)
    gaps = [after - before for before, after in pairwise(instants) if after - before < ONE_GO_S]
    return median(gaps) if gaps else None


def format_noise(passes: Sequence[RealPass]) -> list[str]:
    """Text about passes on a busy machine, whose waits are not caused by the scheduler alone."""
    lines = []
    for one in passes:
        machine = one.recording.machine
        own_s = sum(machine.cpu_s.values())
        if machine.saturated_percent < NOISY_PERCENT:
            continue
        lines.append(
            f"**{one.recording.arm} ran on a busy machine**: in {number(machine.saturated_percent)} % of "
            f"the seconds no core was idle; {number(machine.others_cpu_s)} CPU seconds went to other programs, "
            f"{number(own_s)} to the pass.  On a quiet machine its waits may be shorter.\n"
        )
    return lines


def format_cpu(passes: Sequence[RealPass]) -> list[str]:
    """CPU seconds by program of the pass."""
    head = ("CPU seconds", *(one.recording.arm for one in passes))
    names = sorted({name for one in passes for name in one.recording.machine.cpu_s})
    rows = [[name, *(number(one.recording.machine.cpu_s.get(name)) for one in passes)] for name in names]
    rows.append(["everything else on the machine", *(number(one.recording.machine.others_cpu_s) for one in passes)])
    return [table(head, rows), ""]


def format_remarks(passes: Sequence[RealPass]) -> list[str]:
    """Irregularities, and evictions as the operator counted them."""
    lines = [f"- {one.recording.arm}: {remark}" for one in passes for remark in one.recording.remarks]
    for one in passes:
        if one.recording.evictions:
            counted = ", ".join(f"{count} by {by}" for by, count in sorted(one.recording.evictions.items()))
            lines.append(
                f"- {one.recording.arm}: trainers made to leave as the operator counted, to the end: {counted}"
            )
    return [*lines, ""] if lines else []


def signed(value: float) -> str:
    """Return a difference with its sign."""
    size = number(abs(value))
    return size if size == "0" else f"{'+' if value > 0 else '-'}{size}"


MACHINE_HEAD = (
    "arm",
    "version",
    "begun",
    "cores",
    "load, mean / most",
    "busy, %",
    "seconds with no core idle, %",
    "latest step, s",
    "beats late by 0.5 s, %",
    "between two new trainers, median s",
)

INTRODUCTION = """One pass of each arm in real time on kube-apiserver, kube-scheduler, kube-controller-manager and etcd
(`make experiments-real`), on nodes that run nothing but in all else are like any others (KWOK).  The algorithm of 2017
is the simulator's own, over ReplicaSets and batch Jobs; ours is the operator as the chart installs it.  Pods start and
leave with the simulator's timings, and controllers and scheduler write at the rates that Kubernetes has by default.
"""

CAPTION = """Grey: published, mean and range of ten passes, each step of the web moved to where it was planned (in the
logs they came up to 45 s late).  Dashed: the simulator, the same mix and seed, under today's scheduler in every arm;
elsewhere on this page the algorithm of 2017 meets the scheduler of Kubernetes 1.6.
"""

NOTE = """
"Simulated" is the pass with the real one's seed, in brackets the least and the most of five seeds; beside the real
figure is its difference from that pass.  A real pass is one sample: its own spread was not measured.  The machine:
"""
