"""Unused GPUs of others given back: notice, veto, doubt and one message per decision (ADR 0288, promise A12)."""

from dataclasses import replace

import pytest

from autoscaler.clusters.kubernetes.api.kinds import STATEFUL_SETS
from autoscaler.domain import ReclaimMode
from autoscaler.domain.gpu_reports import FRESH_S, GpuVerdict
from tests.unit.operator.idle.idle_scene import ACT, IdleScene

NOTICE_S = ACT.idle_notice_s


async def scene_of(*, owner=None, reclaim="30m", **words):
    """`alice` and `bob` hold two GPUs each and agreed to 30 minutes; a gang waits for two."""
    scene = IdleScene(**words)
    for name in ("alice", "bob"):
        await scene.add(name, {} if reclaim is None else {"edl.dev/idle-reclaim": reclaim}, owner=owner)
    return scene


async def pass_time(scene, seconds, *, step_s=20.0, **report):
    for _ in range(int(seconds / step_s)):
        scene.report(**report)
        await scene.tick(step_s)


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


async def test_a_frozen_operator_and_one_without_anybody_who_waits_do_nothing():
    """`policy.freeze`, and no pressure."""
    for words in ({"policy": replace(ACT, is_frozen=True)}, {"waits": 0}):
        scene = await scene_of(**words)
        await pass_time(scene, 2 * NOTICE_S, alice=90, bob=90)
        assert scene.names() == ["alice", "bob"]


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


async def test_a_report_that_is_too_old_to_act_on_is_asked_for():
    """Agents report changes alone: the one before the deed is asked for."""
    scene = await scene_of()
    await pass_time(scene, 2 * NOTICE_S, alice=90, at_s=FRESH_S + 60)
    assert set(scene.asked) == {"n"}


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


SET = {"kind": "StatefulSet", "name": "alice-notebook"}


@pytest.mark.parametrize(
    ("owner", "minimum", "replicas", "after"),
    [
        (SET, "0", 1, 0),
        (SET, None, 1, 1),  # not declared: it would be created again
        (SET, "0", 3, 3),  # the others may compute
        ({"kind": "Job", "name": "alice-notebook"}, "0", 1, 1),
    ],
)
async def test_the_owner_of_a_single_replica_is_scaled_if_it_declares_that(owner, minimum, replicas, after):
    """A pod with a controller is never evicted: its successor would take the GPU again."""
    scene = await scene_of(owner=owner)
    body = {"metadata": {"name": "alice-notebook", "namespace": "nb"}, "spec": {"replicas": replicas}}
    await scene.api.create(STATEFUL_SETS, body)
    if minimum is not None:
        await scene.annotate("alice", minimum=minimum)
    await pass_time(scene, 2 * NOTICE_S, alice=90)
    assert scene.names() == ["alice", "bob"]  # the controller ends its pod, not EDL
    found = await scene.api.get(STATEFUL_SETS, "alice-notebook", namespace="nb")
    assert found["spec"]["replicas"] == after
    assert len(scene.said("IdleGpusGivenBack" if after != replicas else "IdleGpusKept")) == 1


async def test_what_the_operator_is_told_of_its_own_trainers_follows_the_reports():
    """A trainer's device is low, busy or not known; idle pods are those of others alone."""
    scene = await scene_of()
    scene.report(alice=90)
    await scene.tick()
    assert [one.pod for one in scene.use[1]] == ["nb/alice"]
    assert scene.use[0] == {}
