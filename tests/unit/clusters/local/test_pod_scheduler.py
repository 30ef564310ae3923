"""The scheduler of a run, on an API server in memory."""

from autoscaler.clusters.kubernetes.api.kinds import NODES, PODS, PRIORITY_CLASSES
from autoscaler.clusters.kubernetes.memory_api import MemoryServer
from autoscaler.clusters.kubernetes.memory_api.field_ownership import FieldOwner
from autoscaler.clusters.kubernetes.objects.node_affinity import prefer_nodes, tie_to_node
from autoscaler.clusters.local.control_plane.control_plane import create_node
from autoscaler.clusters.local.control_plane.pod_scheduler import schedule_pods
from autoscaler.domain import Node, Resources
from autoscaler.fault_isolation import JobErrors

USER = FieldOwner("kubectl", is_apply=False)


def cluster(*names, cpu_milli=4000):
    server = MemoryServer(now=lambda: 0.0)
    for name in names:
        capacity = Resources(cpu_milli=cpu_milli, memory_bytes=8 << 30, extended=(("pods", 110),))
        create_node(server, Node(name=name, allocatable=capacity))
    return server


def spec(cpu="1", **more):
    return {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}], **more}


def add(server, name, wanted=None):
    server.create(PODS, {"metadata": {"name": name, "namespace": "default"}, "spec": wanted or spec()}, USER)


def node_of(server, name):
    return server.get(PODS, "default", name)["spec"].get("nodeName")


def verdict(server, name):
    conditions = server.get(PODS, "default", name)["status"].get("conditions", ())
    return next((one.get("reason") for one in conditions if one["type"] == "PodScheduled"), None)


def test_pods_go_to_the_emptiest_nodes():
    """LeastAllocated, one pod after the other."""
    server = cluster("a", "b")
    for number in range(4):
        add(server, f"w{number}")
    schedule_pods(server, JobErrors(lambda: 0.0))
    assert sorted(node_of(server, f"w{number}") for number in range(4)) == ["a", "a", "b", "b"]


def test_a_pod_that_fits_nowhere_is_told_so_once():
    """That is the planner's demand; the verdict keeps its first instant."""
    server = cluster("a")
    add(server, "w", spec(cpu="5"))
    schedule_pods(server, JobErrors(lambda: 0.0))
    assert node_of(server, "w") is None
    assert verdict(server, "w") == "Unschedulable"
    version = server.history.version
    schedule_pods(server, JobErrors(lambda: 0.0))
    assert server.history.version == version


def test_a_pod_is_bound_once_there_is_room():
    """A pod that has ended holds none."""
    server = cluster("a", cpu_milli=1000)
    add(server, "first")
    schedule_pods(server, JobErrors(lambda: 0.0))
    add(server, "second")
    schedule_pods(server, JobErrors(lambda: 0.0))
    assert verdict(server, "second") == "Unschedulable"
    pod = server.get(PODS, "default", "first")
    server.rewrite(PODS, pod, {**pod, "status": {**pod["status"], "phase": "Succeeded"}})
    schedule_pods(server, JobErrors(lambda: 0.0))
    assert node_of(server, "second") == "a"


def test_a_pod_that_is_tied_to_a_node_goes_nowhere_else():
    """EDL has proved its room there."""
    server = cluster("a", "b")
    add(server, "w", tie_to_node(spec(), "a"))
    schedule_pods(server, JobErrors(lambda: 0.0))
    assert node_of(server, "w") == "a"
    add(server, "x", tie_to_node(spec(cpu="4"), "a"))
    schedule_pods(server, JobErrors(lambda: 0.0))
    assert node_of(server, "x") is None


def test_a_preferred_node_is_taken_before_an_emptier_one():
    """A master takes the placement that was proved for it, or another one when that is full."""
    server = cluster("a", "b", "c")
    add(server, "w", prefer_nodes(spec(cpu="3"), ["b"]))
    schedule_pods(server, JobErrors(lambda: 0.0))
    assert node_of(server, "w") == "b"
    add(server, "x", prefer_nodes(spec(cpu="3"), ["b"]))
    schedule_pods(server, JobErrors(lambda: 0.0))
    assert node_of(server, "x") in {"a", "c"}


def test_gated_and_deleted_pods_wait():
    """A gang's pods are bound once their gate is lifted."""
    server = cluster("a")
    add(server, "w", spec(schedulingGates=[{"name": "edl.dev/gang"}]))
    schedule_pods(server, JobErrors(lambda: 0.0))
    assert node_of(server, "w") is None
    assert verdict(server, "w") == "SchedulingGated"


def test_who_has_priority_is_placed_first():
    """Then who is older, then by name."""
    server = cluster("a", cpu_milli=1000)
    server.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 10}, USER)
    add(server, "a-low")
    add(server, "z-high", spec(priorityClassName="high"))
    schedule_pods(server, JobErrors(lambda: 0.0))
    assert node_of(server, "z-high") == "a"
    assert node_of(server, "a-low") is None


def test_a_cordoned_node_takes_nothing():
    """`kubectl cordon`."""
    server = cluster("a")
    node = server.get(NODES, None, "a")
    server.rewrite(NODES, node, {**node, "spec": {"unschedulable": True}})
    add(server, "w")
    schedule_pods(server, JobErrors(lambda: 0.0))
    assert node_of(server, "w") is None
