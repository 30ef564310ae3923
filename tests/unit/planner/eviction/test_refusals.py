"""Pauses: each ends at the instant that the plan names, and a room that is refused again costs twice the patience."""

from dataclasses import replace

import pytest

from autoscaler.domain import Cause, DeletePod, DemandState, PodPhase, Refusal, UnusedCapacity
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, demand, job, node, web


def driver_of(nodes, jobs=(), policy=CALM):
    return Driver(MemoryCluster(nodes, jobs), policy)


def test_refusal_ends_at_its_instant():
    """A plan of exactly then serves the pod: nothing else would wake the planner again."""
    driver = driver_of([node("a")])
    driver.cluster.put(web("w"))
    until_s = driver.cluster.now() + 60.0
    driver.history = replace(driver.history, refusals=(Refusal(pod="w", count=1, until_s=until_s),))
    paused = driver.plan()
    assert demand(paused, "w").state is DemandState.SCHEDULER_REFUSED
    assert paused.replan_at_s == until_s
    driver.cluster.advance(60.0)
    assert demand(driver.plan(), "w").state is DemandState.CAPACITY_FREE


@pytest.mark.parametrize(("count", "pause_s"), [(0, 60.0), (1, 120.0), (2, 240.0), (9, 600.0)])
def test_each_pause_is_twice_the_one_before_up_to_a_limit(count, pause_s):
    """A pod with room for five seconds that is not bound cannot use it."""
    driver = driver_of([node("a")])
    driver.cluster.put(web("w"))
    now_s = driver.cluster.now()
    known = (Refusal(pod="w", count=count, until_s=now_s - 5.0),) if count else ()
    seen = (UnusedCapacity(pod="w", since_s=now_s - 5.0),)
    driver.history = replace(driver.history, refusals=known, unused_capacity=seen)
    assert driver.plan().history.refusals == (Refusal(pod="w", count=count + 1, until_s=now_s + pause_s),)


def test_job_that_pauses_after_failures_starts_at_its_instant():
    """A failed job is planned again when its pause ends, not at the next event after that."""
    driver = driver_of([node("a")], [job("j", hold_until_s=1_030.0)])
    assert driver.plan().replan_at_s == 1_030.0
    driver.cluster.now_s = 1_030.0
    assert len(driver.plan().actions) == 1


def test_gang_is_aged_at_its_instant():
    """From then on younger ones leave its nodes to it."""
    driver = driver_of([node("a")], [job("big", low=4, high=4, submitted_at_s=900.0)])
    driver.cluster.put(replace(web("w"), node="a", phase=PodPhase.READY, unschedulable_since_s=None))
    early = driver.plan()
    assert (early.replan_at_s, early.history.bars) == (1_020.0, ())
    driver.cluster.now_s = 1_020.0
    assert [bar.job for bar in driver.plan().history.bars] == ["big"]


def test_move_for_fairness_is_open_at_its_instant():
    """The window of the giver is over at the instant for which the plan asked to be woken."""
    policy = replace(CALM, victim_age_s=30.0)
    driver = driver_of([node("a", 8_000)], [job("old")], policy)
    driver.settle()
    driver.cluster.put(job("new"))
    driver.settle(seconds=1.0)
    driver.cluster.now_s = driver.plan().replan_at_s
    assert Cause.TRANSFER in {action.cause for action in driver.plan().actions if isinstance(action, DeletePod)}
