"""P3: who leaves for a pod that fits nowhere."""

from dataclasses import replace
from math import nan

import pytest

from autoscaler.domain import (
    Bottleneck,
    Cause,
    DeletePod,
    DemandState,
    Headroom,
    Node,
    PodPhase,
    Reclaim,
    Resources,
    Role,
    Tier,
    Workload,
)
from tests.unit.planner.setups import CALM, decision, demand, job, node, settled, shape, web


def deletions(plan):
    return [action for action in plan.actions if isinstance(action, DeletePod)]


def test_one_pod_costs_one_trainer_and_names_itself():
    """A6: the cause and the beneficiary stand in the order to leave."""
    driver = settled([node("a")], [job("j")])
    driver.cluster.put(web("w"))
    plan = driver.plan()
    (left,) = deletions(plan)
    assert (left.cause, left.beneficiary, left.pod) == (Cause.POD, "w", "j-trainer-3")
    assert demand(plan, "w").victims == ("j-trainer-3",)
    assert decision(plan, "j").target == 3


def test_room_that_is_leaving_is_credited():
    """A second plan while the first victim drains takes nobody else."""
    driver = settled([node("a")], [job("j")])
    driver.cluster.put(web("w"))
    driver.turn()
    plan = driver.plan()
    assert deletions(plan) == []
    assert demand(plan, "w").state is DemandState.CAPACITY_DRAINING


def test_node_with_the_fewest_victims_is_chosen():
    """Two trainers of 1 cpu or one of 2: the one leaves, wherever it stands."""
    nodes = [
        Node(name=name, allocatable=shape(4_000).requests, labels=frozenset({("pool", pool)}))
        for name, pool in (("a", "small"), ("b", "large"))
    ]
    small, large = job("small", high=4), job("large", cpu_milli=2_000, high=2)
    small, large = (
        replace(
            spec,
            trainer=replace(
                spec.trainer, shape=replace(spec.trainer.shape, node_selector=frozenset({("pool", spec.name)}))
            ),
        )
        for spec in (small, large)
    )
    driver = settled(nodes, [small, large])
    driver.cluster.put(web("w", 2_000))
    plan = driver.plan()
    assert [action.pod for action in deletions(plan)] == ["large-trainer-1"]


def test_largest_share_gives_first():
    """Two jobs of equal trainers: the one with more weighted share gives."""
    driver = settled([node("a", 6_000)], [job("poor", high=2), job("rich", high=4)])
    driver.cluster.put(web("w"))
    assert [action.job for action in deletions(driver.plan())] == ["rich"]


@pytest.mark.parametrize("unknown", [None, nan])
def test_freshest_checkpoint_gives_among_equals_and_an_unknown_one_last(unknown):
    """A7: a lost metric makes nobody a victim."""
    jobs = [job("a", high=2, checkpoint_age_s=unknown), job("b", high=2, checkpoint_age_s=30.0)]
    driver = settled([node("n")], [*jobs])
    driver.cluster.put(web("w"))
    assert [action.job for action in deletions(driver.plan())] == ["b"]


def test_whole_steps_leave():
    """A size between two steps is of no use to the job: 5 - 1 becomes 3, with one cause."""
    driver = settled([node("a", 5_000)], [job("j", low=1, high=5, step=2)])
    driver.cluster.put(web("w"))
    plan = driver.plan()
    assert decision(plan, "j").target == 3
    assert {action.cause for action in deletions(plan)} == {Cause.POD}
    assert len(deletions(plan)) == 2


def test_minimum_stays_whatever_waits():
    """Surplus only: the last trainers are the job's own."""
    driver = settled([node("a")], [job("j", low=2, high=4)])
    driver.cluster.put(web("w", 3_000))
    plan = driver.plan()
    assert deletions(plan) == []
    assert demand(plan, "w").state is DemandState.NO_CAPACITY


def test_pod_over_every_node_is_named_and_costs_nothing():
    """NeverFits is no demand."""
    driver = settled([node("a")], [job("j")])
    driver.cluster.put(web("w", 5_000))
    plan = driver.plan()
    assert deletions(plan) == []
    assert demand(plan, "w").state is DemandState.NEVER_FITS


def test_pod_below_surplus_takes_nothing():
    """Rank decides: a pod of lower priority than surplus waits."""
    driver = settled([node("a")], [job("j")])
    driver.cluster.put(web("w", priority=-1))
    assert deletions(driver.plan()) == []


@pytest.mark.parametrize("reclaim", Reclaim)
@pytest.mark.parametrize("can_preempt", [False, True])
def test_pod_below_core_takes_no_trainer_even_of_a_lower_class(reclaim, can_preempt):
    """The scheduler may preempt surplus of class -5 for a pod of -3; EDL does not."""
    driver = settled([node("a")], [job("j")], replace(CALM, reclaim=reclaim))
    for pod in list(driver.cluster.pods.values()):
        if pod.tier is Tier.SURPLUS:
            driver.cluster.put(replace(pod, priority=-5 if reclaim is Reclaim.SCHEDULER else 0))
    driver.cluster.put(web("w", priority=-3, can_preempt=can_preempt))
    driver.cluster.advance(10.0)
    plan = driver.plan()
    assert deletions(plan) == []
    assert demand(plan, "w").state is DemandState.NO_CAPACITY


@pytest.mark.parametrize("priority", [-3, 0])
def test_pod_below_core_leaves_vacating_capacity_to_waiting_gangs(priority):
    """One core is being vacated: a gang of core's value gets it before a pod of -3, and after one of its own value."""
    policy = replace(CALM, reclaim=Reclaim.SCHEDULER)
    driver = settled([node("a", 2_000)], [job("j", low=2, high=2)], policy)
    victim = driver.cluster.pods["j-trainer-1"]
    driver.cluster.put(replace(victim, phase=PodPhase.TERMINATING))
    driver.cluster.put(job("j", low=1, high=1), job("gang", low=1, high=1))
    driver.cluster.put(web("w", priority=priority))
    plan = driver.plan()
    is_served = demand(plan, "w").state is DemandState.CAPACITY_DRAINING
    assert is_served == (priority == 0)
    assert (decision(plan, "gang").bottleneck is Bottleneck.CAPACITY_DRAINING) == (priority < 0)


def test_unjudged_and_unmodelled_pods_take_nothing():
    """No verdict yet, or constraints that the fit test does not know."""
    driver = settled([node("a")], [job("j")])
    driver.cluster.put(web("new", since_s=None), web("odd", is_modelled=False))
    plan = driver.plan()
    assert deletions(plan) == []
    assert demand(plan, "odd").state is DemandState.NOT_MODELLED


def test_pod_that_refuses_its_rooms_costs_two_trainers_and_no_more():
    """No endless shrinking: a hidden constraint keeps the pod off, whatever room is made."""
    driver = settled([node("a"), node("b"), node("c")], [job("j", high=12)])
    driver.cluster.put(web("w"))
    removed = []
    for _ in range(600):
        plan = driver.turn()
        removed += [action for action in deletions(plan) if action.beneficiary == "w"]
        driver.cluster.advance(2.0)
    assert len(removed) == 2
    assert len({action.node for action in removed}) == 2


def test_scheduler_mode_leaves_preempting_pods_to_the_scheduler_for_two_seconds():
    """One order and one owner (`reclaim: scheduler`)."""
    driver = settled([node("a")], [job("j")], replace(CALM, reclaim=Reclaim.SCHEDULER))
    driver.cluster.put(web("w", since_s=driver.cluster.now(), can_preempt=True))
    first = driver.plan()
    assert demand(first, "w").state is DemandState.LEFT_TO_SCHEDULER
    assert first.replan_at_s == driver.cluster.now() + 2.0
    driver.cluster.advance(2.0)
    assert len(deletions(driver.plan())) == 1


def test_master_that_the_cluster_replaced_gets_room_as_others_do():
    """Core preempts nobody (`beside-the-scheduler.md` 4): without this a job whose master lost its room would never
    go on."""
    driver = settled([node("a")], [job("j", master_milli=1_000)])
    (master,) = (pod for pod in driver.cluster.view().pods if pod.role is Role.MASTER)
    driver.cluster.put(replace(web("w"), node="a", phase=PodPhase.READY, unschedulable_since_s=None))
    driver.cluster.put(replace(master, node=None, phase=PodPhase.PENDING, unschedulable_since_s=driver.cluster.now()))
    (left,) = deletions(driver.plan())
    assert (left.role, left.cause, left.beneficiary) == (Role.TRAINER, Cause.POD, master.name)


def test_announced_growth_and_headroom_make_room_ahead():
    """Room is made before the pods exist, each under its own cause."""
    driver = settled([node("a")], [job("j")])
    driver.cluster.put(Workload(name="web", shape=shape(1_000), desired_replicas=1))
    driver.policy = replace(CALM, headroom=(Headroom(shape=shape(1_000), count=1),))
    plan = driver.turn()
    assert sorted(action.cause for action in deletions(plan)) == [Cause.ANNOUNCED_GROWTH, Cause.HEADROOM]
    driver.cluster.advance(5.0)
    assert driver.plan().actions == ()


def test_announced_growth_beyond_the_cluster_is_asked_for_once():
    """A Deployment told to have 100,000 pods: what four cores can hold makes room, one more says that there is none."""
    driver = settled([node("a")], [job("j", low=1)])
    driver.cluster.put(Workload(name="web", shape=shape(1_000), desired_replicas=100_000))
    plan = driver.turn()
    assert [action.cause for action in deletions(plan)] == [Cause.ANNOUNCED_GROWTH] * 3
    assert [told.state for told in plan.demands] == [DemandState.SHRUNK_FOR] * 3 + [DemandState.NO_CAPACITY]


def test_scheduler_mode_leaves_announced_growth_to_the_scheduler():
    """Its pods come in a moment and preempt; a trainer that left for them before that would be lost in addition."""
    driver = settled([node("a")], [job("j")], replace(CALM, reclaim=Reclaim.SCHEDULER))
    driver.cluster.put(Workload(name="web", shape=shape(1_000), desired_replicas=1))
    plan = driver.plan()
    assert deletions(plan) == []
    assert demand(plan, "web+1").state is DemandState.LEFT_TO_SCHEDULER


def test_web_pod_with_memory_takes_from_the_node_where_memory_is_short():
    """Every resource counts, not the sum of them."""
    shapes = Resources(cpu_milli=4_000, memory_bytes=4)
    trainer = Resources(cpu_milli=1_000, memory_bytes=2)
    spec = job("j", high=2)
    spec = replace(spec, trainer=replace(spec.trainer, shape=replace(spec.trainer.shape, requests=trainer)))
    driver = settled([Node(name="a", allocatable=shapes)], [spec])
    pod = web("w")
    driver.cluster.put(
        replace(pod, shape=replace(pod.shape, requests=Resources(cpu_milli=500, memory_bytes=1))),
    )
    assert len(deletions(driver.plan())) == 1


def test_minimum_is_protected_by_count_where_core_pods_have_died():
    """What is left is surplus by its tier, and still the minimum: nobody takes it."""
    driver = settled([node("a")], [job("j", low=2, high=4)])
    for number in (0, 1):
        driver.cluster.lose(f"j-trainer-{number}")
        taken = web(f"taken-{number}", since_s=None)
        driver.cluster.put(replace(taken, node="a", phase=PodPhase.READY))
    driver.cluster.put(web("w"))
    assert deletions(driver.plan()) == []


@pytest.mark.parametrize(("cpu_milli", "step", "trainers_left"), [(500, 1, 3), (1_000, 2, 3)])
def test_room_left_over_by_one_pod_serves_the_next(cpu_milli, step, trainers_left):
    """Half a trainer's room, or the odd trainer of a step, is not wasted: the second pod costs nothing."""
    driver = settled([node("a", 4_000 if step == 1 else 5_000)], [job("j", low=1, high=5, step=step)])
    driver.cluster.put(web("w1", cpu_milli), web("w2", cpu_milli))
    plan = driver.plan()
    assert decision(plan, "j").target == trainers_left
    assert {demand(plan, name).state for name in ("w1", "w2")} == {
        DemandState.SHRUNK_FOR,
        DemandState.CAPACITY_DRAINING,
    }


def test_core_beyond_a_lowered_minimum_is_taken_after_the_surplus():
    """An excess of core stays while surplus can give, and no longer (`beside-the-scheduler.md` 6)."""
    driver = settled([node("a")], [job("j", low=3, high=4)])
    driver.cluster.put(job("j", low=1, high=4), web("w1"), web("w2"))
    assert [action.pod for action in deletions(driver.plan())] == ["j-trainer-3", "j-trainer-2"]
