"""Many gangs at once: a few start with each plan, in an order that anybody can tell, and none waits for ever."""

from dataclasses import replace

import pytest

from autoscaler.domain import AdmitGang, JobState, Resources
from autoscaler.planner.phases.p4_gangs import STARTS_PER_PLAN
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, job, node

MANY = 30
TURN_S = 3.0


def starts_of(driver, turns):
    """The gangs that start in so many plans, plan by plan."""
    found = []
    for _ in range(turns):
        found.append([action.job for action in driver.turn().actions if isinstance(action, AdmitGang)])
        driver.cluster.advance(1.0)
    return found


def gangs(priority=lambda number: 0):
    """As many as `MANY`, whose names say nothing about when they were submitted."""
    return [
        job(
            f"j{7 * number % MANY:02d}",
            low=2,
            high=2,
            servers=1,
            submitted_at_s=900.0 + number / 1000,
            priority=priority(number),
        )
        for number in range(MANY)
    ]


@pytest.mark.parametrize("priority", [lambda _: 0, lambda number: number % 3])
def test_gangs_submitted_together_start_by_priority_and_age(priority):
    jobs = gangs(priority)
    driver = Driver(MemoryCluster([node(f"n{number:02d}", 8_000) for number in range(MANY // 2)], jobs), CALM)
    turns = sorted(range(MANY), key=lambda number: (-priority(number), number))
    names = [jobs[number].name for number in turns]
    assert starts_of(driver, MANY // STARTS_PER_PLAN + 1) == [
        names[first : first + STARTS_PER_PLAN] for first in range(0, MANY, STARTS_PER_PLAN)
    ]


def test_those_that_find_no_room_hold_up_nobody():
    """Of a higher class, and too large for what is there: the others start as before, as long as there is room."""
    jobs = gangs()
    for number in range(5):
        sizes = replace(jobs[number].trainer, min_replicas=4 * MANY, max_replicas=4 * MANY)
        jobs[number] = replace(jobs[number], trainer=sizes, priority=1)
    others = [node(f"n{number:02d}", 8_000) for number in range(MANY // 3)]
    driver = Driver(MemoryCluster([*others, node("drained", 200_000, is_cordoned=True)], jobs), CALM)
    starts = starts_of(driver, 2)
    names = [one.name for one in jobs[5:]]
    assert starts == [names[:STARTS_PER_PLAN], names[STARTS_PER_PLAN : 2 * STARTS_PER_PLAN]]


def test_those_whose_last_start_failed_have_their_turn_after_the_others():
    """Small jobs that are refused again and again take no slot of those that have had no turn (A11)."""
    refused = [job(f"r{number:02d}", hold_until_s=999.0, submitted_at_s=900.0) for number in range(MANY)]
    driver = Driver(
        MemoryCluster([node(f"n{number:02d}", 9_000) for number in range(MANY)], [*gangs(), *refused]), CALM
    )
    starts = [name for turn in starts_of(driver, 4) for name in turn]
    assert len(starts) == 2 * MANY
    assert not any(name.startswith("r") for name in starts[:MANY])


NEVER_S = 1e12
IMPOSSIBLE = (
    job("old", low=5_000, high=5_000, submitted_at_s=0.0),
    job("old", cpu_milli=100_000, submitted_at_s=0.0),
    job("old", hold_until_s=NEVER_S, submitted_at_s=0.0),
    job("old", namespace="poor", low=2, high=2, submitted_at_s=0.0),
)


@pytest.mark.parametrize("others", [(), *((one,) for one in IMPOSSIBLE)], ids=["", "huge", "wide", "held", "poor"])
def test_no_gang_is_starved_by_smaller_ones_that_keep_coming(others):
    """Two small jobs always run and a third is always there before both nodes are free together.

    An older job that cannot start whatever happens has no claim to be first, and takes nobody's (A11).
    """
    policy = replace(CALM, gang_age_s=30.0)
    large = job("large", low=8, high=8, submitted_at_s=1_000.0)
    driver = Driver(MemoryCluster([node("a", 4_000), node("b", 4_000)], list(others)), policy)
    driver.cluster.hard = {"poor": Resources(cpu_milli=1_000)}
    cluster, began_at_s = driver.cluster, driver.cluster.now()
    for number in range(60):
        small = job(f"s{number:02d}", low=3, high=3, submitted_at_s=cluster.now())
        cluster.put(small)
        if number == 2:
            cluster.put(replace(large, submitted_at_s=cluster.now()))
        if number >= 6:
            cluster.put(replace(cluster.jobs[f"s{number - 6:02d}"], state=JobState.OVER))
        driver.turn()
        cluster.advance(TURN_S)
        if any(pod.job == "large" for pod in cluster.pods.values()):
            assert cluster.now() - began_at_s > policy.gang_age_s, "younger ones could start until it was aged"
            return
    pytest.fail("the large gang never started")
