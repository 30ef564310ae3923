"""Room of the cluster as metrics: uses add up to what the nodes offer, and nothing stands on an operator that waits."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain import (
    ClusterView,
    Job,
    JobName,
    JobState,
    MasterSpec,
    Node,
    NodeName,
    Pod,
    PodName,
    PodPhase,
    Resources,
    Role,
    Shape,
    Tier,
    TrainerSpec,
)
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
    assert (room.waiting_pods, room.pods, room.ready_pods) == (1, 3, 1)
    assert room.held == {"team-a/digits": (2000, 2)}, "what stands on nodes that are there"


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


def test_what_is_wanted_is_every_pod_and_the_maximum_of_each_active_job():
    """As the page counts it: trainers that are there or wait are wanted once, and a job that is over wants none."""

    def job(name, most, **more):
        trainer = TrainerSpec(shape=Shape(requests=ONE), min_replicas=1, max_replicas=most, **more)
        return Job(name=JobName(name), trainer=trainer, master=MasterSpec(shape=Shape(requests=ONE), replicas=1))

    over = replace(job("team-a/over", 9), state=JobState.OVER)
    jobs = (job("team-a/digits", 5), job("team-a/pinned", 8, pinned_replicas=2), over)
    pods = (pod(0, Tier.CORE, "a"), pod(1, Tier.SURPLUS, None), pod(2, Tier.EXTERNAL, None))
    room = room_of(replace(view((node("a"),), pods), jobs=jobs))
    assert room.wanted == (1000 * (5 + 2 + 1), 5 + 2 + 1)


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
    assert 'edl_cluster_wanted_gpus{of="all"} 1.0' in told
    assert 'edl_job_held_gpus{job="digits",namespace="team-a"} 1.0' in told
    assert 'edl_job_held_cpu_cores{job="digits",namespace="team-a"} 1.0' in told
    metrics.room.show(view((node("a"),), revision=3))
    assert "edl_job_held_gpus{" not in metrics.render().decode(), "the job has no pod any more"
    metrics.room.show(view((node("a"),), (pod(0, Tier.SURPLUS, "a"),), revision=2))
    metrics.forget_jobs()
    told = metrics.render().decode()
    assert "edl_cluster_gpus{" not in told
    assert "edl_job_held_gpus{" not in told
    metrics.room.show(view((node("a"),), (pod(0, Tier.SURPLUS, "a"),), revision=2))
    assert 'edl_cluster_gpus{use="free"} 3.0' in metrics.render().decode()
