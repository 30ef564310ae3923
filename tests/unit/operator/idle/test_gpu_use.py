"""Use of GPUs by pods: what is joined anew, and which nodes are asked for a report (promise A12)."""

from dataclasses import replace

import pytest

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, POD_AUTOSCALERS
from autoscaler.domain import Pod, PodPhase, Resources, Role, Shape, Tier
from autoscaler.domain.gpu_reports import KEPT_S, NO_REPORTS, GpuReport, GpuVerdict, NodeGpuReport
from autoscaler.gpus.pod_uses import GpuUses
from autoscaler.jobs.trainer_ledger import Device
from autoscaler.operator.idle.consent import Consent
from autoscaler.operator.idle.gpu_use import (
    ASKED_AFTER_S,
    LOW_FOR_S,
    MOST_ASKED,
    devices_of,
    idle_pods_of,
    nodes_to_ask,
)
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.operator.idle.idle_scene import OFFSET_S, START_S, IdleScene
from tests.unit.planner.setups import job, node, shape


def report(where, *pods, uuid=None, age_s=0.0):
    gpus = [
        GpuReport(uuid=uuid or f"{where}-{pod}", model="T4", verdict=GpuVerdict.HELD, low_since_s=0.0, pods=(pod,))
        for pod in pods
    ]
    return NodeGpuReport(node=where, gpus=tuple(gpus), reported_at_s=START_S - age_s)


def pod_on(where, name="nb/alice", *, role=Role.EXTERNAL):
    return Pod(
        name=name,
        role=role,
        tier=Tier.EXTERNAL if role is Role.EXTERNAL else Tier.CORE,
        job=None if role is Role.EXTERNAL else "gang",
        shape=shape(100, gpu=1),
        phase=PodPhase.READY,
        node=where,
    )


def test_only_reports_that_changed_are_joined_anew():
    """10,000 nodes change some reports a second; each look must not cost the leader a join of all."""
    reports = NO_REPORTS.changed(report(f"n{number}", f"nb/{number}") for number in range(500))
    uses = GpuUses(reports)
    assert uses.joined == 500
    uses.renew(reports)
    uses.renew(reports.changed([report("n7", "nb/alice")], gone=["n8"]))
    assert uses.joined == 501
    assert uses.low_since_s(pod_on("n7"), START_S) == 0.0
    assert [uses.low_since_s(pod_on(f"n{n}", f"nb/{n}"), START_S) for n in (7, 8, 9)] == [None, None, 0.0]


@pytest.mark.parametrize(("age_s", "since_s"), [(0.0, None), (KEPT_S + 1, 0.0)])
def test_a_gpu_of_two_nodes_is_used_until_one_of_them_is_out_of_date(age_s, since_s):
    """Also where the second report came, went, or was replaced later."""
    uses = GpuUses(NO_REPORTS.changed([report("n", "nb/alice", uuid="u")]))
    both = uses.reports.changed([report("m", "nb/alice", uuid="u", age_s=age_s)])
    for reports, expected in ((both, since_s), (both.changed(gone=["m"]), 0.0), (both, since_s)):
        uses.renew(reports)
        assert uses.low_since_s(pod_on("n"), START_S) == expected


def test_nodes_that_never_answer_keep_no_other_from_being_asked():
    """Dead agents, the first by name: whoever was asked within a minute is passed over before the cut."""
    names = [f"n{number:02}" for number in range(3 * MOST_ASKED)]
    trainers = [pod_on(name, f"gang-trainer-{name}", role=Role.TRAINER) for name in names]
    old = [report(name, f"gang-trainer-{name}", age_s=ASKED_AFTER_S + 1) for name in names]
    uses, asked = GpuUses(NO_REPORTS.changed(old)), []
    nodes = [node(name, 8_000, gpu=4) for name in names]
    pods = [replace(pod, ordinal=number) for number, pod in enumerate(trainers)]
    view = MemoryCluster(nodes, [job("gang", gpu=1)], pods=pods).view()
    for _ in range(3):
        asked += nodes_to_ask(view, uses, START_S, asked=asked)
    assert asked == names
    assert nodes_to_ask(view, uses, START_S, asked=asked) == ()


async def test_autoscalers_are_looked_at_once_for_all_pods():
    """And found by what they scale, as of the last look."""
    scene = IdleScene()
    ref = await scene.add_owner(DEPLOYMENTS, "web")
    await scene.add_scaler("web-hpa", ref)
    scene.objects.renew_scalers()
    looked, objects = [], scene.objects._cache.objects
    scene.objects._cache.objects = lambda kind: looked.append(kind) or objects(kind)
    assert [scene.objects.scaler(DEPLOYMENTS, "nb", name) for name in ("web", "api")] == ["web-hpa", ""]
    assert POD_AUTOSCALERS not in looked


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
