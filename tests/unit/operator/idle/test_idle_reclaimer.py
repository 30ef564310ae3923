"""Unused GPUs of others given back: notice, veto, doubt and one message per decision (ADR 0288, promise A12)."""

from dataclasses import replace

import pytest

from autoscaler.clusters.kubernetes.api.errors import ConflictError
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, EVICTIONS, NAMESPACES, PODS, STATEFUL_SETS
from autoscaler.clusters.kubernetes.cache.object_cache import STALE_LIMIT_S
from autoscaler.domain import Pod, PodPhase, ReclaimMode, Resources, Role, Shape, Tier
from autoscaler.domain.gpu_reports import FRESH_S, GpuReport, GpuVerdict, NodeGpuReport
from autoscaler.domain.idleness import StayReason
from autoscaler.errors import ClusterError
from autoscaler.gpus.pod_uses import GpuUses
from autoscaler.jobs.trainer_ledger import Device
from autoscaler.operator.idle.consent import Consent
from autoscaler.operator.idle.gpu_use import LOW_FOR_S, devices_of, idle_pods_of, nodes_to_ask
from autoscaler.operator.idle.idle_reclaimer import MOST_ASKED, PLAN_HOLDS_S
from autoscaler.operator.idle.owner_scaling import AGREED_FOR_S
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.operator.idle.idle_scene import ACT, OFFSET_S, START_S, IdleScene
from tests.unit.planner.setups import job, node, shape

NOTICE_S = ACT.idle_notice_s
AGREED, NO_MINIMUM = {"edl.dev/idle-reclaim": "30m"}, {"edl.dev/idle-min-replicas": "0"}


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


async def test_a_keep_that_the_watch_has_not_shown_is_honoured():
    """The pod is read once more at the API server before the deed."""
    scene = await scene_of()
    await pass_time(scene, NOTICE_S, alice=90)
    late = {name: scene.reclaimer._raw(f"nb/{name}") for name in ("alice", "bob")}
    await scene.keep("alice", 3_600)
    scene.reclaimer._raw = lambda name: late[name.split("/")[1]]
    await pass_time(scene, 60, alice=90)
    assert scene.names() == ["alice", "bob"]


def test_a_report_of_another_node_says_nothing_of_a_pod():
    """An old report of a node that is gone still names a pod that was created again elsewhere."""
    scene = IdleScene()
    low = GpuReport(uuid="u", model="H100", verdict=GpuVerdict.HELD, low_since_s=START_S - 7_200, pods=("nb/alice",))
    elsewhere = NodeGpuReport(node="m", gpus=(low,), reported_at_s=START_S)
    here = NodeGpuReport(node="n", gpus=(), reported_at_s=START_S)
    pod = Pod(
        name="nb/alice",
        role=Role.EXTERNAL,
        tier=Tier.EXTERNAL,
        shape=shape(100, gpu=1),
        phase=PodPhase.READY,
        node="n",
        created_at_s=-1e6,
    )
    view = MemoryCluster([node("n", 8_000, gpu=4)], [], pods=[pod]).view()
    reports = scene.source_reports.changed([elsewhere, here])
    assert (
        idle_pods_of(
            view.pods, GpuUses(reports), START_S, offset_s=OFFSET_S, consent_of=lambda _: Consent(after_s=60.0)
        )
        == ()
    )


@pytest.mark.parametrize(
    ("age_s", "verdict", "device", "asked"),
    [
        (0, GpuVerdict.HELD, Device.LOW, ()),
        (60, GpuVerdict.HELD, Device.LOW, ("n",)),
        (LOW_FOR_S + 1, GpuVerdict.HELD, Device.UNKNOWN, ("n",)),
        (0, GpuVerdict.ACTIVE, Device.BUSY, ()),
        (60, GpuVerdict.ACTIVE, Device.BUSY, ()),
    ],
)
def test_an_old_report_takes_no_excuse_from_a_trainer(age_s, verdict, device, asked):
    """Its agent may have died before the script began to evaluate; another report is asked for in time."""
    low_since_s = START_S - 7_200 if verdict is GpuVerdict.HELD else None
    gpu = GpuReport(uuid="u", model="H100", verdict=verdict, low_since_s=low_since_s, pods=("gang-trainer-0",))
    reports = IdleScene().source_reports.changed([NodeGpuReport(node="n", gpus=(gpu,), reported_at_s=START_S - age_s)])
    trainer = Pod(
        name="gang-trainer-0",
        role=Role.TRAINER,
        tier=Tier.CORE,
        job="gang",
        shape=shape(100, gpu=1),
        phase=PodPhase.READY,
        node="n",
    )
    cluster = MemoryCluster([node("n", 8_000, gpu=4)], [job("gang", gpu=1)], pods=[trainer])
    assert devices_of(cluster.view(), GpuUses(reports), START_S) == {"gang-trainer-0": device}
    assert nodes_to_ask(cluster.view(), GpuUses(reports), START_S) == asked


@pytest.mark.parametrize(
    ("asks", "verdict", "device"),
    [
        ({"nvidia.com/mig-1g.10gb": 1}, GpuVerdict.HELD, Device.LOW),
        ({"nvidia.com/mig-1g.10gb": 1}, GpuVerdict.ACTIVE, Device.BUSY),
        ({"nvidia.com/mig-1g.10gb": 2}, GpuVerdict.HELD, Device.BUSY),  # one of them is not in the report
        ({}, GpuVerdict.HELD, Device.UNKNOWN),  # by a claim: there may be others
        ({}, GpuVerdict.ACTIVE, Device.BUSY),
    ],
)
def test_a_trainer_with_parts_of_gpus_or_with_claims_is_known_by_the_report(asks, verdict, device):
    """Whole GPUs are not the only ones that compute."""
    low_since_s = START_S - 7_200 if verdict is GpuVerdict.HELD else None
    gpu = GpuReport(uuid="u", model="H100", verdict=verdict, low_since_s=low_since_s, pods=("gang-trainer-0",))
    reports = IdleScene().source_reports.changed([NodeGpuReport(node="n", gpus=(gpu,), reported_at_s=START_S)])
    trainer = Pod(
        name="gang-trainer-0",
        role=Role.TRAINER,
        tier=Tier.CORE,
        job="gang",
        shape=Shape(requests=Resources(cpu_milli=100, extended=tuple(asks.items()))),
        phase=PodPhase.READY,
        node="n",
    )
    cluster = MemoryCluster([node("n", 8_000, gpu=4)], [job("gang", gpu=1)], pods=[trainer])
    assert devices_of(cluster.view(), GpuUses(reports), START_S) == {"gang-trainer-0": device}


async def test_what_the_operator_is_told_of_its_own_trainers_follows_the_reports():
    """A trainer's device is low, busy or not known; idle pods are those of others alone."""
    scene = await scene_of()
    scene.report(alice=90)
    await scene.tick()
    assert [one.pod for one in scene.use[1]] == ["nb/alice"]
    assert scene.use[0] == {}
