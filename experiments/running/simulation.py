"""Simulation of one pass: from its setting to its metrics."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import assert_never

from experiments.arms import edl2017, ours, static
from experiments.arms.pass_setup import PassSetting, PassSetup
from experiments.measuring.bound_samples import BoundSampler
from experiments.measuring.pass_metrics import curves, measure
from experiments.measuring.pass_record import read_pass_record

BOUND_EVERY_S = 5.0
LARGE_EVERY_S = 20.0  # on more than 500 nodes
LARGE_NODES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class PassResult:
    """Metrics and curves of one pass; `wall_s`: seconds that its simulation took, bounds included."""

    metrics: dict[str, float]
    curves: dict[str, object]
    wall_s: float


def simulate_pass(setting: PassSetting) -> PassResult:
    """Simulate one pass.  The same setting gives the same result."""
    began = time.perf_counter()
    setup = PassSetup(setting)
    bounds = BoundSampler(setup.cluster, setup.nodes)
    if setting.scenario.bounds and setting.arm != "edl2017":
        period_s = BOUND_EVERY_S if len(setup.nodes) <= LARGE_NODES else LARGE_EVERY_S
        setup.every(
            period_s,
            lambda: bounds.sample(setup.cluster.now() - setup.zero_s),
            first_s=period_s / 2,  # a sample stands for the period around it
        )
    setup.at(setting.scenario.measured_until_s, setup.cluster.record_samples)
    removals = run_arm(setup)
    record = read_pass_record(setup, removals, tuple(bounds.samples))
    return PassResult(metrics=measure(record), curves=dict(curves(record)), wall_s=time.perf_counter() - began)


def run_arm(setup: PassSetup) -> dict[str, int]:
    """Run the arm to the scenario's end; return the planner's removals by cause, of other arms none."""
    match setup.setting.arm:
        case "static":
            static.schedule(setup)
        case "edl2017":
            edl2017.schedule(setup)
        case "ours-scheduler" | "ours-planner":
            return dict(ours.run(setup))
        case _:
            assert_never(setup.setting.arm)
    setup.cluster.run_until(setup.end_s)
    return {}
