"""Room of the cluster as metrics: uses add up to what the nodes offer, and nothing stands on an operator that waits."""

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain import ClusterView, JobName, Node, NodeName, Pod, PodName, PodPhase, Resources, Role, Shape, Tier
from autoscaler.operator.cluster_room import NodeState, RoomUse, room_of
from autoscaler.operator.metrics import Metrics

ONE = Resources(cpu_milli=1000, memory_bytes=1 << 30, gpu_count=1)
TIERS = {Tier.EXTERNAL: RoomUse.OTHERS, Tier.CORE: RoomUse.CORE, Tier.SURPLUS: RoomUse.SURPLUS}


def node(name, size=4, **more):
    return Node(name=NodeName(name), allocatable=scaled(size), **more)


def scaled(times):
    return Resources(cpu_milli=1000 * times, memory_bytes=times << 30, gpu_count=times)


def pod(number, tier, where, *, phase=None, nominated=None):
    of_job = tier is not Tier.EXTERNAL
    return Pod(
        name=PodName(f"pod-{number}"),
        role=Role.TRAINER if of_job else Role.EXTERNAL,
        tier=tier,
        shape=Shape(requests=ONE),
        phase=phase or (PodPhase.READY if where else PodPhase.PENDING),
        node=where,
        nominated_node=nominated,
        job=JobName("team-a/digits") if of_job else None,
        ordinal=number,
    )


def view(nodes, pods=(), revision=1):
    return ClusterView(revision=revision, observed_at_s=0.0, nodes=nodes, pods=pods)


def gpus(room):
    return {use: amounts.gpu_count for use, amounts in room.amounts.items()}


def test_room_is_told_by_tier_and_by_what_new_pods_may_take():
    """A cordoned node's free room is closed; a nominated pod takes its place; one without a node waits."""
    nodes = (node("a"), node("b", is_cordoned=True), node("c", is_ready=False))
    pods = (
        pod(0, Tier.EXTERNAL, "a"),
        pod(1, Tier.CORE, "a", phase=PodPhase.TERMINATING),
        pod(2, Tier.SURPLUS, "b"),
        pod(3, Tier.EXTERNAL, None, nominated="a"),
        pod(4, Tier.EXTERNAL, None),
        pod(5, Tier.SURPLUS, None),
        pod(6, Tier.CORE, "gone"),
    )
    room = room_of(view(nodes, pods))
    assert gpus(room) == {
        RoomUse.OTHERS: 2,
        RoomUse.CORE: 1,
        RoomUse.SURPLUS: 1,
        RoomUse.FREE: 1,
        RoomUse.CLOSED: 7,
    }
    assert room.nodes == {NodeState.OPEN: 1, NodeState.CORDONED: 1, NodeState.NOT_READY: 1}
    assert room.waiting_pods == 1


@given(
    sizes=st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.booleans()), min_size=1, max_size=4),
    places=st.lists(st.tuples(st.sampled_from(tuple(TIERS)), st.integers(0, 3)), max_size=20),
)
def test_uses_add_up_to_what_the_nodes_offer(sizes, places):
    """Every resource, whatever the nodes are; a node whose pods request more than it has counts as full."""
    nodes = tuple(node(f"n{i}", size, is_ready=ready, is_cordoned=shut) for i, (size, ready, shut) in enumerate(sizes))
    pods = tuple(pod(i, tier, f"n{at % len(nodes)}") for i, (tier, at) in enumerate(places))
    room = room_of(view(nodes, pods))
    on = [sum(one.node == each.name for one in pods) for each in nodes]
    total = sum(max(size, taken) for (size, _, _), taken in zip(sizes, on, strict=True))
    assert sum(room.amounts.values(), Resources()) == scaled(total)
    assert {tier: gpus(room)[use] for tier, use in TIERS.items()} == {
        tier: sum(one.tier is tier for one in pods) for tier in TIERS
    }
    assert sum(room.nodes.values()) == len(nodes)


def test_a_view_that_changed_is_shown_and_one_who_leads_no_more_shows_none():
    """An operator that stands by has no series: two sources would add up to twice the room."""
    metrics = Metrics()
    metrics.room.show(view((node("a"),)))
    assert 'edl_cluster_gpus{use="free"} 4.0' in metrics.render().decode()
    metrics.room.show(view((node("a"),), (pod(0, Tier.SURPLUS, "a"),), revision=2))
    told = metrics.render().decode()
    assert 'edl_cluster_gpus{use="free"} 3.0' in told
    assert 'edl_cluster_cpu_cores{use="surplus"} 1.0' in told
    assert 'edl_cluster_memory_bytes{use="surplus"} 1.073741824e+09' in told
    assert 'edl_cluster_nodes{state="open"} 1.0' in told
    assert 'edl_cluster_waiting_pods{of="others"} 0.0' in told
    metrics.forget_jobs()
    assert "edl_cluster_gpus{" not in metrics.render().decode()
    metrics.room.show(view((node("a"),), (pod(0, Tier.SURPLUS, "a"),), revision=2))
    assert 'edl_cluster_gpus{use="free"} 3.0' in metrics.render().decode()
