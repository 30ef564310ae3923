"""One pass from its setting to its numbers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import assert_never

from experiments.arms import edl2017, ours, static
from experiments.arms.stage import Setting, Stage
from experiments.measuring.bounding import BoundSampler
from experiments.measuring.metrics import curves, measure
from experiments.measuring.take import make_take

BOUND_EVERY_S = 5.0
LARGE_EVERY_S = 20.0  # on more than 500 nodes
LARGE_NODES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class PassResult:
    """The numbers of one pass; `wall_s` is what it took to simulate, bounds included."""

    metrics: dict[str, float]
    curves: dict[str, object]
    wall_s: float


def play(setting: Setting) -> PassResult:
    """Simulate one pass.  The same setting gives the same result."""
    began = time.perf_counter()
    stage = Stage(setting)
    bounds = BoundSampler(stage.cluster, stage.nodes)
    if setting.scenario.bounds and setting.arm != "edl2017":
        period_s = BOUND_EVERY_S if len(stage.nodes) <= LARGE_NODES else LARGE_EVERY_S
        stage.every(
            period_s,
            lambda: bounds.sample(stage.cluster.now() - stage.zero_s),
            first_s=period_s / 2,  # a sample stands for the period around it
        )
    stage.at(setting.scenario.measured_until_s, stage.cluster.settle)
    removals = act(stage)
    take = make_take(stage, removals, tuple(bounds.samples))
    return PassResult(metrics=measure(take), curves=dict(curves(take)), wall_s=time.perf_counter() - began)


def act(stage: Stage) -> dict[str, int]:
    """Let the arm meet the stage to its end; return removals by cause where the planner made them."""
    match stage.setting.arm:
        case "static":
            static.act(stage)
        case "edl2017":
            edl2017.act(stage)
        case "ours-scheduler" | "ours-planner":
            return dict(ours.run(stage))
        case _:
            assert_never(stage.setting.arm)
    stage.cluster.run_until(stage.end_s)
    return {}
