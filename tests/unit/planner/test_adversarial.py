"""Input that nobody should send: right answers, or a refusal with a name, and never a wrong plan."""

from dataclasses import replace
from math import inf, nan

import pytest

from autoscaler.domain import AdmitGang, Bottleneck, CreatePod, DeletePod, DemandState, Node, PodPhase, Resources, Role
from autoscaler.domain import ClusterView as View
from autoscaler.domain import Shape as PodShape
from autoscaler.errors import InvalidViewError
from autoscaler.planner import Memo, plan
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, decision, demand, job, node, settled, shape, web


@pytest.mark.parametrize("exact", [2**53 + 1, 2**62, 2**80])
def test_amounts_beyond_doubles_and_beyond_64_bits_decide_to_the_last_byte(exact):
    """One byte too little is too little, however large the amounts are."""

    def plan_with(held):
        nodes = [Node(name="a", allocatable=Resources(cpu_milli=4_000, memory_bytes=held))]
        spec = job("j", low=2, high=2)
        half = PodShape(requests=Resources(cpu_milli=100, memory_bytes=exact))
        return plan(MemoryCluster(nodes, [replace(spec, trainer=replace(spec.trainer, shape=half))]).view(), CALM, 0.0)

    assert [type(action) for action in plan_with(2 * exact).actions] == [AdmitGang]
    assert plan_with(2 * exact - 1).actions == ()


def test_amounts_that_outgrow_the_arrays_of_a_memo_are_planned_exactly():
    """A memo made for small amounts meets endless ones, and another resource."""
    memo, cluster = Memo(), MemoryCluster([node("a")], [job("j", high=2)])
    plan(cluster.view(), CALM, 0.0, memo=memo)
    licence = Resources(cpu_milli=1, memory_bytes=2**80, extended=(("licence", 2**70),))
    cluster.put(replace(web("w"), shape=PodShape(requests=licence)))
    cluster.put(Node(name="z", allocatable=licence))
    assert plan(cluster.view(), CALM, 0.0, memo=memo) == plan(cluster.view(), CALM, 0.0)
    assert demand(plan(cluster.view(), CALM, 0.0, memo=memo), "w").node == "z"


def test_nodes_without_anything_take_nothing():
    """Zero capacity, alone and beside others."""
    driver = settled([node("a", 0), node("b"), Node(name="c", allocatable=Resources())], [job("j", high=9)])
    driver.cluster.put(web("w", 5_000))
    decided = driver.plan()
    assert {pod.node for pod in driver.cluster.pods.values() if pod.role is Role.TRAINER} == {"b"}
    assert demand(decided, "w").state is DemandState.NEVER_FITS


@pytest.mark.parametrize("age", [nan, inf, -inf, None])
def test_odd_ages_change_no_count(age):
    """A7: the age of a checkpoint is a tie-break."""
    driver = settled([node("a")], [job("j", high=2, checkpoint_age_s=age), job("k", high=2, checkpoint_age_s=1.0)])
    driver.cluster.put(web("w"))
    assert len([action for action in driver.plan().actions if isinstance(action, DeletePod)]) == 1


@pytest.mark.parametrize("now_s", [nan, inf])
def test_a_clock_that_is_no_number_writes_nothing(now_s):
    """A7."""
    driver = settled([node("a")], [job("j", high=2)])
    driver.cluster.put(job("j", high=4))
    assert plan(driver.cluster.view(), CALM, now_s).actions == ()


def test_pods_on_vanished_nodes_and_beyond_a_nodes_room_are_borne():
    """An over-committed node has negative room; nothing comes to it, and what stands there is left alone."""
    driver = settled([node("a"), node("b")], [job("j", high=8)])
    driver.cluster.put(replace(web("w", 9_000), node="a", phase=PodPhase.READY, unschedulable_since_s=None))
    driver.cluster.put(replace(web("x", 9_000), node="nowhere", phase=PodPhase.READY, unschedulable_since_s=None))
    decided = driver.plan()
    assert not [action for action in decided.actions if isinstance(action, CreatePod)]
    assert decision(decided, "j").now == 8


def test_a_view_with_a_node_twice_is_refused():
    """At the door, new or brought forward."""
    view = View(revision=1, observed_at_s=0.0, nodes=(node("a"),))
    with pytest.raises(InvalidViewError, match="a is given twice"):
        view.evolve(nodes=[node("b"), node("a"), node("a")])


def test_ten_thousand_jobs_want_one_gpu():
    """The oldest one starts; the others wait for the same room, each with its reason."""
    gpu = [job(f"j{number:05}", high=1, gpu=1, cpu_milli=1, submitted_at_s=float(number)) for number in range(10_000)]
    decided = plan(MemoryCluster([node("a", gpu=1)], gpu, now_s=0.0).view(), CALM, 0.0)
    assert [action.job for action in decided.actions] == ["j00000"]
    assert {entry.bottleneck for entry in decided.decisions[1:]} == {Bottleneck.NODE_FIT}


def test_requests_over_any_node_cost_nothing():
    """A pod larger than all nodes together, and a gang of such."""
    driver = settled([node("a"), node("b")], [job("giant", cpu_milli=9_000), job("j", high=8)])
    driver.cluster.put(web("w", 10**9))
    decided = driver.plan()
    assert decided.actions == ()
    assert decision(decided, "giant").bottleneck is Bottleneck.NEVER_FITS


def test_drained_servers_wait_for_their_numbers():
    """ADR 0121: what the adapter would refuse is not proposed, and comes as soon as the old pod is gone."""
    driver = settled([node("a"), node("b", 0)], [job("j", low=2, high=2, servers=2, master_milli=100)])
    driver.cluster.put(node("a", is_draining=True), node("b"))
    first = driver.turn()
    assert [wait.job for wait in first.waits] == ["j"]
    early = [action for action in driver.plan().actions if isinstance(action, CreatePod)]
    assert Role.SERVER not in {action.role for action in early}
    driver.settle()
    servers = {pod.ordinal: pod.node for pod in driver.cluster.pods.values() if pod.role is Role.SERVER}
    assert servers == {0: "b", 1: "b"}


def test_server_on_a_lost_node_keeps_its_number():
    """ADR 0121: a number that never comes free is no wait; the core is short, and the job leaves whole in the end."""
    nodes = [node(name) for name in "abcd"]
    driver = settled([*nodes], [job("j", low=1, high=1, servers=1, master_milli=100)])
    home = next(pod.node for pod in driver.cluster.pods.values() if pod.role is Role.SERVER)
    for pod in [pod for pod in driver.cluster.pods.values() if pod.role is not Role.SERVER]:
        driver.cluster.put(replace(pod, node="d" if home != "d" else "c"))
    driver.cluster.put(node(home, is_ready=False))
    first = driver.plan()
    assert decision(first, "j").is_degraded
    assert [entry.job for entry in first.history.shortfalls] == ["j"]


def test_shape_that_asks_for_nothing_fits_everywhere_and_ends():
    """A zero request is not endless places."""
    driver = settled([node("a", 1_000)], [job("j", high=3, cpu_milli=0)])
    driver.cluster.put(web("w", 0))
    decided = driver.settle()
    assert decision(decided, "j").now == 3
    assert shape(0).requests == Resources()
