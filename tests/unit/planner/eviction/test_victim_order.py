"""Who gives: fewest whole steps, then the richest, surplus of closed nodes first; and what the order to leave says."""

from dataclasses import replace

from autoscaler.domain import DeletePod, DemandState, Pod, PodPhase, Reclaim, Role, Tier, VacatedNode, Workload
from autoscaler.planner import Memo
from autoscaler.planner.placement.victims import Candidates, NodeCapacity, in_fair_order
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, demand, job, node, settled, shape, web


def leaving(driver):
    return [action.pod for action in driver.plan().actions if isinstance(action, DeletePod)]


def test_whole_steps_are_what_a_choice_costs():
    """One trainer of either job makes the room, but the richer job would lose two more."""
    driver = settled([node("a", 6_000)], [job("rich", high=4, step=3), job("poor", high=2)])
    driver.cluster.put(web("w"))
    assert leaving(driver) == ["poor-trainer-1"]


def test_share_counts_before_the_checkpoint():
    """The poor job's fresh checkpoint is no reason to make it poorer."""
    jobs = [job("poor", high=2, checkpoint_age_s=1.0), job("rich", high=4, checkpoint_age_s=900.0)]
    driver = settled([node("a", 6_000)], jobs)
    driver.cluster.put(web("w"))
    assert leaving(driver) == ["rich-trainer-3"]


def test_who_leaves_no_gpu_idle_goes_before_the_richer():
    """A pod of one GPU fills the node of one; on the node of two the other would be left over."""
    jobs = [job("small", high=2, gpu=1), job("large", high=2, gpu=2)]
    driver = settled([node("c", gpu=1), node("d", gpu=2)], jobs)
    driver.cluster.put(node("a", gpu=1), node("b", gpu=2))
    driver.settle()
    driver.cluster.put(replace(web("w"), shape=shape(1_000, gpu=1)))
    assert leaving(driver) == ["small-trainer-1"]


def test_surplus_on_a_closed_node_goes_first():
    """The node is to be emptied anyway, whatever numbers its trainers have."""
    driver = settled([node("a", 2_000), node("b", 3_000)], [job("j", high=5)])
    surplus = [pod for pod in driver.cluster.pods.values() if pod.tier is Tier.SURPLUS]
    first = min(surplus, key=lambda pod: pod.ordinal)
    driver.cluster.put(replace(driver.cluster.nodes[first.node], is_cordoned=True), job("j", high=4))
    (left,) = leaving(driver)
    assert driver.cluster.pods[left].node == first.node


def test_surplus_is_taken_where_core_is_missing_too():
    """Two of the three core trainers are dead: of the four that are left one may go, and not only the first in line."""
    nodes = [node("a", 1_000), node("b", 1_000), *(node(name, 1_000, is_cordoned=True) for name in "cd")]
    spec = job("j", low=3, high=6)
    trainers = [
        Pod(
            name=f"j-trainer-{ordinal}",
            role=Role.TRAINER,
            tier=Tier.CORE if ordinal == 2 else Tier.SURPLUS,
            shape=spec.trainer.shape,
            phase=PodPhase.READY,
            node=on,
            job="j",
            ordinal=ordinal,
        )
        for ordinal, on in ((2, "a"), (3, "b"), (4, "c"), (5, "d"))
    ]
    driver = Driver(MemoryCluster(nodes, [spec], pods=[*trainers, web("w")]), CALM)
    assert demand(driver.plan(), "w").victims == ("j-trainer-3",)


def test_many_jobs_on_one_node_give_in_the_fair_order():
    """More choices than are searched: still the jobs of low priority give, and no more than needed."""
    jobs = [
        job(f"{kind}{number:02}", high=2, priority=priority)
        for kind, priority in (("high", 5), ("low", 0))
        for number in range(10)
    ]
    driver = settled([node("a", 40_000)], jobs)
    driver.cluster.put(web("w", 6_000))
    left = leaving(driver)
    assert len(left) == 6
    assert {name[:3] for name in left} == {"low"}


def test_core_beyond_the_minimum_is_not_below_a_pod_of_its_own_priority():
    """`reclaim: scheduler`: a scheduler would not take it for an equal, so EDL does not either."""
    policy = replace(CALM, reclaim=Reclaim.SCHEDULER)
    driver = settled([node("a", 3_000)], [job("j", low=3, high=3)], policy)
    driver.cluster.put(job("j", low=1, high=3), web("w"))
    assert leaving(driver) == []
    driver.cluster.put(replace(driver.cluster.pods["w"], priority=1))
    assert leaving(driver) == ["j-trainer-2"]


def test_grace_of_surplus_is_bounded_and_that_of_core_is_the_users():
    """The grace of surplus is the web's waiting time."""
    driver = settled([node("a")], [job("j", low=2, high=4, grace_s=30.0)], replace(CALM, surplus_grace_s=10.0))
    driver.cluster.put(node("a", is_draining=True))
    graces = {action.pod: action.grace_s for action in driver.plan().actions}
    assert graces == {
        "j-master-0": 30.0,
        "j-trainer-0": 30.0,
        "j-trainer-1": 30.0,
        "j-trainer-2": 10.0,
        "j-trainer-3": 10.0,
    }


def test_room_made_for_a_pod_is_not_given_to_an_older_one():
    """Otherwise the pod for which trainers have left would have others leave for it."""
    driver = settled([node("a", 2_000)], [job("j", high=2)])
    driver.cluster.lose("j-trainer-1")
    driver.cluster.put(job("j", high=1), web("new", created_at_s=990.0), web("old", created_at_s=900.0))
    driver.history = replace(driver.history, vacated_nodes=(VacatedNode(pod="new", node="a"),))
    plan = driver.plan()
    assert demand(plan, "new").state is DemandState.CAPACITY_FREE
    assert demand(plan, "old").state is DemandState.NO_CAPACITY


def test_pod_that_leaves_is_no_replica_that_stands():
    """The workload will make another one in its place: growth that is announced."""
    driver = settled([node("a")], [job("j", high=3)])
    leaves = replace(web("w"), node="a", phase=PodPhase.TERMINATING, workload="web")
    driver.cluster.put(Workload(name="web", shape=shape(1_000), desired_replicas=1), leaves)
    assert [entry.pod for entry in driver.plan().demands] == ["web+1"]


def test_where_too_many_choices_are_possible_nobody_leaves_for_nothing():
    """The cheapest groups give all that they have before the next one is asked, and whoever is not needed stays."""
    driver = settled([node("a", 9_000)], [job("j", high=5), job("k", high=4)])
    jobs = Memo().begin(driver.cluster.view(), CALM, driver.cluster.now()).jobs
    groups = [
        Candidates(job=jobs[name], pods=tuple(jobs[name].trainers[:4]), amounts=((1_000,),) * 4, price=(0, 0, number))
        for number, name in enumerate("jk")
    ]
    found = in_fair_order(NodeCapacity(at=0, later=(0,), requests=(3_000,)), groups)
    assert [(one.spec.name, len(pods)) for one, pods in found.taken] == [("j", 3)]
    found = in_fair_order(NodeCapacity(at=0, later=(0,), requests=(5_000,)), groups)
    assert [(one.spec.name, len(pods)) for one, pods in found.taken] == [("j", 4), ("k", 1)]
