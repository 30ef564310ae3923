"""The simulator's word on a pass that is played for real: the same mix, clock and timings, under today's scheduler.

The first pass has the real one's seed; a few others tell how far passes of the simulator lie apart by chance alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from experiments.arms.pass_setup import PassSetting
from experiments.arms.simulation import simulate_pass
from experiments.real.measurement import measure_curves
from experiments.real.recording import Simulated

PASSES: Final = 5


def simulate_counterpart(setting: PassSetting, passes: int = PASSES) -> Simulated:
    """Play the pass on the simulated cluster, once with each of as many seeds."""
    today = replace(setting, is_today=True, scenario=setting.scenario.model_copy(update={"bounds": False}))
    played = [simulate_pass(replace(today, seed=setting.seed + number)) for number in range(passes)]
    metrics = tuple(
        {name: round(value, 4) for name, value in (result.metrics | measure_curves(setting, result.curves)).items()}
        for result in played
    )
    first: dict[str, Any] = played[0].curves
    return Simulated(metrics=metrics, curves=first)
