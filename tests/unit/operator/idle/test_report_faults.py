"""Reports that cannot be right: never idle, counted once, told by one event, until they are sound (promise A12)."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain import Node, Pod, PodPhase, Resources, Role, Tier
from autoscaler.domain.gpu_reports import FRESH_S, KEPT_S, NO_REPORTS, GpuReport, GpuVerdict, NodeGpuReport
from autoscaler.gpus.pod_uses import GpuUses
from autoscaler.operator.idle.consent import Consent
from autoscaler.operator.idle.gpu_use import idle_pods_of
from autoscaler.operator.idle.report_faults import FaultIndex, ReportFault, nodes_without_report
from autoscaler.operator.idle.report_watch import LOOK_EVERY_S, MOST_EVENTS
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.operator.idle.idle_scene import OFFSET_S, START_S, IdleScene
from tests.unit.planner.setups import node, shape

AGREED = Consent(after_s=60.0)


def held(*pods, uuid="GPU-0"):
    return GpuReport(uuid=uuid, model="T4", verdict=GpuVerdict.HELD, low_since_s=START_S - 1e4, pods=pods)


def report(where, *gpus, at_s=0.0):
    return NodeGpuReport(node=where, gpus=gpus, reported_at_s=START_S + at_s)


def view_of(created_at_s=-1e6):
    """`alice` on node n, `bob` on node m, each with a GPU."""
    common = {"role": Role.EXTERNAL, "tier": Tier.EXTERNAL, "shape": shape(100, gpu=1), "phase": PodPhase.READY}
    pods = [
        Pod(name=f"nb/{name}", node=where, created_at_s=created_at_s, **common)
        for name, where in (("alice", "n"), ("bob", "m"))
    ]
    return MemoryCluster([node(name, 8_000, gpu=4) for name in ("n", "m")], [], pods=pods).view()


def judged(*reports, refused=None, created_at_s=-1e6):
    """The faults, and the pods that are idle nevertheless."""
    view, known = view_of(created_at_s), NO_REPORTS.changed(reports)
    idle = idle_pods_of(view.pods, GpuUses(known), START_S, offset_s=OFFSET_S, consent_of=lambda _: AGREED)
    faults = FaultIndex(offset_s=OFFSET_S).faults(view, known, refused or {}, START_S)
    return faults, {one.pod for one in idle}


def test_sound_reports_have_no_fault():
    """Two pods that share a GPU of one node are none."""
    assert judged(report("n", held("nb/alice", "nb/carol")), report("m", held("nb/bob", uuid="GPU-1"))) == (
        {},
        {"nb/alice", "nb/bob"},
    )


def test_a_report_of_another_nodes_pod_says_nothing_and_is_told():
    """An agent whose node was played, or two objects mixed up."""
    faults, idle = judged(report("n", held("nb/bob"), held("nb/alice", uuid="GPU-1")))
    assert faults == {("n", ReportFault.OTHER_NODE): "it names nb/bob, which runs on m"}
    assert idle == {"nb/alice"}


@pytest.mark.parametrize(("at_s", "is_fault"), [(-1.0, False), (FRESH_S, False), (FRESH_S + 1, True)])
def test_a_pod_that_was_made_anew_elsewhere_is_no_fault_of_an_older_report(at_s, is_fault):
    """Its namesake had the GPU then."""
    made_at_s = START_S + OFFSET_S - FRESH_S
    faults, _ = judged(report("n", held("nb/bob"), at_s=at_s - FRESH_S), created_at_s=made_at_s)
    assert bool(faults) is is_fault


@pytest.mark.parametrize("uuid", ["GPU-0", "MIG-0"])
def test_a_gpu_that_two_nodes_have_is_used_on_both(uuid):
    """One of them lies; the pods of neither lose it."""
    mine, others = report("n", held("nb/alice", uuid=uuid)), report("m", held("nb/bob", uuid=uuid))
    faults, idle = judged(mine, others)
    assert {fault for _, fault in faults} == {ReportFault.TWO_NODES}
    assert {where for where, _ in faults} == {"n", "m"}
    assert idle == set()
    old = replace(others, reported_at_s=START_S - KEPT_S - 1, gpus=(replace(others.gpus[0], low_since_s=0.0),))
    assert judged(mine, old)[1] == {"nb/alice"}  # it has moved since


def test_a_clock_that_is_ahead_makes_nothing_idle():
    """Whatever else such a report says is not looked at."""
    faults, idle = judged(report("n", held("nb/alice"), held("nb/bob", uuid="GPU-1"), at_s=FRESH_S + 100))
    assert faults == {("n", ReportFault.CLOCK_AHEAD): "its clock is 160 s ahead of the operator's"}
    assert idle == set()


def test_many_names_are_told_by_a_few():
    """A text is bounded, whatever an agent lists."""
    gpus = [held("nb/bob", uuid=f"GPU-{number}") for number in range(100)]
    faults, _ = judged(report("n", *gpus), report("m", *gpus))
    assert all(len(text) < 300 for text in faults.values())
    assert "and 97 more" in faults["n", ReportFault.TWO_NODES]


small_reports = st.builds(
    lambda where, gpus, at_s: report(where, *gpus, at_s=at_s),
    st.sampled_from("nmo"),
    st.lists(
        st.builds(
            lambda uuid, pods: held(*sorted(pods), uuid=uuid),
            st.sampled_from(["GPU-0", "GPU-1", "GPU-2"]),
            st.sets(st.sampled_from(["nb/alice", "nb/bob", "nb/carol"]), min_size=1),
        ),
        max_size=3,
        unique_by=lambda gpu: gpu.uuid,
    ),
    st.sampled_from([0.0, 200.0]),
)
changes = st.one_of(
    small_reports,
    st.sampled_from("nmo"),
    st.tuples(st.sampled_from(["nb/alice", "nb/bob", "nb/carol"]), st.sampled_from(["n", "m", None])),
    st.sampled_from([10.0, 2 * KEPT_S]),
)


@given(st.lists(changes, max_size=20))
def test_faults_that_are_followed_are_those_of_a_first_look(steps):
    """Reports come and go, pods move and go, and time passes: what is kept changes no answer."""
    view, known, now_s, index = view_of(), NO_REPORTS, START_S, FaultIndex(offset_s=OFFSET_S)
    pod = view.pods[0]
    for step in steps:
        match step:
            case NodeGpuReport():
                known = known.changed([step])
            case str():
                known = known.changed(gone=[step])
            case (name, where):
                gone = [] if where else [name]
                moved = [replace(pod, name=name, node=where)] if where else []
                view = view.evolve(pods=moved, gone_pods=gone)
            case seconds:
                now_s += seconds
        assert index.faults(view, known, {}, now_s) == FaultIndex(offset_s=OFFSET_S).faults(view, known, {}, now_s)


def test_reports_without_news_are_not_joined_again():
    """10,000 nodes of 8 GPUs: of the next look one node's pod has moved, and another has a new report."""
    places = [f"n{number:05}" for number in range(10_000)]
    common = {"role": Role.EXTERNAL, "tier": Tier.EXTERNAL, "shape": shape(100, gpu=8), "phase": PodPhase.READY}
    pods = [Pod(name=f"nb/{place}", node=place, created_at_s=-1e6, **common) for place in places]
    view = MemoryCluster([node(place, 8_000, gpu=8) for place in places], [], pods=pods).view()
    reports = [
        report(place, *(held(f"nb/{place}", uuid=f"{place}-{number}") for number in range(8))) for place in places
    ]
    known, index = NO_REPORTS.changed(reports), FaultIndex(offset_s=OFFSET_S)
    assert (index.faults(view, known, {}, START_S), index.joined) == ({}, 10_000)
    assert (index.faults(view, known, {}, START_S + LOOK_EVERY_S), index.joined) == ({}, 10_000)
    known = known.changed([replace(reports[7], reported_at_s=START_S + 1)])
    view = view.evolve(pods=[replace(pods[3], node="n00004")])
    faults = index.faults(view, known, {}, START_S + 2 * LOOK_EVERY_S)
    assert faults == {("n00003", ReportFault.OTHER_NODE): "it names nb/n00003, which runs on n00004"}
    assert index.joined == 10_002


def test_nodes_with_gpus_and_without_a_report_are_counted():
    """No agent at all, one that is silent for long, and neither a node without GPUs nor one that is not ready."""
    nodes = [
        node("reports", gpu=1),
        node("silent", gpu=8),
        node("no agent", gpu=2),
        node("plain"),
        node("down", gpu=1, is_ready=False),
        Node(name="mig", allocatable=Resources(extended=(("nvidia.com/mig-1g.10gb", 7),))),
    ]
    known = NO_REPORTS.changed([report("reports"), report("silent", at_s=-KEPT_S - 1)])
    assert nodes_without_report(nodes, known, START_S) == 3


async def test_the_operator_shows_how_many_nodes_have_no_agent():
    """With the next look after the report has come too late, and no more once the term ends."""
    scene = IdleScene(waits=0)
    scene.report()
    await scene.tick(LOOK_EVERY_S)
    assert unreported(scene) == 0.0
    await scene.tick(KEPT_S + LOOK_EVERY_S)
    assert unreported(scene) == 1.0
    task = asyncio.create_task(scene.reclaimer.run())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert unreported(scene) == 0.0


def unreported(scene):
    lines = scene.metrics.render().decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith("edl_gpu_nodes_unreported "))


def counted(scene):
    lines = scene.metrics.render().decode().splitlines()
    found = (line for line in lines if line.startswith("edl_gpu_report_faults_total{"))
    return {line.split('"')[1]: float(line.split()[-1]) for line in found}


async def test_a_fault_is_counted_and_told_once_until_the_report_is_sound():
    """By an event at the Node, which nobody has to look for among pods."""
    scene = IdleScene(waits=0)
    assert counted(scene) == dict.fromkeys([fault.value for fault in ReportFault], 0.0)
    scene.refused = {"n": "status.gpus is no list of at most 128 GPUs"}
    for _ in range(3):
        await scene.tick(LOOK_EVERY_S)
    assert counted(scene)["unreadable"] == 1.0
    told = [(reason, name) for reason, name, _ in scene.events.said]
    assert told == [("GpuReportIgnored", "n")]
    assert "at most 128 GPUs" in scene.events.said[0][2]
    scene.refused = {}
    await scene.tick(LOOK_EVERY_S)
    scene.refused = {"n": "status.gpus is no list"}
    await scene.tick(LOOK_EVERY_S)
    assert counted(scene)["unreadable"] == 2.0
    assert len(scene.events.said) == 2


async def test_where_every_node_is_at_fault_all_are_counted_and_a_few_told():
    """The operator's own clock may be the one that is wrong."""
    scene = IdleScene(waits=0)
    scene.refused = {f"n{number}": "broken" for number in range(10 * MOST_EVENTS)}
    await scene.tick(LOOK_EVERY_S)
    assert counted(scene)["unreadable"] == 10 * MOST_EVENTS
    assert len(scene.events.said) == MOST_EVENTS
