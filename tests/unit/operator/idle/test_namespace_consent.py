"""A namespace's default through the operator: watched, overruled, read again before the deed (ADR 0260, A12)."""

import pytest

from autoscaler.clusters.kubernetes.api.kinds import NAMESPACES, STATEFUL_SETS
from autoscaler.errors import ClusterError
from tests.unit.operator.idle.idle_scene import NOTICE_S, IdleScene, pass_time


async def scene_of(reclaim="30m", **words):
    """`alice` and `bob` say nothing; their namespace does.  A gang waits for the two GPUs of one of them."""
    scene = IdleScene(**words)
    for name in ("alice", "bob"):
        await scene.add(name, {})
    await scene.annotate("nb", kind=NAMESPACES, reclaim=reclaim)
    return scene


async def test_pods_of_a_namespace_that_agreed_are_told_and_leave():
    """As if each of them had the annotation."""
    scene = await scene_of()
    await pass_time(scene, 2 * NOTICE_S, alice=90, bob=60)
    assert scene.names() == ["bob"]
    assert [reason for reason, _, _ in scene.events.said] == ["IdleGpus", "IdleGpusGivenBack"]


async def test_a_pod_that_says_off_stays():
    """The next longest unused one goes in its place."""
    scene = await scene_of()
    await scene.annotate("alice", reclaim="off")
    await pass_time(scene, 2 * NOTICE_S, alice=90, bob=60)
    assert scene.names() == ["alice"]


async def test_a_default_that_is_nonsense_is_told_once_at_the_namespace_and_ignored():
    """Nobody's pod is told of it."""
    scene = await scene_of(reclaim="whenever")
    await pass_time(scene, 2 * NOTICE_S, alice=90, bob=60)
    assert scene.names() == ["alice", "bob"]
    assert [(reason, name) for reason, name, _ in scene.events.said] == [("IdleReclaimIgnored", "nb")]
    await scene.annotate("nb", kind=NAMESPACES, reclaim="30m")
    await scene.tick()
    await scene.annotate("nb", kind=NAMESPACES, reclaim="whenever")
    await pass_time(scene, 60, alice=90, bob=60)
    assert scene.said("IdleReclaimIgnored") == ["nb", "nb"]  # it was sound meanwhile


async def test_a_namespace_that_withdraws_in_the_second_of_the_deed_is_honoured():
    """The watch has not shown it yet."""
    scene = await scene_of()
    await pass_time(scene, NOTICE_S, alice=90)
    await scene.annotate("nb", kind=NAMESPACES, reclaim="off")
    scene.watch = _nothing
    await pass_time(scene, 60, alice=90)
    assert scene.names() == ["alice", "bob"]
    assert scene.said("IdleGpusGivenBack") == []


async def test_a_namespace_that_asks_for_more_time_in_the_second_of_the_deed_is_honoured():
    """The watch still shows 30 minutes; the pod has been unused for 90, which are no 12 hours."""
    scene = await scene_of()
    await pass_time(scene, NOTICE_S, alice=90)
    await scene.annotate("nb", kind=NAMESPACES, reclaim="12h")
    scene.watch = _nothing
    await pass_time(scene, 60, alice=90)
    assert scene.names() == ["alice", "bob"]
    await pass_time(scene, 60, alice=721)
    assert scene.names() == ["bob"]


async def test_nothing_is_told_of_an_owner_before_owners_have_been_listed():
    """At the start of a term, or for ever where `policy.idleReclaim` is off and nobody follows them."""
    scene = IdleScene(gpus=2, pods=1)
    ref = await scene.add_owner(STATEFUL_SETS, "carol")
    await scene.add("carol", {"edl.dev/idle-reclaim": "30m", "edl.dev/idle-min-replicas": "0"}, owner=ref)
    watch = scene.watch
    scene.watch = _nothing
    await pass_time(scene, 60, carol=90)
    assert scene.events.said == []
    scene.watch = watch
    await pass_time(scene, 60, carol=90)
    assert [reason for reason, _, _ in scene.events.said] == ["IdleGpus"]


async def test_a_namespace_that_cannot_be_read_now_keeps_its_pods():
    """Without the answer nobody knows whether its default still holds."""
    scene = await scene_of()
    await pass_time(scene, NOTICE_S, alice=90)
    get = scene.api.get

    async def refuse(kind, name, **words):
        if kind == NAMESPACES:
            raise ClusterError("namespaces is forbidden")
        return await get(kind, name, **words)

    scene.api.get = refuse
    await pass_time(scene, 60, alice=90)
    assert scene.names() == ["alice", "bob"]


async def test_an_owner_that_says_off_keeps_its_pods():
    """At the StatefulSet itself, which its pods' template need not change for; also one that nobody has shown yet."""
    for shows in (True, False):
        scene = await scene_of()
        ref = await scene.add_owner(STATEFUL_SETS, "carol")
        await scene.add("carol", {"edl.dev/idle-min-replicas": "0"}, owner=ref)
        scene.per_pod, scene.gpus = 2, 6
        await pass_time(scene, NOTICE_S, carol=90)
        assert scene.said("IdleGpus") == ["carol"]
        await scene.annotate("carol", kind=STATEFUL_SETS, reclaim="off")
        if not shows:
            scene.watch = _nothing
        await pass_time(scene, 120, carol=90)
        assert (await scene.api.get(STATEFUL_SETS, "carol", namespace="nb"))["spec"]["replicas"] == 1


@pytest.mark.parametrize(("namespaces", "left"), [((), ["bob"]), (("nb",), ["bob"]), (("ml",), ["alice", "bob"])])
async def test_where_edl_may_not_write_nobody_has_agreed(namespaces, left):
    """The chart's `namespaces`: a pod elsewhere could not be evicted, so nobody counts on its GPUs."""
    scene = await scene_of(namespaces=namespaces)
    await pass_time(scene, 2 * NOTICE_S, alice=90, bob=60)
    assert scene.names() == left


async def _nothing():
    """A watch that shows nothing new."""
