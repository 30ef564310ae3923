"""Whose turn it is between namespaces, and whole jobs that give way: both only where the policy says so."""

from dataclasses import replace

import pytest

from autoscaler.domain import Admission, Bottleneck, Cause, DeletePod, Fairness, Reason, Role, Shape
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, decision, job, node

SPACES = replace(CALM, fairness=Fairness.NAMESPACE, transfers_per_minute=1_000)
TAKING = replace(CALM, preempts_jobs=True)


def settled(nodes, jobs, policy):
    driver = Driver(MemoryCluster(nodes, jobs), policy)
    driver.settle()
    return driver


def sizes(driver):
    return {decision.job: decision.now for decision in driver.plan().decisions}


def test_ten_small_jobs_of_one_team_do_not_take_ten_shares():
    """Per job the one job of team b gets a fifth, per namespace a half."""
    jobs = [job(f"a{number}", high=16, namespace="a") for number in range(4)] + [job("b", high=16, namespace="b")]
    assert sizes(settled([node("n", 20_000)], jobs, CALM))["b"] == 4
    found = sizes(settled([node("n", 20_000)], jobs, SPACES))
    assert found == {"a0": 3, "a1": 3, "a2": 2, "a3": 2, "b": 10}


def test_weights_divide_what_the_namespace_has_and_no_more():
    """A weight of 300 is worth three shares inside team a, none of team b's."""
    jobs = [
        job("a0", high=16, namespace="a", weight=300),
        job("a1", high=16, namespace="a"),
        job("b", high=16, namespace="b"),
    ]
    assert sizes(settled([node("n", 16_000)], jobs, SPACES)) == {"a0": 6, "a1": 2, "b": 8}


def test_late_team_gets_its_half_by_transfers():
    """A4 between namespaces: steps move until the gap, 7 to 5, is no more than two of them."""
    driver = settled([node("n", 12_000)], [job(f"a{number}", high=12, namespace="a") for number in range(3)], SPACES)
    driver.cluster.put(job("b", high=12, namespace="b"))
    driver.settle()
    assert sizes(driver)["b"] == 5


def test_namespace_of_the_gang_that_has_least_starts_first():
    """Between two equal gangs, the team that has nothing."""
    driver = settled([node("n", 6_000)], [job("a", low=2, high=2, namespace="a")], SPACES)
    fields = {"low": 2, "high": 2, "submitted_at_s": driver.cluster.now()}
    driver.cluster.put(job("a-too", namespace="a", **fields), job("b", namespace="b", **fields))
    assert [action.job for action in driver.plan().actions] == ["b", "a-too"]


def test_whole_job_gives_way_only_if_the_policy_says_so():
    """Off by default: the gang waits and its reason is the room."""
    low = [job("low", low=4, high=4)]
    driver = settled([node("n", 4_000)], low, CALM)
    driver.cluster.put(job("high", low=2, high=2, priority=10))
    assert driver.plan().actions == ()
    driver.policy = TAKING
    plan = driver.turn()
    assert {(action.job, action.cause, action.beneficiary) for action in plan.actions} == {
        ("low", Cause.PREEMPTION, "high")
    }
    assert decision(plan, "low").reason is Reason.STOPPED
    assert decision(plan, "low").message == "stops: job high, of higher priority, takes its capacity"
    assert decision(plan, "low").target == 0
    driver.settle()
    assert sizes(driver) == {"high": 2, "low": 0}
    assert decision(driver.plan(), "low").bottleneck is Bottleneck.NODE_FIT


def test_surplus_goes_before_whole_jobs_and_equals_are_never_taken():
    """One trainer of surplus is enough here, and the third job has no right to anybody's core."""
    driver = settled([node("n", 4_000)], [job("low", low=3, high=4)], TAKING)
    driver.cluster.put(job("high", low=1, high=1, priority=10))
    assert {action.cause for action in driver.turn().actions} == {Cause.GANG}
    driver.settle()
    driver.cluster.put(job("equal", low=1, high=1))
    assert driver.plan().actions == ()


@pytest.mark.parametrize("admission", list(Admission))
def test_one_job_is_taken_where_one_is_enough(admission):
    """The lowest class first, then the freshest checkpoint; an unknown one last."""
    jobs = [
        job("a", low=2, high=2, priority=5),
        job("b", low=2, high=2),
        job("c", low=2, high=2, checkpoint_age_s=3.0),
        job("d", low=2, high=2, checkpoint_age_s=60.0),
    ]
    driver = settled([node("n", 8_000)], jobs, replace(TAKING, admission=admission))
    driver.cluster.put(job("high", low=2, high=2, priority=10))
    assert {action.job for action in driver.turn().actions} == {"c"}
    driver.settle()
    assert sizes(driver) == {"a": 2, "b": 2, "c": 0, "d": 2, "high": 2}


def test_no_job_is_taken_that_does_not_help():
    """Two jobs make the room; a third that is as cheap stands on a node where the gang may not."""
    fast = frozenset({("disk", "fast")})
    nodes = [node("a", 2_000), node("b", 2_000, labels=fast), node("c", 2_000, labels=fast)]
    driver = settled(nodes, [job(name, low=2, high=2) for name in ("x", "y", "z")], TAKING)
    high = job("high", low=4, high=4, priority=10)
    asked = Shape(requests=high.trainer.shape.requests, node_selector=fast)
    driver.cluster.put(replace(high, trainer=replace(high.trainer, shape=asked)))
    assert {action.job for action in driver.turn().actions} == {"y", "z"}
    driver.settle()
    assert sizes(driver) == {"x": 2, "y": 0, "z": 0, "high": 4}


def test_servers_and_master_leave_with_their_job_and_it_comes_back_when_there_is_room():
    """Whole means whole, and the job queues again."""
    driver = settled([node("n", 4_000)], [job("low", low=2, high=2, servers=2, master_milli=500)], TAKING)
    driver.cluster.put(job("high", low=3, high=3, priority=10))
    roles = sorted(action.role for action in driver.turn().actions if isinstance(action, DeletePod))
    assert roles == [Role.MASTER, Role.SERVER, Role.SERVER, Role.TRAINER, Role.TRAINER]
    driver.settle()
    driver.cluster.put(node("m", 4_000))
    driver.settle()
    assert sizes(driver) == {"high": 3, "low": 2}
