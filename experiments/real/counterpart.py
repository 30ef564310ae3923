"""The simulator's word on a pass that is played for real: the same mix, clock and timings, under today's scheduler.

The first pass has the real one's seed; a few others tell how far passes of the simulator lie apart by chance alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from experiments.arms.playing import play
from experiments.arms.stage import Setting
from experiments.real.recording import Simulated
from experiments.real.taking import measure_curves

PASSES: Final = 5


def simulate(setting: Setting, passes: int = PASSES) -> Simulated:
    """Play the pass on the simulated cluster, once with each of as many seeds."""
    today = replace(setting, is_today=True, scenario=setting.scenario.model_copy(update={"bounds": False}))
    played = [play(replace(today, seed=setting.seed + number)) for number in range(passes)]
    metrics = tuple(
        {name: round(value, 4) for name, value in (result.metrics | measure_curves(setting, result.curves)).items()}
        for result in played
    )
    first: dict[str, Any] = played[0].curves
    return Simulated(metrics=metrics, curves=first)
