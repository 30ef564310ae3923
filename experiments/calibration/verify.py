"""Verification that a mix reproduces the static arm of 2017 in the simulator.

`mix_search` proposes mixes by a cheap emulation of packing; here the whole arm runs.  Case 2 must reach 82.90 % beside
400 web pods and 44.57 % beside 100, and case 1 its plateau.
"""

from __future__ import annotations

from statistics import mean
from typing import Final

from experiments.arms.pass_setup import PassSetting
from experiments.running.simulation import simulate_pass
from experiments.scenarios.loading import find_scenario
from experiments.scenarios.node_mixes import Mix
from experiments.scenarios.schema import Scenario

EXACT_PERCENT: Final = 0.1
"""Points that case 2 may differ by: there every pod runs, or the mix is refuted."""
PLATEAU_PERCENT: Final = 0.8
"""Points that the plateau of case 1 may differ by: the published passes lie 0.7 points apart."""
EXPECTED: Final = {"peak": 82.90, "off_peak": 44.57, "plateau": 88.66}


def simulate_static(mix: Mix, seed: int, *, passes: int) -> dict[str, float]:
    """Return the static arm's utilisation in percent: at both ends of case 2, and at the plateau of case 1."""
    case_1, case_2 = (find_scenario(f"edl2017-case{n}-logged") for n in (1, 2))
    first = [run(case_1, mix, seed + n) for n in range(passes)]
    second = [run(case_2, mix, seed + n) for n in range(passes)]
    return {
        "peak": round(mean(m["peak_utilisation_percent"] for m in second), 2),
        "off_peak": round(mean(m["off_peak_utilisation_percent"] for m in second), 2),
        "plateau": round(mean(m["steady_utilisation_percent"] for m in first), 2),
    }


def is_like_2017(seen: dict[str, float]) -> bool:
    """True if the figures are those of 2017, within the tolerances above."""
    return (
        abs(seen["peak"] - EXPECTED["peak"]) <= EXACT_PERCENT
        and abs(seen["off_peak"] - EXPECTED["off_peak"]) <= EXACT_PERCENT
        and abs(seen["plateau"] - EXPECTED["plateau"]) <= PLATEAU_PERCENT
    )


def run(scenario: Scenario, mix: Mix, seed: int) -> dict[str, float]:
    """Return the metrics of one pass of the static arm, without bounds."""
    bare = scenario.model_copy(update={"bounds": False})
    setting = PassSetting(
        scenario=bare, mix=mix, arm="static", variant="", seed=seed, physics=bare.physics, policy=bare.policy
    )
    return simulate_pass(setting).metrics
