"""Who comes first: classes in the water-fill, in moves, in reservations and in words; gangs and their pods in a row."""

from dataclasses import replace

from autoscaler.domain import Admission, Bottleneck, Cause, DeletePod, DemandState, PodPhase
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, decision, job, node, on_pool, settled, web


def sizes(driver):
    return {decision.job: decision.now for decision in driver.plan().decisions}


def test_higher_class_drinks_first():
    """P5: at once, not only after its share has been moved back to it."""
    driver = settled([node("a", 6_000)], [job("high", high=1, priority=5), job("low", high=1)])
    driver.cluster.put(job("high", priority=5), job("low"))
    assert {entry.job: entry.target for entry in driver.plan().decisions} == {"high": 5, "low": 1}


def test_higher_class_that_comes_late_gets_what_a_lower_one_has_beyond_its_minimum():
    """P6, whatever their shares are."""
    driver = settled([node("a", 6_000)], [job("low")])
    driver.cluster.put(job("high", priority=5))
    driver.settle()
    assert sizes(driver) == {"high": 5, "low": 1}


def test_strict_class_spares_the_very_next_class_too():
    """Higher by one is higher."""
    driver = settled([node("a")], [job("high", high=4, priority=1)], replace(CALM, admission=Admission.STRICT_CLASS))
    driver.cluster.put(job("low"))
    assert driver.plan().actions == ()


def test_small_gang_starts_before_an_older_large_one():
    """Within a priority the share counts before the age, until a gang is aged."""
    large, small = job("large", low=3, high=3, submitted_at_s=990.0), job("small", high=1, submitted_at_s=999.0)
    driver = Driver(MemoryCluster([node("a")], [large, small]), CALM)
    assert [action.job for action in driver.plan().actions] == ["small", "large"]


def test_reservations_of_two_classes_hold_side_by_side():
    """The young gang would fit on either node, and each of them is what an older one of a higher class waits for."""
    nodes = [node(name, labels=frozenset({("pool", name)})) for name in "ab"]
    jobs = [
        on_pool(job("first", low=4, high=4, priority=5), "a"),
        on_pool(job("second", low=4, high=4), "b"),
        job("young", high=1, priority=-5, submitted_at_s=999.0),
    ]
    driver = Driver(MemoryCluster(nodes, jobs), CALM)
    for name in "ab":
        standing = replace(web(f"on-{name}"), node=name, phase=PodPhase.READY, unschedulable_since_s=None)
        driver.cluster.put(standing)
    assert driver.plan().actions == ()


def test_room_is_said_to_be_of_higher_priority_only_if_all_of_it_is():
    """Where a job of the same class holds some, more weight would help."""
    driver = settled([node("a", 6_000)], [job("high", priority=5, high=2), job("equal"), job("asks")])
    said = decision(driver.plan(), "asks")
    assert said.bottleneck is Bottleneck.FAIR_SHARE
    driver = settled([node("a")], [job("high", priority=5), job("asks")])
    assert decision(driver.plan(), "asks").bottleneck is Bottleneck.PRIORITY


def test_trial_that_came_to_nothing_takes_nobody_out_of_reach():
    """The large gang would need more than all surplus; what was tried for it is there for the small one."""
    driver = settled([node("a")], [job("old", high=4)])
    driver.cluster.put(job("large", low=2, cpu_milli=3_000, weight=1_000), job("small", cpu_milli=2_000, high=1))
    taken = [action for action in driver.plan().actions if isinstance(action, DeletePod)]
    assert [(action.cause, action.beneficiary) for action in taken] == [(Cause.GANG, "small")] * 2


def test_largest_pod_of_a_gang_chooses_first():
    """The trainer takes the free node whole, the small master one trainer's room: the other way two would leave."""
    driver = settled([node("a", 3_000)], [job("old", high=3)])
    driver.cluster.put(node("b", 2_000), job("old", high=3), job("new", high=1, cpu_milli=2_000, master_milli=500))
    taken = [action for action in driver.plan().actions if isinstance(action, DeletePod)]
    assert len(taken) == 1


def test_room_goes_to_the_pod_of_highest_rank_then_to_the_oldest():
    """As a scheduler's queue does."""
    driver = Driver(MemoryCluster([node("a", 2_000)]), CALM)
    pods = (("c", 0, 10.0), ("b", 0, 20.0), ("a", 0, 30.0), ("z", 5, 40.0))
    driver.cluster.put(*(web(name, priority=priority, created_at_s=at_s) for name, priority, at_s in pods))
    served = [entry.pod for entry in driver.plan().demands if entry.state is DemandState.CAPACITY_FREE]
    assert served == ["z", "c"]


def test_dearest_of_the_victims_decides():
    """One of class 0 with one of class 2, or two of class 1: the highest class keeps its trainer."""
    specs = (("a", 0, 1_000), ("b", 1, 2_500), ("c", 1, 2_500), ("d", 2, 4_000))
    jobs = [job(name, priority=priority, cpu_milli=cpu_milli, high=2) for name, priority, cpu_milli in specs]
    driver = settled([node("n", 20_000)], jobs)
    driver.cluster.put(web("w", 5_000))
    taken = [action.job for action in driver.plan().actions if isinstance(action, DeletePod)]
    assert sorted(taken) == ["b", "c"]
