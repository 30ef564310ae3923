"""A1 and P4 by example: what a gang may take and hold, and when it does not start."""

from dataclasses import replace

import pytest

from autoscaler.domain import (
    Admission,
    AdmitGang,
    Bottleneck,
    Cause,
    CorePlacement,
    CreatePod,
    PodPhase,
    Reservation,
    Role,
    Tier,
)
from autoscaler.planner import still_valid
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, decision, job, node, settled, web


def standing(name, on, cpu_milli=1_000):
    return replace(web(name, cpu_milli), node=on, phase=PodPhase.READY, unschedulable_since_s=None)


def test_strict_class_lets_a_gang_take_the_surplus_of_its_own_class():
    """Only higher classes keep theirs."""
    driver = settled([node("a")], [job("old", high=4)], replace(CALM, admission=Admission.STRICT_CLASS))
    driver.cluster.put(job("new", low=2, high=2))
    assert {action.cause for action in driver.plan().actions} == {Cause.GANG}


def test_placements_of_fewer_pods_than_the_gang_has_now_start_nothing():
    """Room was made for a minimum of 1, then the user raised it: half a gang makes no progress."""
    driver = Driver(MemoryCluster([node("a", 1_000)], [job("j", low=2)]), CALM)
    placements = tuple(CorePlacement(role=role, node="a") for role in (Role.MASTER, Role.TRAINER))
    driver.history = replace(driver.history, reservations=(Reservation(job="j", placements=placements),))
    assert driver.plan().actions == ()


@pytest.mark.parametrize(("room", "starts"), [(4_000, [AdmitGang]), (1_000, [])])
def test_pods_that_are_not_bound_yet_have_their_room_and_hold_up_nobody(room, starts):
    """Tied to its node a pod can go nowhere else: what is left there is for the next gang, now (ADR 0159)."""
    driver = settled([node("a", room)], [job("first", high=1)])
    bound = driver.cluster.pods["first-trainer-0"]
    driver.cluster.put(replace(bound, node=None, nominated_node="a", phase=PodPhase.PENDING), job("next"))
    assert [type(action) for action in driver.plan().actions] == starts


def test_a_core_pod_that_no_node_takes_holds_up_no_start():
    """A master whose template no node can hold waits for ever; every other job starts as if it were not there (A11)."""
    driver = settled([node("a")], [job("hostile", high=1, master_milli=100)])
    master = driver.cluster.pods["hostile-master-0"]
    driver.cluster.put(replace(master, node=None, phase=PodPhase.PENDING), job("honest"))
    for _ in range(3):
        driver.turn()
        driver.cluster.advance(5.0)
    assert "honest-trainer-0" in driver.cluster.pods


def test_one_aged_gang_of_each_priority_reserves_its_nodes():
    """The oldest: two reservations of one class could keep each other and everybody else waiting."""
    jobs = [
        job(name, low=4, high=4, priority=priority, submitted_at_s=submitted_at_s)
        for name, priority, submitted_at_s in (("second", 0, 20.0), ("first", 0, 10.0), ("below", -5, 0.0))
    ]
    driver = Driver(MemoryCluster([node("a"), node("b")], jobs), CALM)
    driver.cluster.put(standing("on-a", "a"), standing("on-b", "b", 3_500))
    assert [bar.job for bar in driver.plan().history.bars] == ["first", "below"]


def test_who_is_held_up_by_an_older_gang_is_told_by_whom():
    """Its room is there, and kept: nothing else would tell its owner whom to ask."""
    nodes = [node("a", 4_000), node("b", 4_000)]
    old = job("old", low=8, high=8, submitted_at_s=0.0)
    driver = Driver(
        MemoryCluster(nodes, [old, *(job(name, submitted_at_s=995.0) for name in ("young", "younger"))]), CALM
    )
    driver.cluster.put(standing("web", "a"))
    planned = driver.plan()
    for name in ("young", "younger"):
        told = decision(planned, name)
        assert (told.bottleneck, told.held_up_by) == (Bottleneck.GANG, ("old",))
        assert told.message == "the capacity that it could start in is reserved for old, waiting for longer"
    driver.cluster.lose("web")
    assert decision(driver.plan(), "young").held_up_by == ()


def test_gang_that_lost_a_placement_leaves_its_others_to_the_rest_of_the_plan():
    """What a dropped start had taken on the way is free again for the creation behind it."""
    driver = settled([node("a"), node("b")], [job("j", high=1)])
    driver.cluster.put(job("j", high=2), job("gang", low=2))
    driver.cluster.put(*(standing(f"on-{name}", name, amount) for name, amount in (("a", 2_000), ("b", 4_000))))
    pods = [
        CreatePod(job=name, role=Role.TRAINER, ordinal=ordinal, tier=tier, node=on, cause=cause)
        for name, ordinal, tier, on, cause in (
            ("gang", 0, Tier.CORE, "a", Cause.START),
            ("gang", 1, Tier.CORE, "b", Cause.START),
            ("j", 1, Tier.SURPLUS, "a", Cause.FREE_CAPACITY),
        )
    ]
    planned = replace(driver.plan(), actions=(AdmitGang(job="gang", pods=tuple(pods[:2])), pods[2]))
    fresh = replace(driver.cluster.view(), revision=planned.revision + 1)
    assert still_valid(planned, fresh, CALM) == (pods[2],)


def test_a_plan_tells_in_which_order_jobs_wait():
    """By priority, then by what each would take: age decides last (the page shows these positions)."""
    jobs = [
        job("early-and-large", low=4, submitted_at_s=1.0),
        job("late-and-small", low=2, submitted_at_s=3.0),
        job("urgent", low=4, priority=10, submitted_at_s=3.0),
    ]
    driver = settled([node("a", 2_000)], [job("runs", low=2, high=2, priority=10)])
    driver.cluster.put(*jobs)
    assert driver.plan().queue == ("urgent", "late-and-small", "early-and-large")
