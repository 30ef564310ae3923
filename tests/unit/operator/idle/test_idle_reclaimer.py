"""Unused GPUs of others given back: notice, veto, doubt and one message per decision (ADR 0288, promise A12)."""

from dataclasses import replace

import pytest

from autoscaler.clusters.kubernetes.api.errors import ConflictError
from autoscaler.clusters.kubernetes.api.kinds import EVICTIONS
from autoscaler.clusters.kubernetes.cache.object_cache import STALE_LIMIT_S
from autoscaler.domain import ReclaimMode
from autoscaler.domain.gpu_reports import FRESH_S, GpuVerdict
from autoscaler.errors import ClusterError
from autoscaler.operator.idle.idle_reclaimer import MOST_ASKED, PLAN_HOLDS_S
from tests.unit.operator.idle.idle_scene import (
    ACT,
    AGREED,
    NOTICE_S,
    OFFSET_S,
    IdleScene,
    pass_time,
    scene_of,
)


async def test_the_longest_unused_one_is_told_and_leaves_after_the_notice():
    """One message for the notice and one for the deed; the other notebook is left alone."""
    scene = await scene_of()
    await pass_time(scene, NOTICE_S - 20, alice=90, bob=60)
    assert scene.names() == ["alice", "bob"]
    assert scene.said("IdleGpus") == ["alice"]
    await pass_time(scene, 60, alice=90, bob=60)
    assert scene.names() == ["bob"]
    assert [reason for reason, _, _ in scene.events.said] == ["IdleGpus", "IdleGpusGivenBack"]


async def test_by_default_it_is_told_what_would_be_given_back_and_nothing_is_done():
    """Observe mode: an event once, and GPU-seconds as a metric."""
    scene = await scene_of(policy=replace(ACT, idle_reclaim=ReclaimMode.OBSERVE))
    await pass_time(scene, 3_600, alice=90, bob=60)
    assert scene.names() == ["alice", "bob"]
    assert scene.said("IdleGpusObserved") == ["alice"]
    pages = scene.metrics.render().decode()
    [seconds] = [
        float(line.split()[-1]) for line in pages.splitlines() if line.startswith("edl_idle_gpu_seconds_total")
    ]
    assert 2 * 3_500 <= seconds <= 2 * 3_600


@pytest.mark.parametrize(("mode", "told"), [(ReclaimMode.ACT, ["alice"]), (ReclaimMode.OBSERVE, [])])
async def test_a_notice_to_people_is_due_with_the_event(mode, told):
    """Once for each notice, and not where nothing is done; when the pod is kept it is due no more."""
    scene = await scene_of(policy=replace(ACT, idle_reclaim=mode))
    await pass_time(scene, 60, alice=90, bob=60)
    first = scene.reclaimer.occasions()
    await pass_time(scene, 60, alice=90, bob=60)
    assert [one.name for one in first] == told
    assert scene.reclaimer.occasions() == first
    assert all("waits for them" in one.message and one.since_unix_s < scene.now_unix_s - 60 for one in first)
    await scene.keep("alice", 600)
    await pass_time(scene, 40, alice=90)
    assert scene.reclaimer.occasions() == ()


async def test_a_frozen_operator_and_one_without_anybody_who_waits_do_nothing():
    """`policy.freeze`, and no pressure."""
    for words in ({"policy": replace(ACT, is_frozen=True)}, {"waits": 0}):
        scene = await scene_of(**words)
        await pass_time(scene, 2 * NOTICE_S, alice=90, bob=90)
        assert scene.names() == ["alice", "bob"]


@pytest.mark.parametrize("left_s", [20.0, PLAN_HOLDS_S + 1])
async def test_who_does_not_wait_any_more_gets_nothing_by_the_plan_before(left_s):
    """Its writes may take long: the waiting one is looked up in the view, and an old plan decides nothing."""
    scene = await scene_of()
    await pass_time(scene, NOTICE_S, alice=90)
    scene.now_unix_s += left_s
    jobs, scene.jobs = scene.jobs, [] if left_s < PLAN_HOLDS_S else scene.jobs
    scene.report(alice=90)
    await scene.reclaimer.act()
    assert scene.names() == ["alice", "bob"]
    scene.jobs = jobs
    await pass_time(scene, 40, alice=90)
    assert scene.names() == ["bob"]


async def test_a_report_that_came_before_the_end_of_the_notice_permits_nothing_whatever_its_clock_says():
    """A node's clock may be a minute ahead, and its urgent writes may have failed since."""
    scene = await scene_of()
    await pass_time(scene, NOTICE_S - 40, alice=90)
    scene.report(alice=90, at_s=50.0 - FRESH_S - 50.0)  # 60 s ahead, and the last to come for a while
    for _ in range(5):
        await scene.tick(20.0)
    assert scene.names() == ["alice", "bob"]
    assert "n" in scene.asks
    await pass_time(scene, 40, alice=90)
    assert scene.names() == ["bob"]


async def test_work_in_the_second_of_the_deed_keeps_the_pod():
    """No GPU is given away while its pod computes."""
    scene = await scene_of()
    await pass_time(scene, NOTICE_S, alice=90)
    scene.now_unix_s += 20
    scene.report(alice=None)
    await scene.reclaimer.act()
    assert scene.names() == ["alice", "bob"]


@pytest.mark.parametrize(
    "report",
    [
        {"alice": 90, "at_s": FRESH_S + 60},  # old, though not too old to be planned with
        {"alice": 90, "at_s": 1e5},
        {"alice": 90, "at_s": -1e5},  # of a clock that is ahead
        {"alice": 90, "missing": 1},  # one GPU of the pod is not in it
        {"alice": 90, "missing": 2},
        {"alice": 29},
        {"verdict": GpuVerdict.UNKNOWN},
        {},
    ],
)
async def test_missing_old_or_contradicting_data_is_work(report):
    """0 actions, whatever the mode (promise A12)."""
    scene = await scene_of()
    await pass_time(scene, 3 * NOTICE_S, **report)
    assert scene.names() == ["alice", "bob"]


@pytest.mark.parametrize("age_s", [STALE_LIMIT_S + 1, 3_600.0, None])
async def test_nothing_is_done_by_watches_that_say_nothing_new(age_s):
    """The waiting one may have found room, or the pod be another: the deed waits for a fresh view (A7)."""
    scene = await scene_of()
    scene.watch_age_s = age_s
    await pass_time(scene, 2 * NOTICE_S, alice=90)
    assert scene.names() == ["alice", "bob"]
    assert scene.said("IdleGpusGivenBack") == []
    scene.watch_age_s = STALE_LIMIT_S
    await pass_time(scene, 60, alice=90)
    assert scene.names() == ["bob"]


async def test_a_report_that_is_too_old_to_act_on_is_asked_for():
    """Agents report changes alone: the one before the deed is asked for."""
    scene = await scene_of()
    await pass_time(scene, 2 * NOTICE_S, alice=90, at_s=FRESH_S + 60)
    assert set(scene.asks) == {"n"}


@pytest.mark.parametrize("words", ["soon", "", "-5m", "1e9h", "10s", "9999999h", "5m; rm -rf", "\u0663\u0660m", "nan"])
async def test_a_nonsense_duration_is_ignored_and_told_once(words):
    """Bad input never frees a GPU."""
    scene = await scene_of(reclaim=words)
    await pass_time(scene, 2 * NOTICE_S, alice=90, bob=90)
    assert scene.names() == ["alice", "bob"]
    assert scene.said("IdleReclaimIgnored") == ["alice", "bob"]


async def test_a_nonsense_time_keeps_the_pod():
    """Somebody wanted to keep it, so it is kept."""
    scene = await scene_of()
    await scene.annotate("alice", keep="tomorrow")
    await pass_time(scene, 2 * NOTICE_S, alice=90)
    assert scene.names() == ["alice", "bob"]


async def test_a_pod_that_cannot_leave_blocks_no_other():
    """Its disruption budget refuses, or its controller would create it again: the next longest unused one is asked."""
    scene = await scene_of(owner={"kind": "Job", "name": "sweep"}, gpus=6, pods=3)
    await scene.add("carol", {"edl.dev/idle-reclaim": "30m"})
    await pass_time(scene, 2 * NOTICE_S, alice=90, bob=90, carol=60)
    assert scene.names() == ["alice", "bob"]


async def test_a_refused_eviction_is_no_end_of_the_term_and_another_pod_is_asked():
    """Also where a plan without the pod is made while the API server answers."""
    scene = await scene_of()
    create = scene.api.create

    async def refuse(kind, body):
        if kind == EVICTIONS and body["metadata"]["name"] == "alice":
            scene.reclaimer.handle_decisions((), planned_at_s=scene.now_unix_s + OFFSET_S)
            raise ClusterError("Cannot evict pod as it would violate the pod's disruption budget.")
        return await create(kind, body)

    scene.api.create = refuse
    await pass_time(scene, 3 * NOTICE_S, alice=90, bob=60)
    assert scene.names() == ["alice"]


@pytest.mark.parametrize("fails", ["read", "write"])
async def test_pods_that_fail_in_each_second_keep_no_other_from_its_turn(monkeypatch, fails):
    """Neither those whose consent cannot be read nor those that somebody writes all the time."""
    others = [f"a{number:02}" for number in range(MOST_ASKED + 1)]
    scene = IdleScene(gpus=18, waits=18, pods=18)
    for name in (*others, "zoe"):
        await scene.add(name, AGREED)
    read, create = scene.api.get, scene.api.create

    async def get(kind, name, **how):
        if fails == "read" and name in others:
            raise ClusterError("the webhook did not answer")
        return await read(kind, name, **how)

    async def refuse(kind, body):
        if fails == "write" and kind == EVICTIONS and body["metadata"]["name"] in others:
            raise ConflictError("somebody else wrote it")
        return await create(kind, body)

    monkeypatch.setattr(scene.api, "get", get)
    monkeypatch.setattr(scene.api, "create", refuse)
    minutes = dict.fromkeys(others, 90) | {"zoe": 60}
    await pass_time(scene, 2 * NOTICE_S, **minutes)
    assert scene.names() == others
    monkeypatch.setattr(scene.api, "get", read)
    monkeypatch.setattr(scene.api, "create", create)
    await pass_time(scene, NOTICE_S, **minutes)
    assert scene.names() == [], "they wait for no more than a few seconds"


async def test_a_bug_with_one_pod_stops_nobody_else():
    """The task runs in the leader's group: an exception would end the term."""
    scene = await scene_of()
    create = scene.api.create

    async def fail(kind, body):
        if kind == EVICTIONS and body["metadata"]["name"] == "alice":
            raise RuntimeError("bug")
        return await create(kind, body)

    scene.api.create = fail
    await pass_time(scene, 2 * NOTICE_S, alice=90, bob=60)
    assert scene.names() == ["alice", "bob"]
    await pass_time(scene, 2 * NOTICE_S, bob=60)
    assert scene.names() == ["alice"]


async def test_what_the_operator_is_told_of_its_own_trainers_follows_the_reports():
    """A trainer's device is low, busy or not known; idle pods are those of others alone."""
    scene = await scene_of()
    scene.report(alice=90)
    await scene.tick()
    assert [one.pod for one in scene.use[1]] == ["nb/alice"]
    assert scene.use[0] == {}
