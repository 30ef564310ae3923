"""The work of a plan for a gang of thousands, in calls of functions: a bound on the time of everybody's plans (A11)."""

import sys

import pytest

from autoscaler.domain import Bottleneck, ClusterView
from autoscaler.planner import plan
from autoscaler.planner.placement import victims
from tests.unit.planner.setups import CALM, decision, job, node, settled

NODES = [node(f"n{number:04}", 4_000) for number in range(600)]


def calls_of(action):
    """How many Python functions are called by an action."""
    count = 0

    def see(_frame, event, _argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(see)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def calls_of_plan(size, cpu_milli=1_000):
    view = ClusterView(
        revision=0, observed_at_s=0.0, nodes=tuple(NODES), jobs=(job("gang", low=size, high=size, cpu_milli=cpu_milli),)
    )
    return calls_of(lambda: plan(view, CALM, 1_000.0))


@pytest.mark.parametrize(("cpu_milli", "each"), [(100, 30), (4_000, 5)], ids=["fits", "does not fit"])
def test_trainers_that_are_alike_are_placed_together(cpu_milli, each):
    """Each further trainer costs its own record and no search; where they do not fit it costs next to nothing."""
    few, many = calls_of_plan(1_000, cpu_milli), calls_of_plan(5_000, cpu_milli)
    assert many - few <= 4_000 * each


def test_gang_that_takes_surplus_looks_at_few_nodes_for_each_trainer(monkeypatch):
    """Nodes that are alike but for whose surplus they hold are told apart by counting, and not tried one by one."""
    tried, try_node = [], victims.fewest_on
    monkeypatch.setattr(victims, "fewest_on", lambda *args: tried.append(1) or try_node(*args))
    nodes = [node(f"n{number:02}", 4_000) for number in range(40)]
    driver = settled(nodes, [job(f"j{number}", high=20, cpu_milli=1_500) for number in range(8)], CALM)
    driver.cluster.put(job("gang", low=30, high=30, cpu_milli=2_500))
    decided = driver.plan()
    assert decision(decided, "gang").bottleneck is Bottleneck.CAPACITY_DRAINING
    assert len(decided.actions) <= len(tried) <= 4 * len(decided.actions)
