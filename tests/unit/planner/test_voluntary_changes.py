"""What keeps voluntary changes rare: cost against gain, resizes a minute, the pause after a preemption; and grades."""

from dataclasses import replace

from autoscaler.domain import (
    Bottleneck,
    Cause,
    CreatePod,
    DeletePod,
    Headroom,
    PodPhase,
    Policy,
    Reclaim,
    Role,
    Tier,
    Workload,
)
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, decision, job, node, settled, shape, web


def grown(driver, *nodes):
    """The plan after new nodes have come."""
    driver.cluster.put(*nodes)
    return driver.plan()


def sizes(driver):
    return {decision.job: decision.now for decision in driver.plan().decisions}


def test_growth_that_costs_more_than_it_brings_is_not_made():
    """8 trainers that stand still for 80 s lose 640 trainer-seconds; one more brings 600 in ten minutes, two 1,200."""
    driver = settled([node("a", 8_000)], [job("j", high=16, resize_cost_s=80.0)])
    plan = grown(driver, node("b", 1_000))
    assert plan.actions == ()
    assert decision(plan, "j").bottleneck is Bottleneck.RESIZE_COST
    assert "within 600 s" in decision(plan, "j").message
    assert len(grown(driver, node("c", 1_000)).actions) == 2


def test_growth_that_pays_only_as_a_whole_comes_in_one_resize():
    """One more brings 600 for 640, two 1,200: the first waits until a web pod has left the place of the second.

    Another job does not take that place, and nothing is created before.
    """
    cluster = MemoryCluster([node("a", 8_000), node("b", 2_000)], [job("j", high=10, resize_cost_s=80.0)])
    cluster.put(replace(web("w", 2_000), phase=PodPhase.READY, node="b"))
    driver = Driver(cluster, CALM)
    driver.settle()
    cluster.put(node("c", 1_000), replace(cluster.pods["w"], shape=shape(1_000), phase=PodPhase.TERMINATING, node="b"))
    cluster.put(replace(web("x", 1_000), phase=PodPhase.READY, node="b"))
    plan = driver.turn()
    assert plan.actions == ()
    assert decision(plan, "j").target == 10
    cluster.lose("w")
    assert [action.node for action in driver.turn().actions] == ["b", "c"]


def test_room_that_does_not_pay_for_one_goes_to_another():
    """Nobody sits on room that he does not use."""
    jobs = [job("dear", high=16, resize_cost_s=80.0), job("free", low=1, high=16, weight=10)]
    driver = settled([node("a", 9_000)], jobs)
    before = sizes(driver)
    grown(driver, node("b", 1_000))
    driver.settle()
    assert sizes(driver) == {"dear": before["dear"], "free": before["free"] + 1}


def test_transfer_must_make_good_what_it_costs_the_giver_too():
    """Without the cost the new job gets trainers of the old one; with it each stays as it is."""
    policy = replace(CALM, payoff_s=60.0)
    for cost_s, moved in ((0.0, True), (30.0, False)):
        driver = settled([node("a", 8_000)], [job("old", high=8, resize_cost_s=cost_s)], policy)
        driver.cluster.put(job("new", high=8))
        driver.settle()
        causes = {action.cause for action, _ in driver.cluster.applied if isinstance(action, DeletePod)}
        assert (Cause.TRANSFER in causes) is moved


def test_resizes_beyond_the_cap_of_a_minute_wait_for_the_next():
    """Three jobs could grow, one may: the poorest, then by name; the others are told when."""
    jobs = [job(name, low=1, high=4) for name in ("a", "b", "c")]
    driver = Driver(MemoryCluster([node("n", 3_000)], jobs), replace(CALM, resizes_per_minute=1))
    driver.settle()
    driver.history = replace(driver.history, changes=())
    driver.cluster.put(node("m", 9_000))
    plan = driver.turn()
    assert {action.job for action in plan.actions} == {"a"}
    assert decision(plan, "b").bottleneck is Bottleneck.BUDGET
    assert "at most 1 resizes a minute" in decision(plan, "b").message
    assert driver.turn().actions == ()
    driver.cluster.advance(61.0)
    assert {action.job for action in driver.turn().actions} == {"b"}


def test_job_that_was_preempted_pauses_before_it_grows():
    """`beside-the-scheduler.md` 11: 30 s from when the scheduler was last seen to take one of its trainers."""
    policy = Policy(reclaim=Reclaim.SCHEDULER, quiet_window_s=0.0)
    driver = settled([node("a", 4_000)], [job("j", high=4)], policy)
    taken = driver.cluster.pods["j-trainer-3"]
    driver.cluster.put(replace(taken, phase=PodPhase.TERMINATING, is_preempted=True))
    driver.turn()
    driver.cluster.lose("j-trainer-3")
    driver.cluster.advance(29.0)
    plan = driver.turn()
    assert plan.actions == ()
    assert decision(plan, "j").bottleneck is Bottleneck.COOLDOWN
    driver.cluster.advance(1.0)
    assert [action.role for action in driver.turn().actions] == [Role.TRAINER]
    assert driver.history.preempted == ()


def test_surplus_carries_the_grade_of_the_share_that_its_job_reaches_with_it():
    """`beside-the-scheduler.md` 2: of 16 trainers at most, the 3rd stands at 3/16, in the second eighth; core has no
    grade."""
    driver = settled([node("a", 16_000)], [job("j", low=2, high=16)])
    made = [action for action, _ in driver.cluster.applied if isinstance(action, CreatePod)]
    assert {pod.ordinal: pod.grade for pod in made} == {n: min(8, 1 + 8 * (n + 1) // 16) for n in range(2, 16)}
    driver.cluster.lose("j-trainer-5")
    (back,) = driver.turn().actions
    assert (back.ordinal, back.grade, back.tier) == (5, 4, Tier.SURPLUS)


def test_percentage_of_headroom_stays_free_and_yields_to_minimums():
    """A quarter of 8 cores in web pods of 2: one place, taken from growth, not from a gang's minimum."""
    policy = replace(CALM, headroom_percent=25.0)
    driver = Driver(MemoryCluster([node("a", 8_000)], [job("j", high=8)]), policy)
    driver.cluster.put(Workload(name="web", shape=shape(2_000), desired_replicas=0))
    driver.settle()
    assert sizes(driver) == {"j": 6}
    driver.cluster.put(job("k", low=2, high=2))
    driver.settle()
    assert sizes(driver) == {"j": 4, "k": 2}
    driver.cluster.put(job("last", low=3, high=3))
    driver.settle()
    assert sizes(driver) == {"j": 1, "k": 2, "last": 3}


def test_headroom_for_an_autoscaler_grows_with_what_it_may_still_ask():
    """Half of the 4 replicas between desired and maximum."""
    driver = Driver(
        MemoryCluster([node("a", 8_000)], [job("j", high=8)]), replace(CALM, autoscaler_headroom_percent=50.0)
    )
    driver.cluster.put(Workload(name="web", shape=shape(1_000), desired_replicas=0, max_replicas=4))
    driver.settle()
    assert sizes(driver) == {"j": 6}
    fixed = replace(driver.policy, headroom=(Headroom(shape=shape(1_000), count=3),))
    assert sizes(settled([node("a", 8_000)], [job("j", high=8)], fixed)) == {"j": 5}


def test_what_edl_deletes_for_a_pod_that_cannot_preempt_is_of_the_lowest_class():
    """`beside-the-scheduler.md` 1 b and c: the lowest class on its node, so that the scheduler would have chosen the
    same."""
    policy = replace(CALM, reclaim=Reclaim.SCHEDULER)
    driver = settled([node("a", 8_000)], [job("j", high=8)], policy)
    for pod in list(driver.cluster.pods.values()):
        if pod.role is Role.TRAINER:
            driver.cluster.put(replace(pod, priority=-pod.ordinal if pod.tier is Tier.SURPLUS else 0))
    now_s = driver.cluster.now()
    driver.cluster.put(web("w", since_s=now_s, created_at_s=now_s, can_preempt=False))
    (action,) = driver.turn().actions
    assert action.pod == "j-trainer-7"
