"""Placement by pattern waste: servers where they break no trainer, and what decides when nothing is broken."""

from dataclasses import replace

from autoscaler.domain import DeletePod, Node, Resources, Role, ServerSpec, Shape, Toleration
from autoscaler.domain.eligibility import Taint
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, job, node, shape


def with_servers(name, count, cpu_milli=4_000, **fields):
    """Trainers of 5 cores and servers of 4, as in the experiments of 2017."""
    servers = ServerSpec(shape=shape(cpu_milli), min_replicas=count, max_replicas=count)
    return replace(job(name, cpu_milli=5_000, **fields), servers=servers)


def nodes_of(cluster, role):
    return sorted(pod.node for pod in cluster.pods.values() if pod.role is role)


def settled(nodes, *jobs):
    driver = Driver(MemoryCluster(nodes, jobs), CALM)
    driver.settle()
    return driver


def test_server_leaves_whole_trainers_their_rooms():
    """15 cores are three trainers; the server goes to the 14, of which two trainers leave 4, though 15 is first."""
    driver = settled([node("a", 15_000), node("b", 14_000)], with_servers("j", 1))
    assert nodes_of(driver.cluster, Role.SERVER) == ["b"]
    assert nodes_of(driver.cluster, Role.TRAINER) == ["a", "a", "a", "b", "b"]


def test_master_takes_what_no_trainer_could_use():
    """The odd core of the 11 is worth nothing to trainers of 5; on the 10, which is tighter, it would cost one."""
    driver = settled([node("a", 10_000), node("b", 11_000)], job("j", cpu_milli=5_000, master_milli=1_000))
    assert nodes_of(driver.cluster, Role.MASTER) == ["b"]
    assert nodes_of(driver.cluster, Role.TRAINER) == ["a", "a", "b", "b"]


def test_among_rooms_that_are_harmed_alike_the_tightest_is_taken():
    """The emptiest is where the web will land."""
    driver = settled([node("a", 30_000), node("b", 10_000)], job("j", cpu_milli=5_000, high=1))
    assert nodes_of(driver.cluster, Role.TRAINER) == ["b"]


def test_gang_takes_the_trainer_whose_room_it_fills_best():
    """One trainer of the same job must go either way: from 8 cores two servers fit, from 7 one, and 3 are lost."""
    driver = settled([node("a", 7_000), node("b", 8_000)], job("old", cpu_milli=5_000, low=1, high=2))
    driver.cluster.put(with_servers("new", 1, high=1, low=1), replace(node("c", 5_000)))
    (left,) = [action for action in driver.turn().actions if isinstance(action, DeletePod)]
    assert left.node == "b"


def test_pattern_counts_only_where_its_pods_may_stand():
    """No trainer may stand on the tainted node, so a server costs nothing there."""
    taint = Taint(key="servers")
    nodes = [node("a", 5_000), Node(name="b", allocatable=Resources(cpu_milli=5_000), taints=frozenset({taint}))]
    spec = with_servers("j", 1, high=1)
    tolerant = Shape(requests=spec.servers.shape.requests, tolerations=frozenset({Toleration(key="servers")}))
    driver = settled(nodes, replace(spec, servers=replace(spec.servers, shape=tolerant)))
    assert nodes_of(driver.cluster, Role.SERVER) == ["b"]


def test_server_stands_where_it_breaks_no_trainer_once_surplus_has_made_way():
    """15 cores are three trainers, 14 two and a server: what is full of surplus today is no less suited for that."""
    driver = settled([node("a", 15_000), node("b", 14_000)], job("old", cpu_milli=5_000, low=1, high=5))
    driver.cluster.put(with_servers("new", 1, low=1, high=1))
    driver.settle()
    assert nodes_of(driver.cluster, Role.SERVER) == ["b"]


def test_priority_of_who_gives_comes_before_waste():
    """Surplus of the lower class goes first, even where its room suits the server less."""
    jobs = [job("low", cpu_milli=5_000, high=2, priority=0), job("high", cpu_milli=5_000, high=2, priority=5)]
    driver = settled([node("a", 10_000)], jobs[0])
    driver.cluster.put(node("b", 9_000), node("c", 5_000), jobs[1])
    driver.settle()
    driver.cluster.put(with_servers("new", 1, low=1, high=1))
    causes = [action for action in driver.turn().actions if isinstance(action, DeletePod)]
    assert {action.job for action in causes} == {"low"}
