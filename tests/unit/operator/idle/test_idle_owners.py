"""Owners of idle pods that hold the only replica: scaled where they declare that, else told and kept (promise A10)."""

import pytest

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS, STATEFUL_SETS
from autoscaler.domain.idleness import StayReason
from tests.unit.operator.idle.idle_scene import AGREED, NO_MINIMUM, NOTICE_S, IdleScene, pass_time

SET = {"kind": "StatefulSet", "name": "alice-notebook"}


@pytest.mark.parametrize(
    ("owner", "minimum", "replicas", "there", "told"),
    [
        (SET, "0", 1, 1, "IdleGpusGivenBack"),
        (SET, None, 1, 1, "IdleReclaimIgnored"),  # not declared: it would be created again
        (SET, "0", 3, 3, "IdleReclaimIgnored"),  # no pod of that name is the highest of three
        (SET, "0", 1, 0, "IdleGpusKept"),  # it does not count this pod
        (SET, "0", 1, 2, "IdleGpusKept"),  # amid an update: the new one may compute
        ({"kind": "Job", "name": "alice-notebook"}, "0", 1, 1, "IdleReclaimIgnored"),
    ],
)
async def test_the_owner_of_a_single_replica_is_scaled_if_it_declares_that(owner, minimum, replicas, there, told):
    """A pod with a controller is never evicted: its successor would take the GPU again."""
    scene = IdleScene()
    ref = await scene.add_owner(STATEFUL_SETS, "alice-notebook", replicas=replicas, there=there)
    for name in ("alice", "bob"):
        await scene.add(name, AGREED, owner=ref | owner)
    if minimum is not None:
        await scene.annotate("alice", minimum=minimum)
    await pass_time(scene, NOTICE_S + 40, alice=90)
    assert scene.names() == ["alice", "bob"]  # the controller ends its pod, not EDL
    found = await scene.api.get(STATEFUL_SETS, "alice-notebook", namespace="nb")
    assert found["spec"]["replicas"] == (0 if told == "IdleGpusGivenBack" else replicas)
    if not found["spec"]["replicas"]:
        assert scene.said(told) == []
        await scene.api.delete(PODS, "alice", namespace="nb", grace_s=0)
    await pass_time(scene, NOTICE_S, alice=90)
    assert scene.said(told).count("alice") == 1


async def test_an_owner_at_its_declared_minimum_is_not_warned():
    """It agreed, and nothing is wrong: the plan is told why the pod stays."""
    scene = IdleScene(gpus=2, pods=1)
    ref = await scene.add_owner(STATEFUL_SETS, "alice-notebook")
    await scene.add("alice", AGREED | {"edl.dev/idle-min-replicas": "1"}, owner=ref)
    await pass_time(scene, 2 * NOTICE_S, alice=90)
    assert (scene.events.said, scene.use[1][0].stays) == ([], StayReason.MINIMUM)
    assert await replicas_of(scene, STATEFUL_SETS, "alice-notebook") == 1


async def deployment_of(scene, **words):
    """A Deployment that selects `app: web`, and its pod alice; both agreed."""
    spec = {"selector": {"matchLabels": {"app": "web"}}} | words
    ref = await scene.add_owner(DEPLOYMENTS, "web", **spec)
    labels = {"app": "web", "pod-template-hash": "5d9"}
    await scene.add("alice", AGREED | NO_MINIMUM, owner={"kind": "ReplicaSet", "name": "web-5d9"}, labels=labels)
    return ref


async def replicas_of(scene, kind=DEPLOYMENTS, name="web"):
    return (await scene.api.get(kind, name, namespace="nb"))["spec"]["replicas"]


async def test_a_deployment_of_one_replica_is_scaled_by_its_labels():
    """It is as old as its pod, selects it, and counts one."""
    scene = IdleScene(gpus=2, pods=1)
    await deployment_of(scene)
    await pass_time(scene, NOTICE_S + 40, alice=90)
    assert await replicas_of(scene) == 0
    await scene.api.delete(PODS, "alice", namespace="nb", grace_s=0)
    await pass_time(scene, 20)
    assert scene.said("IdleGpusGivenBack") == ["alice"]


async def test_a_deployment_that_an_autoscaler_scales_is_told_and_kept():
    """Kubernetes stops an autoscaler at 0 replicas: the service would stay down (A10)."""
    scene = IdleScene(gpus=2, pods=1)
    await scene.add_scaler("web-hpa", await deployment_of(scene))
    await pass_time(scene, 2 * NOTICE_S, alice=90)
    assert await replicas_of(scene) == 1
    assert [(reason, name) for reason, name, _ in scene.events.said] == [("IdleReclaimIgnored", "alice")]
    assert "HorizontalPodAutoscaler web-hpa" in scene.events.said[0][2]


@pytest.mark.parametrize("kind", [DEPLOYMENTS, STATEFUL_SETS])
async def test_an_autoscaler_that_the_watch_has_not_shown_keeps_the_owner(kind):
    """Autoscalers are listed once more before the deed (A10)."""
    scene = IdleScene(gpus=2, pods=1)
    if kind == DEPLOYMENTS:
        ref = await deployment_of(scene)
    else:
        ref = await scene.add_owner(kind, "web")
        await scene.add("alice", AGREED | NO_MINIMUM, owner=ref)
    scene.objects.scaler = lambda *_: ""
    await pass_time(scene, NOTICE_S, alice=90)
    await scene.add_scaler("web-hpa", ref)
    await pass_time(scene, NOTICE_S, alice=90)
    assert (await replicas_of(scene, kind), scene.said("IdleGpus")[0]) == (1, "alice")
    assert scene.said("IdleGpusGivenBack") == []
    assert scene.said("IdleGpusKept") == ["alice"]  # and it blocks no other meanwhile


async def test_a_deployment_that_only_has_the_name_of_the_pods_owner_is_kept():
    """Its selector is not the pod's, or it was made after the pod of a ReplicaSet that had been orphaned."""
    scene = IdleScene(gpus=2, pods=1)
    await deployment_of(scene, selector={"matchLabels": {"app": "other"}})
    await pass_time(scene, 2 * NOTICE_S, alice=90)
    assert (await replicas_of(scene), scene.said("IdleGpusKept")) == (1, ["alice"])
    scene = IdleScene(gpus=2, pods=1)
    await deployment_of(scene)
    scene.now_unix_s += 60.0
    await scene.api.delete(DEPLOYMENTS, "web", namespace="nb")
    await scene.add_owner(DEPLOYMENTS, "web", selector={"matchLabels": {"app": "web"}})
    await pass_time(scene, 2 * NOTICE_S, alice=90)
    assert (await replicas_of(scene), scene.said("IdleReclaimIgnored")) == (1, ["alice"])


async def test_an_owner_that_is_made_anew_after_it_was_asked_is_kept():
    """The scale that is read before the write is another object's."""
    scene = IdleScene(gpus=2, pods=1)
    ref = await scene.add_owner(STATEFUL_SETS, "web")
    await scene.add("alice", AGREED | NO_MINIMUM, owner=ref)
    get = scene.api.get

    async def made_anew(kind, name, **words):
        found = await get(kind, name, **words)
        return found | {"metadata": found["metadata"] | {"uid": "new"}} if "subresource" in words else found

    scene.api.get = made_anew
    await pass_time(scene, 2 * NOTICE_S, alice=90)
    scene.api.get = get
    assert (await replicas_of(scene, STATEFUL_SETS), scene.said("IdleGpusKept")) == (1, ["alice"])
