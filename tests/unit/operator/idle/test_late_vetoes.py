"""A veto that comes while the deed is prepared: each read and write may take seconds (ADR 0288, promise A12)."""

import pytest

from autoscaler.clusters.kubernetes.api.api_port import Subresource
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, EVICTIONS, NAMESPACES, PODS, STATEFUL_SETS
from tests.unit.operator.idle.idle_scene import NOTICE_S, IdleScene, pass_time

AGREED = {"edl.dev/idle-reclaim": "30m", "edl.dev/idle-min-replicas": "0"}


def keep_before(scene, does):
    """`alice` is kept the moment before the first call of the API server of which `does(verb, kind, words)` holds."""
    kept = []

    def around(verb):
        call = getattr(scene.api, verb)

        async def asked(kind, *args, **words):
            if does(verb, kind, words) and not kept:
                kept.append(verb)
                await scene.keep("alice", 7_200)
            return await call(kind, *args, **words)

        setattr(scene.api, verb, asked)

    for verb in ("get", "create", "patch"):
        around(verb)
    return kept


async def test_a_veto_while_the_namespace_is_read_is_heard():
    """The pod is read after everything else."""
    scene = IdleScene(gpus=2, pods=1)
    await scene.annotate("nb", kind=NAMESPACES, reclaim="30m")
    await scene.add("alice", {})
    kept = keep_before(scene, lambda verb, kind, _: (verb, kind) == ("get", NAMESPACES))
    await pass_time(scene, 2 * NOTICE_S, alice=90)
    assert (kept, scene.names()) == (["get"], ["alice"])


async def test_a_veto_between_the_last_read_and_the_eviction_is_heard():
    """The eviction is of the version of the pod that agreed, and a refused one is no event of the pod's."""
    scene = IdleScene(gpus=2, pods=1)
    await scene.add("alice", AGREED)
    kept = keep_before(scene, lambda verb, kind, _: (verb, kind) == ("create", EVICTIONS))
    await pass_time(scene, 2 * NOTICE_S, alice=90)
    assert (kept, scene.names(), scene.said("IdleGpusGivenBack")) == (["create"], ["alice"], [])


@pytest.mark.parametrize("kind", [STATEFUL_SETS, DEPLOYMENTS])
async def test_a_veto_while_the_owner_is_asked_is_heard(kind):
    """The pod is read again once the scale is known; without a veto the owner is scaled a moment later."""
    scene = IdleScene(gpus=2, pods=1)
    ref = await scene.add_owner(kind, "web", selector={"matchLabels": {"app": "web"}})
    owner = ref if kind == STATEFUL_SETS else {"kind": "ReplicaSet", "name": "web-5d9"}
    await scene.add("alice", AGREED, owner=owner, labels={"app": "web", "pod-template-hash": "5d9"})
    kept = keep_before(scene, lambda _, of, words: of == kind and words.get("subresource") is Subresource.SCALE)

    async def replicas():
        return (await scene.api.get(kind, "web", namespace="nb"))["spec"]["replicas"]

    await pass_time(scene, 2 * NOTICE_S, alice=90)
    assert (kept, await replicas()) == (["get"], 1)
    await scene.annotate("alice", keep=None)
    await pass_time(scene, 2 * NOTICE_S, alice=90)
    assert await replicas() == 0


async def test_a_pod_that_changes_before_its_eviction_is_asked_again():
    """A status of its kubelet is no veto: it is told once, and leaves with the next try."""
    scene = IdleScene(gpus=2, pods=1)
    await scene.add("alice", AGREED)
    create, changed = scene.api.create, []

    async def change_first(kind, body):
        if kind == EVICTIONS and not changed:
            changed.append(body)
            status = {"status": {"phase": "Running"}}
            await scene.api.patch(PODS, "alice", status, namespace="nb", subresource=Subresource.STATUS)
        return await create(kind, body)

    scene.api.create = change_first
    await pass_time(scene, NOTICE_S + 60, alice=90)
    assert (len(changed), scene.names(), scene.said("IdleGpus")) == (1, [], ["alice"])
