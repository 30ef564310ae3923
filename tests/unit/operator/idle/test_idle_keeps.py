"""A pod that is kept before, in and after the second of the deed, however slow the API server is (promise A12)."""

import pytest

from autoscaler.clusters.kubernetes.api.kinds import NAMESPACES, PODS, STATEFUL_SETS
from autoscaler.operator.idle.owner_scaling import AGREED_FOR_S
from tests.unit.operator.idle.idle_scene import (
    AGREED,
    NO_MINIMUM,
    NOTICE_S,
    IdleScene,
    pass_time,
    scene_of,
)


async def test_a_keep_counts_from_the_next_second_and_never_beyond_its_end():
    """`edl keep`, a moment before the deed; it is told anew after that."""
    scene = await scene_of()
    await pass_time(scene, NOTICE_S, alice=90)
    await scene.keep("alice", 600)
    await pass_time(scene, 580, alice=90)
    assert scene.names() == ["alice", "bob"]
    await pass_time(scene, NOTICE_S + 60, alice=90)
    assert scene.names() == ["bob"]
    assert scene.said("IdleGpus") == ["alice", "alice"]


async def test_a_keep_in_the_second_of_the_deed_is_honoured():
    """Annotations are read as they are now, not as they were planned."""
    scene = await scene_of()
    await pass_time(scene, NOTICE_S, alice=90)
    scene.now_unix_s += 20
    scene.report(alice=90)
    await scene.keep("alice", 3_600)
    await scene.reclaimer.act()  # by the plan before
    assert scene.names() == ["alice", "bob"]


def slow_when(scene, monkeypatch, *, asked, takes_s, then):
    """Let the API server take its time for one read, in which something happens."""
    read, happened = scene.api.get, []

    async def get(kind, name, **how):
        if kind == asked and not happened:
            happened.append(name)
            found = await read(kind, name, **how)
            scene.now_unix_s += takes_s
            await then()
            return found
        return await read(kind, name, **how)

    monkeypatch.setattr(scene.api, "get", get)
    return happened


@pytest.mark.parametrize("takes_s", [0.0, 5.0])
async def test_a_keep_while_the_api_server_is_slow_is_honoured(monkeypatch, takes_s):
    """The pod, which has the veto, is read after everything else that may take long."""
    scene = await scene_of(reclaim=None)
    await scene.annotate("nb", kind=NAMESPACES, reclaim="30m")
    await pass_time(scene, NOTICE_S, alice=90)
    scene.now_unix_s += 20
    scene.report(alice=90)
    happened = slow_when(scene, monkeypatch, asked=NAMESPACES, takes_s=takes_s, then=lambda: scene.keep("alice", 3_600))
    await scene.reclaimer.act()  # by the plan before
    assert happened
    assert scene.names() == ["alice", "bob"]


@pytest.mark.parametrize("is_owned", [False, True])
async def test_a_deed_long_after_its_pod_was_read_is_not_done(monkeypatch, is_owned):
    """Whoever said no meanwhile is heard by another look; eviction and scale alike."""
    scene, name = IdleScene(), "alice-0"
    ref = await scene.add_owner(STATEFUL_SETS, "alice") if is_owned else None
    await scene.add(name, AGREED | (NO_MINIMUM if is_owned else {}), owner=ref)
    await scene.add("bob", {})

    async def is_there():
        if not is_owned:
            return name in scene.names()
        return (await scene.api.get(STATEFUL_SETS, "alice", namespace="nb"))["spec"]["replicas"] == 1

    await pass_time(scene, NOTICE_S, **{name: 90})
    scene.now_unix_s += 20
    scene.report(**{name: 90})
    happened = slow_when(scene, monkeypatch, asked=PODS, takes_s=AGREED_FOR_S + 0.1, then=lambda: scene.keep(name, 60))
    await scene.reclaimer.act()
    assert happened
    assert await is_there()
    await pass_time(scene, NOTICE_S + 120, **{name: 90})
    assert not await is_there(), "without a slow server and a veto it goes"


async def test_a_keep_is_out_of_the_plan_with_the_next_look():
    """Not with the next joining of reports and pods, some seconds later."""
    scene = await scene_of()
    await pass_time(scene, 60, alice=90)
    assert not scene.reclaimer._has_changed() or not scene.reclaimer.refresh()
    assert not scene.reclaimer._has_changed()
    await scene.keep("alice", 600)
    assert scene.reclaimer._has_changed()


async def test_a_keep_that_the_watch_has_not_shown_is_honoured():
    """The pod is read once more at the API server before the deed."""
    scene = await scene_of()
    await pass_time(scene, NOTICE_S, alice=90)
    late = {name: scene.reclaimer._raw(f"nb/{name}") for name in ("alice", "bob")}
    await scene.keep("alice", 3_600)
    scene.reclaimer._raw = lambda name: late[name.split("/")[1]]
    await pass_time(scene, 60, alice=90)
    assert scene.names() == ["alice", "bob"]
