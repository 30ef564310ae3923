"""Moves of servers end while nothing else changes, and no unrelated job prevents a useful one (ADR 0269)."""

from dataclasses import replace

import pytest

from autoscaler.domain import Capabilities, Role, ServerMove, ServerSpec, Tier
from autoscaler.planner.placement.server_departures import record_departure
from autoscaler.planner.working_copy.memo import Memo
from tests.property.planner_cases import NO_GATES, Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import core_pod, elsewhere, job, node, shape, web

CAN = Capabilities(servers_elastic=True, moves_servers=True)


def two_of_a_kind(*others, nodes=(), server_at="three"):
    """`large`, whose server stands on one of two nodes, and `small`, of which two trainers fit if it is on `five`.

    `others`: jobs whose core stands beside that of the two.  Returns the driver before its first plan.
    """
    servers = ServerSpec(shape=shape(2_000), min_replicas=1, max_replicas=1, trainers_per_server=100)
    large = replace(job("large", cpu_milli=5_000, high=9, weight=900), servers=servers)
    jobs = [large, job("small", cpu_milli=3_000, high=3), *others]
    core = sum(spec.trainer.shape.requests.cpu_milli for spec in jobs)
    places = [node("three", 3_000), node("five", 5_000), node("core", core), *nodes]
    pods = [core_pod(spec, role, "core") for spec in jobs for role in (Role.TRAINER, Role.MASTER)]
    cluster = MemoryCluster(places, jobs, pods=[*pods, core_pod(large, Role.SERVER, server_at)])
    cluster.capabilities = CAN
    return Driver(cluster, NO_GATES)


def server_nodes(driver):
    return {pod.node for pod in driver.cluster.pods.values() if pod.role is Role.SERVER}


def surplus_nodes(driver, name):
    return sorted(pod.node for pod in driver.cluster.pods.values() if pod.job == name and pod.tier is Tier.SURPLUS)


@pytest.mark.parametrize("server_at", ["three", "five"])
def test_server_does_not_move_back_once_a_trainer_has_what_it_moved_for(server_at):
    """Two trainers of `small` fit beside the server and where it stood, and with them `small` has its maximum.

    They count as room, since surplus may leave for a server. So they have to count as held as well: else the server
    moves back for one of `large`, and then again for `small`, which lacks trainers.
    """
    driver = two_of_a_kind(server_at=server_at)
    driver.rest()
    assert server_nodes(driver) == {"five"}
    assert surplus_nodes(driver, "small") == ["five", "three"]


@pytest.mark.parametrize("cpu_milli", [10, 50, 250, 500, 1_000])
def test_satisfied_job_of_any_size_prevents_no_move(cpu_milli):
    """A job that has all its trainers elsewhere, however small they are."""
    tiny, spare = elsewhere("tiny", cpu_milli)
    driver = two_of_a_kind(tiny, nodes=[spare])
    driver.rest()
    assert (server_nodes(driver), surplus_nodes(driver, "tiny")) == ({"five"}, ["for-tiny", "for-tiny"])
    assert surplus_nodes(driver, "small") == ["five", "three"]


@pytest.mark.parametrize("cpu_milli", [50, 500])
def test_satisfied_job_in_the_rest_of_a_node_prevents_no_move(cpu_milli):
    """Its trainers stand in the 1,000 that nobody else could use beside the server; the nodes lose nothing by it."""
    driver = two_of_a_kind(job("tiny", cpu_milli=cpu_milli, high=3))
    driver.rest()
    assert server_nodes(driver) == {"five"}
    assert surplus_nodes(driver, "small")


@pytest.mark.parametrize("cpu_milli", [100, 20_000])
def test_job_that_never_fits_prevents_no_move(cpu_milli):
    """A gang larger than the cluster waits with 10,000 trainers, of a size that fits everywhere or nowhere."""
    driver = two_of_a_kind()
    driver.cluster.put(job("endless", cpu_milli=cpu_milli, low=200, high=10_000))
    driver.rest()
    assert server_nodes(driver) == {"five"}
    assert surplus_nodes(driver, "small") == ["five", "three"]


def test_many_kinds_of_trainers_of_satisfied_jobs_prevent_no_move():
    """Five other jobs of as many sizes, all of larger trainers than the one that lacks some."""
    others = [elsewhere(f"other-{size}", size) for size in (6_000, 7_000, 8_000, 9_000, 10_000)]
    driver = two_of_a_kind(*(spec for spec, _ in others), nodes=[spare for _, spare in others])
    driver.rest()
    assert server_nodes(driver) == {"five"}
    assert surplus_nodes(driver, "small") == ["five", "three"]


def test_server_goes_back_when_the_load_of_others_has_changed():
    """A departure counts while nothing else changes: a tide that comes and goes is answered each time."""
    driver = two_of_a_kind()
    driver.cluster.put(node("three", 3_000, labels=frozenset({("pool", "three")})))
    driver.rest()
    for _ in range(2):
        assert [entry.nodes for entry in driver.history.server_departures] == [("three", "five")]
        wanted = replace(shape(1_000), node_selector=frozenset({("pool", "three")}))
        driver.cluster.put(replace(web("web"), shape=wanted))
        driver.rest()
        assert server_nodes(driver) == {"three"}  # its 2,000 fit beside the web, and a trainer of `large` on the other
        driver.cluster.lose("web")
        driver.rest()
        assert server_nodes(driver) == {"five"}


def test_each_move_of_a_server_counts_though_its_name_comes_again():
    """The new server takes a free number, so the third move is again one of the pod that left first."""
    view = two_of_a_kind().cluster.view()
    server = next(pod for pod in view.pods if pod.role is Role.SERVER)
    copy = Memo().begin(view, NO_GATES, 0.0)
    names = [server.name, f"{server.name}-1"]
    way = [("three", "five"), ("five", "core"), ("core", "three")]
    for number, (left, to) in enumerate(way):
        old = replace(server, name=names[number % 2], node=left)
        new = replace(server, name=names[(number + 1) % 2], node=to)
        move = ServerMove(job=server.job, pod=old.name, node=to, ordinal=new.ordinal, since_s=60.0 * number)
        for _ in range(2):  # plans in which the old one is leaving
            record_departure(copy, move, old, new)
    assert [one.nodes for one in copy.carried.server_departures] == way
