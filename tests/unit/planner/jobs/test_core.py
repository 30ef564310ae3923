"""P2: a minimum that stands on core pods, through kills, edits, drains and the room that others take."""

from dataclasses import replace

import pytest

from autoscaler.domain import (
    Bottleneck,
    Cause,
    CreatePod,
    DeletePod,
    JobState,
    PodPhase,
    Policy,
    Reason,
    Reclaim,
    Tier,
)
from autoscaler.planner import still_valid
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, decision, job, node, settled, shape, web


def taken(name, on, cpu_milli=1_000):
    """A pod of others that stands."""
    return replace(web(name, cpu_milli), node=on, phase=PodPhase.READY, unschedulable_since_s=None)


def trainers(driver, name="j"):
    return [pod for pod in driver.cluster.pods.values() if pod.job == name and pod.role == "trainer"]


def core_count(driver, name="j"):
    return sum(pod.tier is Tier.CORE for pod in trainers(driver, name))


def turns(driver, count, seconds):
    """Carry plans out for a while and return what was done, as (instant, action)."""
    done = []
    for _ in range(count):
        driver.cluster.bind_others()
        plan = driver.turn()
        done += [(driver.cluster.now(), action) for action in plan.actions]
        driver.cluster.advance(seconds)
    return done


def without_core(low, high, policy=CALM):
    """A job of 4 trainers on one full node; `low` core pods are killed and others take their room."""
    driver = settled([node("a")], [job("j", low=low, high=high)], policy)
    for number in range(low):
        driver.cluster.lose(f"j-trainer-{number}")
        driver.cluster.put(taken(f"taken-{number}", "a"))
    return driver


def test_core_pod_lost_while_its_room_is_taken_costs_one_swap():
    """`beside-the-scheduler.md` 6: one surplus trainer leaves, a core one takes its very place, and that is all."""
    driver = without_core(1, 4)
    done = [action for _, action in turns(driver, 100, 2.0)]
    left, came = done
    assert isinstance(left, DeletePod)
    assert isinstance(came, CreatePod)
    assert (left.cause, came.cause, came.tier) == (Cause.CORE_SWAP, Cause.CORE_SWAP, Tier.CORE)
    assert len(trainers(driver)) == 3
    assert core_count(driver) == 1


def test_swaps_keep_a_cool_down():
    """One swap per cool-down, not one per plan."""
    driver = settled([node("a")], [job("j", low=1, high=4)], Policy())
    turns(driver, 40, 2.0)
    driver.cluster.put(job("j", low=3, high=4))
    swaps = [at_s for at_s, action in turns(driver, 60, 2.0) if isinstance(action, DeletePod)]
    assert len(swaps) == 2
    assert swaps[1] - swaps[0] >= Policy().down_window_s
    assert core_count(driver) == 3
    assert len(trainers(driver)) == 4


def test_core_pod_comes_from_free_room_without_a_swap():
    """Growth is core while core is missing."""
    driver = settled([node("a")], [job("j", low=1, high=4)])
    driver.cluster.lose("j-trainer-0")
    (came,) = [action for _, action in turns(driver, 20, 2.0)]
    assert (type(came), came.tier) == (CreatePod, Tier.CORE)


def test_room_of_a_swap_is_kept_from_other_jobs():
    """The poorer job beside it does not slip into the room: a swap moves nothing between jobs."""
    driver = settled([node("a", 6_000)], [job("j", low=1, high=3), job("k", low=1, high=8)])
    driver.cluster.lose("j-trainer-0")
    driver.cluster.put(taken("t", "a"))
    before = len(trainers(driver, "k"))
    turns(driver, 40, 2.0)
    assert (len(trainers(driver)), core_count(driver)) == (2, 1)
    assert len(trainers(driver, "k")) == before


@pytest.mark.parametrize("low", [1, 2])
@pytest.mark.parametrize("pause_s", [0.4, 2.0])
def test_swap_is_no_growth_and_waits_for_no_window(low, pause_s):
    """The core trainer comes as soon as the room is free, be the job at its minimum meanwhile or not."""
    driver = settled([node("a")], [job("j", low=low, high=4)])
    driver.policy = replace(CALM, up_window_s=600.0)
    driver.cluster.lose("j-trainer-0")
    driver.cluster.put(taken("t", "a"))
    turns(driver, 10, pause_s)
    assert (len(trainers(driver)), core_count(driver)) == (3, low)


@pytest.mark.parametrize(("reclaim", "swaps"), [(Reclaim.PLANNER, 0), (Reclaim.SCHEDULER, 1)])
def test_job_at_its_minimum_swaps_only_where_the_scheduler_could_take_it(reclaim, swaps):
    """With `reclaim: planner` the count protects the minimum, so a swap would only cost a trainer's work."""
    driver = settled([node("a", 2_000)], [job("j", low=1, high=2)], replace(CALM, reclaim=reclaim))
    driver.cluster.lose("j-trainer-0")
    driver.cluster.put(taken("t", "a"))
    done = [action for _, action in turns(driver, 40, 2.0)]
    assert sum(isinstance(action, DeletePod) for action in done) == swaps
    assert len(trainers(driver)) == 1
    assert core_count(driver) == swaps


def test_pinned_size_is_kept_both_ways():
    """`edl scale tj/j --trainers N`: up and down at once, and no further while there is room."""
    driver = settled([node("a", 8_000)], [job("j", high=8)])
    for size in (3, 6, 1):
        driver.cluster.put(job("j", high=8, pinned=size))
        driver.settle()
        assert len(trainers(driver)) == size
    driver.cluster.put(job("j", high=8))
    driver.settle()
    assert len(trainers(driver)) == 8


def test_pinned_job_gives_its_surplus_to_the_web_and_comes_back():
    """A pin is a wish, not a minimum: forced shrinking goes first (A3), the pinned size returns with the room."""
    driver = settled([node("a")], [job("j", low=2, high=4, pinned=4)])
    driver.cluster.put(web("w", 3_000))
    assert decision(driver.settle(), "j").now == 4
    driver.cluster.put(web("w", 2_000))
    plan = driver.settle()
    assert (decision(plan, "j").now, decision(plan, "j").bottleneck) == (2, Bottleneck.NODE_FIT)
    assert driver.cluster.pods["w"].node == "a"
    driver.cluster.lose("w")
    assert decision(driver.settle(), "j").now == 4


def test_drained_node_is_left_at_once_by_all_roles_and_they_come_back_elsewhere():
    """The owner's wish: surplus and core leave together, so that servers roll back once and not one by one."""
    driver = settled([node("a"), node("b", 0)], [job("j", low=2, high=3, servers=1, master_milli=100)])
    driver.cluster.put(node("a", is_draining=True), node("b"))
    plan = driver.turn()
    left = [action for action in plan.actions if isinstance(action, DeletePod)]
    assert len(left) == 5
    assert {(action.cause, action.beneficiary) for action in left} == {(Cause.LOST_NODE, "a")}
    driver.settle()
    assert {pod.node for pod in driver.cluster.pods.values()} == {"b"}
    assert len(trainers(driver)) == 3


def test_drained_core_takes_the_place_of_surplus():
    """No room elsewhere: another job's surplus makes it, servers of others are never touched."""
    driver = settled([node("a", 1_000), node("b", 3_500)], [job("j", high=1), job("k", low=1, high=3, servers=1)])
    home = trainers(driver)[0].node
    assert home == "a"
    driver.cluster.put(node("a", 1_000, is_draining=True))
    done = [action for _, action in turns(driver, 10, 2.0) if isinstance(action, DeletePod)]
    assert [action.pod for action in done if action.cause is Cause.GANG] == ["k-trainer-2"]
    assert not [action for action in done if action.role == "server"]
    assert trainers(driver)[0].node == "b"
    assert len(trainers(driver, "k")) == 2


def test_drain_without_room_stops_the_job_after_a_minute_and_says_why():
    """The node is emptied all the same; the gang then waits for room as a whole."""
    driver = settled([node("a"), node("b")], [job("j", low=2, high=2, cpu_milli=3_000)])
    driver.cluster.put(node("a", is_draining=True))
    first = driver.turn()
    assert {pod.node for pod in driver.cluster.pods.values() if pod.phase is not PodPhase.TERMINATING} <= {"b"}
    assert decision(first, "j").is_degraded is False
    driver.cluster.advance(2.0)
    assert decision(driver.turn(), "j").is_degraded
    driver.cluster.advance(60.0)
    stopped = decision(driver.turn(), "j")
    assert (stopped.reason, stopped.target) == (Reason.STOPPED, 0)
    driver.settle()
    assert driver.cluster.pods == {}


def test_young_gang_takes_its_room_while_an_aged_one_bars_others():
    """Livelock: bars chosen anew in each plan went to the very room that was being vacated for the young gang."""
    runs, young = job("runs", high=5), job("young", high=1, cpu_milli=2_000, submitted_at_s=995.0)
    aged = job("aged", high=1, cpu_milli=4_000, servers=1, submitted_at_s=100.0)
    aged = replace(aged, servers=replace(aged.servers, shape=shape(2_000)))
    driver = settled([node("a", 2_000), node("b", 2_000), node("home", 1_000)], [runs])
    driver.cluster.put(node("full"), taken("t", "full", 4_000), aged, young)
    plan = driver.settle()
    assert [bar.job for bar in plan.history.bars] == ["aged"]
    assert {entry.job: entry.now for entry in plan.decisions} == {"aged": 0, "runs": 3, "young": 1}


def test_ended_job_leaves_its_swap_and_its_refill_alone():
    """At END nothing is created or replaced."""
    driver = without_core(1, 4)
    driver.cluster.put(replace(driver.cluster.jobs["j"], state=JobState.ENDING))
    assert turns(driver, 10, 2.0) == []


def test_shrink_is_dropped_when_the_job_has_lost_a_trainer_meanwhile():
    """Revalidation: what was surplus at planning is the minimum at writing."""
    driver = settled([node("a")], [job("j", low=3, high=4)])
    driver.cluster.put(web("w"))
    plan = driver.plan()
    assert [action.pod for action in plan.actions] == ["j-trainer-3"]
    driver.cluster.lose("j-trainer-1")
    assert still_valid(plan, driver.cluster.view(), CALM) == ()


def test_minimum_of_a_waiting_job_comes_before_the_tier_of_a_running_one():
    """MinsFirst: free room goes to the gang; the running job has its minimum, if partly on surplus."""
    driver = Driver(MemoryCluster([node("a", 4_500)], [job("old", low=2, high=3)]), CALM)
    driver.settle()
    driver.cluster.lose("old-trainer-0")
    driver.cluster.put(job("new", cpu_milli=2_500, high=1))
    plan = driver.plan()
    assert [type(action).__name__ for action in plan.actions] == ["AdmitGang"]


def test_a_master_that_cannot_be_had_back_is_named():
    """The job stands at its maximum, yet it is not that what the user must know (A8)."""
    driver = settled([node("a", 2_000)], [job("j", high=1, master_milli=1_000)])
    driver.cluster.lose("j-master-0")
    driver.cluster.put(taken("web", "a"))
    kept = decision(driver.turn(), "j")
    assert kept.is_degraded
    assert kept.bottleneck is Bottleneck.NODE_FIT
    assert kept.message == "no capacity for its missing master, even if all surplus were reclaimed"


def test_no_swap_where_the_core_pod_would_not_fit():
    """The user has made trainers larger: the room of an old one is no room for a new one."""
    driver = settled([node("a")], [job("j", low=2, high=4)])
    driver.cluster.lose("j-trainer-0")
    driver.cluster.put(taken("w", "a"), job("j", low=2, high=4, cpu_milli=2_000))
    assert driver.plan().actions == ()
