"""Moves of servers end while nothing else changes (ADR 0269)."""

from dataclasses import replace

from autoscaler.domain import Capabilities, Role, ServerSpec, Tier
from tests.property.planner_cases import NO_GATES, Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import core_pod, job, node, shape

CAN = Capabilities(servers_elastic=True, moves_servers=True)


def test_server_does_not_move_back_once_a_trainer_has_what_it_moved_for():
    """Two trainers of `small` fit beside the server and where it stood, and with them `small` has its maximum.

    They count as room, since surplus may leave for a server. So they have to count as wanted as well: else the server
    moves back for one of `large`, and then again for `small`, which lacks trainers.
    """
    servers = ServerSpec(shape=shape(2_000), min_replicas=1, max_replicas=1, trainers_per_server=100)
    large = replace(job("large", cpu_milli=5_000, high=9, weight=900), servers=servers)
    small = job("small", cpu_milli=3_000, high=3)
    nodes = [node("three", 3_000), node("five", 5_000), node("core", 8_000)]
    pods = [core_pod(spec, role, "core") for spec in (large, small) for role in (Role.TRAINER, Role.MASTER)]
    cluster = MemoryCluster(nodes, [large, small], pods=[*pods, core_pod(large, Role.SERVER, "three")])
    cluster.capabilities = CAN
    driver = Driver(cluster, NO_GATES)
    driver.rest()
    assert {pod.name: pod.node for pod in cluster.pods.values() if pod.role is Role.SERVER} == {
        "large-server-1": "five"
    }
    assert {pod.node for pod in cluster.pods.values() if pod.job == "small" and pod.tier is Tier.SURPLUS} == {
        "three",
        "five",
    }
