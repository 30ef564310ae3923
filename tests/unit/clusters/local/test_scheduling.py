"""Placement of web pods: a filter, then the emptiest node."""

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.clusters.local.machine.scheduling import place_pending
from autoscaler.domain import Node, Pod, PodPhase, Resources, Role, Shape, Tier


def node(name, cpu_milli=4000, **flags):
    return Node(name=name, allocatable=Resources(cpu_milli=cpu_milli, memory_bytes=8 << 30), **flags)


def web(name, cpu_milli=1000, **fields):
    shape = Shape(requests=Resources(cpu_milli=cpu_milli, memory_bytes=1 << 20))
    return Pod(name=name, role=Role.EXTERNAL, tier=Tier.EXTERNAL, shape=shape, phase=PodPhase.PENDING, **fields)


def free(*nodes):
    return {n.name: n.allocatable for n in nodes}


def test_pods_spread_over_the_emptiest_nodes():
    """LeastAllocated."""
    nodes = [node("a"), node("b")]
    placed = place_pending([web(f"w{i}") for i in range(4)], nodes, free(*nodes))
    assert sorted(placed.values()) == ["a", "a", "b", "b"]


def test_a_pod_that_fits_nowhere_has_no_node():
    """That is the planner's demand."""
    nodes = [node("a")]
    assert place_pending([web("w", cpu_milli=5000)], nodes, free(*nodes)) == {"w": None}


def test_closed_nodes_take_nothing():
    """Cordoned, draining and lost ones."""
    nodes = [node("a", is_cordoned=True), node("b", is_draining=True), node("c", is_ready=False)]
    assert place_pending([web("w")], nodes, free(*nodes)) == {"w": None}


def test_the_higher_priority_goes_first():
    """And then the older one."""
    nodes = [node("a", cpu_milli=1000)]
    placed = place_pending([web("old"), web("high", priority=5, created_at_s=9.0)], nodes, free(*nodes))
    assert placed == {"high": "a", "old": None}


@given(st.lists(st.integers(100, 3000), max_size=12), st.lists(st.integers(500, 4000), min_size=1, max_size=4))
def test_no_node_is_ever_overfull(requests, capacities):
    """Capacity holds (A2), and no pod waits that a node could take."""
    nodes = [node(f"n{i}", cpu_milli=capacity) for i, capacity in enumerate(capacities)]
    pods = [web(f"w{i:02}", cpu_milli=cpu) for i, cpu in enumerate(requests)]
    placed = place_pending(pods, nodes, free(*nodes))
    left = {n.name: n.allocatable.cpu_milli for n in nodes}
    for pod in pods:
        if placed[pod.name] is not None:
            left[placed[pod.name]] -= pod.requests.cpu_milli
    assert min(left.values()) >= 0
    waiting = [pod.requests.cpu_milli for pod in pods if placed[pod.name] is None]
    assert not waiting or min(waiting) > max(left.values())
