"""A plan with a memo is the plan without one, also when the policy has changed since (A5)."""

from dataclasses import replace

from autoscaler.domain import Fairness, PodPhase, Reclaim, Role, Tier
from autoscaler.planner import Memo, plan
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, job, node, web

STILL = replace(CALM, transfers_per_minute=0, transfers_percent_per_minute=0)


def test_fair_shares_by_namespace_are_forgotten_with_the_setting():
    """Two jobs of one namespace, one of another, and room that comes free."""
    cluster = MemoryCluster([node("n", 7_000)], [])
    driver = Driver(cluster, STILL)
    for name, namespace, size in (("a", "red", 1), ("b", "red", 3), ("c", "blue", 2)):
        cluster.put(job(name, namespace=namespace, high=size))
        driver.settle()
    for name in "abc":
        cluster.put(replace(cluster.jobs[name], trainer=replace(cluster.jobs[name].trainer, max_replicas=8)))
    cluster.put(replace(web("w"), phase=PodPhase.READY, node="n", unschedulable_since_s=None))
    memo = Memo()
    plan(cluster.view(), replace(STILL, fairness=Fairness.NAMESPACE), cluster.now(), memo=memo)
    cluster.lose("w")
    view = cluster.view()
    assert plan(view, STILL, cluster.now(), memo=memo) == plan(view, STILL, cluster.now())


def test_ranks_of_surplus_are_forgotten_with_who_reclaims_it():
    """Where EDL chooses, all surplus ranks below everybody; where the scheduler does, by its classes."""
    cluster = MemoryCluster([node("n", 4_000)], [])
    Driver(cluster, STILL).turn()
    cluster.put(job("a", priority=-5))
    Driver(cluster, STILL).settle()
    for pod in [pod for pod in cluster.pods.values() if (pod.role, pod.tier) == (Role.TRAINER, Tier.SURPLUS)]:
        cluster.put(replace(pod, priority=3))
    cluster.put(web("w", priority=0))
    memo, beside = Memo(), replace(STILL, reclaim=Reclaim.SCHEDULER)
    plan(cluster.view(), STILL, cluster.now(), memo=memo)
    assert plan(cluster.view(), beside, cluster.now(), memo=memo) == plan(cluster.view(), beside, cluster.now())
