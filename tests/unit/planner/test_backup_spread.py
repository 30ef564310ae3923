"""Servers of a job with two copies of its model: on different nodes where that costs a trainer at most (ADR 0318)."""

from collections import Counter
from dataclasses import replace

import pytest

from autoscaler.domain import Capabilities, CreatePod, PodPhase, Role, ServerSpec
from autoscaler.planner.placement import waste
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, job, node, shape, web

BIG = 20_000
"""Cores that hold four trainers of 5, or five servers of 4: servers side by side waste least."""


def with_servers(name="j", count=2, *, is_apart=True, trainer_milli=5_000, server_milli=4_000, most=None, **fields):
    servers = ServerSpec(
        shape=shape(server_milli),
        min_replicas=count,
        max_replicas=most or count,
        trainers_per_server=fields.pop("ratio", 100),
        prefers_anti_affinity=is_apart,
    )
    return replace(job(name, cpu_milli=trainer_milli, **fields), servers=servers)


def settled(nodes, *jobs, capabilities=None):
    cluster = MemoryCluster(nodes, jobs)
    cluster.capabilities = capabilities or cluster.capabilities
    driver = Driver(cluster, CALM)
    driver.settle()
    return driver


def standing(driver, role, name="j"):
    pods = [pod for pod in driver.cluster.pods.values() if pod.phase is not PodPhase.TERMINATING]
    return sorted(pod.node for pod in pods if pod.role is role and pod.job == name)


@pytest.mark.parametrize(("is_apart", "places"), [(False, ["a", "a"]), (True, ["a", "b"])])
def test_gang_starts_on_two_nodes_though_one_holds_both(is_apart, places):
    """With as many trainers as side by side."""
    driver = settled([node("a", BIG), node("b", BIG)], with_servers(is_apart=is_apart, high=20))
    assert standing(driver, Role.SERVER) == places
    assert len(standing(driver, Role.TRAINER)) == 6


def test_they_stand_side_by_side_where_there_is_no_other_room():
    """Preferred, never required."""
    driver = settled([node("a", BIG), node("b", 3_000)], with_servers())
    assert standing(driver, Role.SERVER) == ["a", "a"]


def test_a_trainer_of_surplus_is_given_for_it():
    """Two servers of 2 take the place of one trainer of 4; on two nodes they take two."""
    nodes = [node(name, 8_000) for name in "ab"]
    driver = settled(nodes, with_servers(trainer_milli=4_000, server_milli=2_000))
    assert standing(driver, Role.SERVER) == ["a", "b"]
    assert len(standing(driver, Role.TRAINER)) == 2


def test_no_minimum_is_given_for_it():
    """As above, but the job needs three trainers to begin."""
    nodes = [node(name, 8_000) for name in "ab"]
    driver = settled(nodes, with_servers(trainer_milli=4_000, server_milli=2_000, low=3))
    assert len(set(standing(driver, Role.SERVER))) == 1
    assert len(standing(driver, Role.TRAINER)) == 3


def test_four_are_spread_evenly():
    """Beside four trainers a node has 4 cores for them.  Who holds whose second copy is not known here."""
    driver = settled([node("a", 24_000), node("b", 24_000)], with_servers(count=4, server_milli=1_000))
    assert Counter(standing(driver, Role.SERVER)) == {"a": 2, "b": 2}


def test_other_jobs_do_not_count():
    """Each job's servers are apart; those of two jobs may share a node."""
    driver = settled([node("a", BIG), node("b", BIG)], with_servers("j"), with_servers("k"))
    assert [standing(driver, Role.SERVER, name) for name in "jk"] == [["a", "b"], ["a", "b"]]


@pytest.mark.parametrize(("is_apart", "place"), [(False, "a"), (True, "b")])
def test_server_that_comes_later_stands_elsewhere(is_apart, place):
    """When the trainers need one more."""
    elastic = Capabilities(servers_elastic=True)
    few = with_servers(count=1, most=2, ratio=1, is_apart=is_apart, low=1, high=1)
    driver = settled([node("a", BIG), node("b", BIG)], few, capabilities=elastic)
    assert standing(driver, Role.SERVER) == ["a"]
    driver.cluster.put(replace(few, trainer=replace(few.trainer, max_replicas=2)))
    driver.settle()
    assert standing(driver, Role.SERVER) == ["a", place]


def test_lost_server_comes_back_on_the_node_without_one():
    """Its place is not kept for it, and the one that stayed is on a."""
    driver = settled([node("a", BIG), node("b", BIG)], with_servers(low=1, high=1))
    lost = next(name for name, pod in driver.cluster.pods.items() if pod.role is Role.SERVER and pod.node == "b")
    driver.cluster.lose(lost)
    (come,) = [action for action in driver.turn().actions if isinstance(action, CreatePod)]
    assert (come.role, come.node) == (Role.SERVER, "b")


@pytest.mark.parametrize(("is_apart", "places"), [(False, ["a", "a"]), (True, ["a", "b"])])
def test_room_that_surplus_makes_is_taken_apart(is_apart, places):
    """A full cluster: trainers of another job leave, as many either way."""
    old = job("old", cpu_milli=4_000, low=1, high=10)
    driver = settled([node("a", BIG), node("b", BIG)], old)
    assert len(standing(driver, Role.TRAINER, "old")) == 10
    driver.cluster.put(with_servers(is_apart=is_apart, trainer_milli=4_000, low=1, high=1))
    driver.settle()
    assert standing(driver, Role.SERVER) == places
    assert len(standing(driver, Role.TRAINER, "old")) == 7


def test_on_very_many_nodes_where_waste_is_not_weighed(monkeypatch):
    """There the tightest node is taken at once, by servers of one copy."""
    monkeypatch.setattr(waste, "WEIGHED_NODES", 1)
    nodes = [node("a", BIG), node("b", BIG)]
    assert standing(settled(nodes, with_servers(is_apart=False, high=1)), Role.SERVER) == ["a", "a"]
    assert standing(settled(nodes, with_servers(high=1)), Role.SERVER) == ["a", "b"]


@pytest.mark.parametrize(
    ("is_apart", "web_load", "places"),
    [
        (False, {"a": 3_000, "b": 3_000}, ["a", "a"]),
        (True, {"a": 3_000, "b": 3_000}, ["a", "b"]),
        (True, {"a": 3_000, "b": 3_000, "low": 12_000}, ["a", "low"]),
    ],
)
def test_no_move_brings_one_beside_another(is_apart, web_load, places):
    """The web has gone: a node of 10 wins a trainer when its server leaves, and loses none by a second one."""
    nodes = {"a": node("a", 10_000), "b": node("b", 10_000), "low": node("low", 12_000)}
    spec = with_servers(server_milli=2_000, high=9)
    cluster = MemoryCluster([nodes[name] for name in web_load], [spec])
    cluster.capabilities = Capabilities(servers_elastic=True, moves_servers=True)
    for name, cpu_milli in web_load.items():
        cluster.put(replace(web(f"web-{name}", cpu_milli), phase=PodPhase.READY, node=name))
    driver = Driver(cluster, replace(CALM, server_moves_per_minute=0, server_moves_percent_per_minute=0))
    driver.settle()
    assert standing(driver, Role.SERVER) == ["a", "b"]
    for name in web_load:
        cluster.lose(f"web-{name}")
    cluster.put(replace(spec, servers=replace(spec.servers, prefers_anti_affinity=is_apart)))
    driver.settle()
    driver.policy = CALM
    driver.settle()
    assert standing(driver, Role.SERVER) == places
