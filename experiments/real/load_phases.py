"""What a pass used between two steps of the web: where simulator and real scheduler part, the phase tells why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.arms.pass_setup import ReplicaChange


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPhase:
    """From one step of the web to the next, in the scenario's time; `web` pods are wanted."""

    from_s: float
    until_s: float
    web: int


def list_phases(changes: Sequence[ReplicaChange], web: int, until_s: float) -> list[LoadPhase]:
    """Return the phases of a scenario with one web of so many pods at its beginning, up to an instant."""
    instants = [0.0, *(change.at_s for change in changes if change.at_s < until_s), until_s]
    wanted = [web, *(change.wanted for change in changes)]
    return [
        LoadPhase(from_s=from_s, until_s=to_s, web=count)
        for from_s, to_s, count in zip(instants[:-1], instants[1:], wanted, strict=False)
    ]


def name_of(phase: LoadPhase) -> str:
    """Return the metric's name: phases are told by their beginning."""
    return f"utilisation_from_{phase.from_s:g}_s_percent"


def measure_phases(phases: Sequence[LoadPhase], curve: Sequence[float], step_s: float) -> Mapping[str, float]:
    """Return the mean of a curve over each phase; a point of the curve stands for the step that begins there."""
    found = {}
    for phase in phases:
        points = [value for number, value in enumerate(curve) if phase.from_s <= number * step_s < phase.until_s]
        if points:
            found[name_of(phase)] = sum(points) / len(points)
    return found
