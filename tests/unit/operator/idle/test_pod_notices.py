"""Notices to pods whose GPUs are to be given back: nobody loses one who was not told (ADR 0288, promises A11, A12)."""

from dataclasses import replace

import pytest

from autoscaler.clusters.kubernetes.api.kinds import EVENTS
from autoscaler.domain import ReclaimMode
from autoscaler.errors import ClusterError
from autoscaler.operator.store.event_recorder import BURST, MOST_QUEUED, EventRecorder, JobEvent, UnreadJob
from tests.unit.operator.idle.idle_scene import ACT, NOTICE_S, IdleScene, pass_time

AGREED = {"edl.dev/idle-reclaim": "30m"}


def recorder_of(scene):
    return EventRecorder(scene.api, identity="op", wall_s=lambda: scene.now_unix_s, errors=scene.errors)


def reasons_at(scene, name):
    return [one["reason"] for one in scene.server.all(EVENTS) if one["regarding"]["name"] == name]


async def test_a_queue_full_of_others_events_holds_up_no_notice():
    """One tenant's crash-looping jobs fill the queue: the notebook of another is told all the same (A11)."""
    scene = IdleScene(gpus=2, pods=1, make_events=recorder_of)
    await scene.add("alice", AGREED)
    for number in range(MOST_QUEUED):  # nobody writes them: no time for it
        looping = UnreadJob(name="loop", namespace="noisy", uid=str(number // BURST))
        scene.events.emit(looping, JobEvent(reason="TrainerFailed", message=str(number)))
    await pass_time(scene, 60, alice=90)
    assert reasons_at(scene, "alice") == ["IdleGpus"]
    await pass_time(scene, NOTICE_S, alice=90)
    assert scene.names() == []


async def test_the_notice_runs_from_when_the_api_server_has_its_event():
    """Until then the pod stays, however long that takes, and it is tried again."""
    scene = IdleScene(gpus=2, pods=1, make_events=recorder_of)
    await scene.add("alice", AGREED)
    create = scene.api.create

    async def refuse(kind, body):
        if kind == EVENTS:
            raise ClusterError("exceeded quota: count/events.events.k8s.io")
        return await create(kind, body)

    scene.api.create = refuse
    await pass_time(scene, 10 * NOTICE_S, alice=90)
    assert scene.names() == ["alice"]
    scene.api.create = create
    told_after_s = 0.0
    while not reasons_at(scene, "alice"):
        await pass_time(scene, 20, alice=90)
        told_after_s += 20.0
        assert told_after_s < 3_600
    await pass_time(scene, NOTICE_S - 20, alice=90)
    assert scene.names() == ["alice"]
    await pass_time(scene, 60, alice=90)
    assert scene.names() == []


async def test_a_pod_that_cannot_be_told_does_not_keep_others_from_being_asked():
    """Its namespace takes no more events: the next longest unused one is told."""
    scene = IdleScene(make_events=recorder_of)
    for name in ("alice", "bob"):
        await scene.add(name, AGREED)
    create = scene.api.create

    async def refuse(kind, body):
        if kind == EVENTS and body["regarding"]["name"] == "alice":
            raise ClusterError("exceeded quota: count/events.events.k8s.io")
        return await create(kind, body)

    scene.api.create = refuse
    await pass_time(scene, 2 * NOTICE_S, alice=90, bob=60)
    assert scene.names() == ["alice"]


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (replace(ACT, idle_reclaim=ReclaimMode.OBSERVE), "policy.idleReclaim is observe"),
        (replace(ACT, is_frozen=True), "policy.freeze is true"),
    ],
)
async def test_where_nothing_is_done_the_event_says_which_setting_keeps_it_from_being_done(policy, why):
    """Who reads it changes that setting."""
    scene = IdleScene(gpus=2, pods=1, policy=policy)
    await scene.add("alice", AGREED)
    await pass_time(scene, 60, alice=90)
    [(reason, _, message)] = scene.events.said
    assert (reason, message.endswith(f"nothing is done about it ({why})")) == ("IdleGpusObserved", True)
