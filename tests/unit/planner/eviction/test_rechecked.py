"""What a plan is checked for before it is written: the view that it stands on, and the one of a moment later."""

from dataclasses import replace

import pytest

from autoscaler.domain import Capabilities, Cause, CreatePod, DeletePod, Policy, Role
from autoscaler.planner import still_valid
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, demand, job, node, settled, web


def held(driver, planned, policy=CALM):
    fresh = replace(driver.cluster.view(), revision=planned.revision + 1)
    return still_valid(planned, fresh, policy)


def test_pod_that_stands_elsewhere_now_is_left_alone():
    """One of its name was made anew on another node: the room that was wanted is not there."""
    driver = settled([node("a", 2_000), node("b", 2_000)], [job("j", high=4)])
    driver.cluster.put(web("w", 1_000))
    planned = driver.plan()
    (left,) = planned.actions
    assert held(driver, planned) == planned.actions
    victim = driver.cluster.pods[left.pod]
    driver.cluster.put(replace(victim, node="b" if victim.node == "a" else "a"))
    assert held(driver, planned) == ()


def with_minimum(driver, low):
    """The user raises the job's minimum between plan and write."""
    (before,) = driver.cluster.jobs.values()
    driver.cluster.put(replace(before, trainer=replace(before.trainer, min_replicas=low)))


def test_trainer_beyond_a_whole_step_stays_where_the_minimum_needs_it_by_now():
    """It goes for nobody who could be asked: the minimum is asked again right before the write (A1)."""
    driver = settled([node("a", 3_000), node("b", 2_000)], [job("j", high=5, step=2)])
    driver.cluster.lose("j-trainer-2")
    driver.cluster.put(node("a", 2_000))
    planned = driver.plan()
    assert [(type(action), action.cause) for action in planned.actions] == [(DeletePod, Cause.STEP)]
    assert held(driver, planned) == planned.actions
    with_minimum(driver, 4)
    assert held(driver, planned) == ()


def test_what_only_helps_together_stays_whole_where_the_minimum_spares_one():
    """Two of four leave for a pod of others; with a minimum of three one alone would make no room (A1, A3)."""
    driver = settled([node("a", 4_000)], [job("j", high=4)])
    driver.cluster.put(web("w", 2_000))
    planned = driver.plan()
    assert [type(action) for action in planned.actions] == [DeletePod, DeletePod]
    with_minimum(driver, 3)
    assert held(driver, planned) == ()


def test_whole_job_is_not_taken_for_one_that_runs_meanwhile():
    """Room came free by itself between plan and write."""
    policy = replace(CALM, preempts_jobs=True)
    driver = settled([node("a", 2_000)], [job("low", low=2, high=2)], policy)
    driver.cluster.put(job("high", low=2, high=2, priority=5))
    planned = driver.plan()
    assert {action.cause for action in planned.actions} == {Cause.PREEMPTION}
    assert held(driver, planned, policy) == planned.actions
    started = replace(driver.cluster.pods["low-trainer-0"], name="high-trainer-0", job="high", node="b")
    driver.cluster.put(node("b"), started)
    assert held(driver, planned, policy) == ()


def test_deletions_stand_before_creations():
    """What is urgent is written first."""
    driver = settled([node("a"), node("b", 0)], [job("j", high=4)])
    driver.cluster.put(web("w", 2_000), node("b", 1_000), job("j"))
    kinds = [type(action) for action in driver.plan().actions]
    assert kinds == [DeletePod, DeletePod, CreatePod]


@pytest.mark.parametrize(("lost", "acts"), [(3, True), (4, False)])
def test_more_lost_nodes_than_the_limit_are_a_broken_view(lost, acts):
    """Of ten, 30 percent may be lost."""
    driver = Driver(
        MemoryCluster([node(f"n{number}", is_ready=number >= lost) for number in range(10)], [job("j")]), Policy()
    )
    assert bool(driver.plan().actions) == acts


@pytest.mark.parametrize(("replaces", "roles"), [(True, []), (False, [Role.MASTER])])
def test_master_comes_back_by_edl_where_the_cluster_makes_none(replaces, roles):
    """A Deployment of its own would make a second one."""
    driver = settled([node("a")], [job("j", high=1)])
    driver.cluster.capabilities = Capabilities(replaces_masters=replaces)
    driver.cluster.lose("j-master-0")
    assert [action.role for action in driver.plan().actions] == roles


def test_pod_of_others_is_expected_on_the_first_of_many_nodes_alike():
    """Whatever way the emptiest is searched for: few pods on many nodes are placed one by one."""
    for count in (2, 80):
        cluster = MemoryCluster([node(f"n{number:02}") for number in range(count)])
        cluster.put(web("w"))
        assert demand(Driver(cluster, CALM).plan(), "w").node == "n00"
