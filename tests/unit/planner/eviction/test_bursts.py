"""What is moved no further than needed: rows of submissions, moves of a minute, and from whom room is taken."""

from dataclasses import replace

import pytest

from autoscaler.domain import Bottleneck, Cause, DeletePod, PodPhase, Role
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.eviction.test_waste import nodes_of, with_servers
from tests.unit.planner.setups import CALM, decision, job, node, settled, web


def sizes(driver):
    return {decision.job: decision.now for decision in driver.plan().decisions}


def moves(driver, turns, seconds):
    """The trainers moved for fairness in so many plans, as (from, to)."""
    found = []
    for _ in range(turns):
        deleted = [a for a in driver.turn().actions if isinstance(a, DeletePod) and a.cause is Cause.TRANSFER]
        found += [(action.job, action.beneficiary) for action in deleted]
        driver.cluster.advance(seconds)
    return found


@pytest.mark.parametrize(("weight", "trainers"), [(100, 2), (200, 4)])
def test_job_takes_one_part_of_the_cluster_while_jobs_are_submitted_in_a_row(weight, trainers):
    """A twentieth of 40 cores is two trainers; six seconds after the last submission the rest follows."""
    cluster = MemoryCluster([node("a", 40_000)])
    cluster.put(job("j", high=40, weight=weight, submitted_at_s=cluster.now()))
    ends_at_s = cluster.now() + 6.0
    driver = Driver(cluster, replace(CALM, burst_window_s=6.0))
    for _ in range(4):
        driver.turn()
    waiting = decision(driver.plan(), "j")
    assert (waiting.now, waiting.bottleneck) == (trainers, Bottleneck.COOLDOWN)
    assert driver.plan().replan_at_s == ends_at_s
    cluster.advance(6.0)
    driver.settle()
    assert sizes(driver) == {"j": 40}


def test_moves_of_a_minute_are_a_part_of_all_trainers():
    """A quarter of 40."""
    policy = replace(CALM, transfers_per_minute=1, transfers_percent_per_minute=25)
    driver = settled([node("a", 40_000)], [job("old", high=40)], policy)
    driver.cluster.put(job("new", high=40))
    assert len(moves(driver, turns=20, seconds=2.0)) == 10


def test_step_of_more_trainers_than_a_minute_may_move_is_its_only_one():
    """Otherwise steps of powers of two would never be moved.  16 and 0 end as 8 and 8, four at a time."""
    policy = replace(CALM, transfers_per_minute=1, transfers_percent_per_minute=0)
    driver = settled([node("a", 16_000)], [job("old", low=4, high=16, step=4)], policy)
    driver.cluster.put(job("new", high=16))
    assert len(moves(driver, turns=20, seconds=2.0)) == 4
    assert sizes(driver) == {"old": 8, "new": 8}


def test_who_would_be_owed_a_step_by_a_richer_job_waits_for_that_one():
    """If the open job gave all that the poor one lacks, the closed one would have to give to both later."""
    driver = settled([node("a", 24_000)], [job("open", high=12)], replace(CALM, down_window_s=30.0))
    driver.cluster.advance(40.0)
    driver.cluster.put(job("closed", high=12))
    driver.settle()
    driver.cluster.advance(5.0)
    driver.cluster.put(job("poor", high=12))
    found = moves(driver, turns=60, seconds=2.0)
    reached = sizes(driver)
    assert max(reached.values()) - min(reached.values()) <= 2
    assert len(found) == reached["poor"] - 1  # its minimum came by force: no trainer was moved twice


def test_web_takes_the_trainer_that_makes_room_for_two_of_its_pods():
    """Five cores and the one beside them are two pods of three; beside two free cores one would be left over."""
    nodes = [node("a", 7_000), node("b", 6_000), node("c", 5_000)]
    driver = settled(nodes, [job("j", cpu_milli=5_000, high=3)])
    driver.cluster.put(web("w1", 3_000), web("w2", 3_000))
    left = [action for action in driver.turn().actions if isinstance(action, DeletePod)]
    assert [action.node for action in left] == ["b"]


def test_whole_step_of_a_rich_job_goes_before_the_trainer_of_a_poor_one():
    """One trainer of the poor job is fewer than four of the rich one, which would have to give them all the same."""
    jobs = [job("rich", low=4, high=8, step=4), job("poor", high=2)]
    driver = settled([node("a", 10_000)], jobs)
    assert sizes(driver) == {"rich": 8, "poor": 2}
    driver.cluster.put(web("w"))
    driver.settle()
    assert sizes(driver) == {"rich": 4, "poor": 2}


def test_server_stands_where_the_node_is_of_use_once_the_web_has_fallen():
    """14 cores are best beside a server while two web pods of 3 stand there, 11 once one of them has gone."""
    driver = Driver(MemoryCluster([node("a", 20_000), node("b", 17_000)], []), CALM)
    pods = [
        replace(web(f"w{name}{number}", 3_000), node=name, phase=PodPhase.READY, workload="web")
        for name in "ab"
        for number in range(2)
    ]
    driver.cluster.put(*pods, with_servers("j", 1))
    driver.settle()
    assert nodes_of(driver.cluster, Role.SERVER) == ["b"]


def test_servers_that_come_together_are_weighed_together():
    """Two servers of 4 cores fill the 8 whole, where one alone breaks a trainer as it does on the tighter 6."""
    driver = settled([node("a", 6_000), node("b", 8_000), node("c", 5_000)], [with_servers("j", 2)])
    assert nodes_of(driver.cluster, Role.SERVER) == ["b", "b"]
