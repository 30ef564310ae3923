"""Reports out of samples: what they say, and which samples make none."""

from __future__ import annotations

from dataclasses import replace

from autoscaler.domain.cluster import NodeName
from autoscaler.domain.gpu_reports import GpuVerdict
from autoscaler.gpus.agent.node_agent import NodeSample
from autoscaler.gpus.agent.node_gpus_api import AgentIdentity
from autoscaler.gpus.agent.node_reports import NodeReports
from autoscaler.gpus.agent.sample_reports import SampleReports
from autoscaler.gpus.owners import NOBODY, DeviceClaim, DeviceOwners, HoldingPod
from autoscaler.gpus.pod_verdicts import PodVerdict, judge_pods
from autoscaler.gpus.readings import DeviceProcess, DeviceReading
from autoscaler.gpus.sample_outcomes import SampleOutcome
from autoscaler.gpus.verdicts import DeviceVerdict

NOW_S = 1_800_000_000.0
N1 = NodeName("n1")
HELD = DeviceVerdict(
    reading=DeviceReading(uuid="GPU-0", model="NVIDIA\nH100", minor=0),
    verdict=GpuVerdict.HELD,
    outcome=SampleOutcome.LOW,
    reason="nobody computed for 300 s",
    evidence=(),
    low_s=300.0,
    watts=84.0,
)


def sample(device=HELD, pods=2):
    holders = (HoldingPod(namespace="ml", name=f"pod-{number:03}") for number in reversed(range(pods)))
    uses = (PodVerdict(pod=one, device=device, verdict=device.verdict, reason="") for one in holders)
    return NodeSample(devices=(device,), pods=tuple(uses), owners=NOBODY)


def test_a_sample_becomes_a_report():
    """Pods in order, texts that can be printed, and since when nobody computes."""
    (gpu,) = SampleReports(N1).add(sample(), NOW_S).gpus
    assert (gpu.verdict, gpu.low_since_s) == (GpuVerdict.HELD, NOW_S - 300)
    assert gpu.pods == ("ml/pod-000", "ml/pod-001")
    assert (gpu.model, gpu.name, gpu.watts) == ("NVIDIA H100", "nvidia0", 84.0)


def test_busy_is_the_share_since_the_report_before():
    """Samples that tell nothing count for neither."""
    reports = SampleReports(N1)
    works = replace(HELD, verdict=GpuVerdict.ACTIVE, outcome=SampleOutcome.WORKING, low_s=0.0)
    missing = replace(works, outcome=SampleOutcome.MISSING)
    for one in (works, missing, HELD, HELD):
        report = reports.add(sample(one), NOW_S)
    assert report.gpus[0].busy_ratio == 1 / 3
    reports.begin_anew()
    assert reports.add(sample(works), NOW_S).gpus[0].busy_ratio == 1.0


def test_a_gpu_that_too_many_share_is_unknown():
    """Some of them could not be told, and nothing may be done for a part of them."""
    (gpu,) = SampleReports(N1).add(sample(pods=65), NOW_S).gpus
    assert (gpu.verdict, gpu.pods, gpu.low_since_s) == (GpuVerdict.UNKNOWN, (), None)


def test_a_gpu_that_a_pod_has_without_a_claim_is_active():
    """Its claimant does not compute; who is right about the device is not known, and nobody may lose it for that."""
    claimant, stranger = (HoldingPod(namespace="ml", name=name) for name in ("nb", "stranger"))
    process = DeviceProcess(pid=7)
    device = replace(HELD, reading=replace(HELD.reading, processes=(process,)))
    owners = DeviceOwners(claims={"GPU-0": (DeviceClaim(pod=claimant),)}, pods_of_pids={7: stranger})
    seen = NodeSample(devices=(device,), pods=judge_pods(device, owners), owners=owners)
    (gpu,) = SampleReports(N1).add(seen, NOW_S).gpus
    assert (gpu.verdict, gpu.low_since_s) == (GpuVerdict.ACTIVE, None)
    assert gpu.pods == ("ml/nb", "ml/stranger")
    assert gpu.reason == "a process of ml/stranger has it, which does not claim it"


def test_the_sample_before_makes_no_report_younger(caplog):
    """A DCGM exporter's page that stands still; and a sample of nonsense ends nothing."""
    reports = NodeReports(None, AgentIdentity(node=N1, uid=""))
    offered = []
    reports.writer.offer = offered.append
    one = sample()
    reports.add(one)
    reports.add(one)
    assert len(offered) == 1
    broken = replace(HELD, reading=DeviceReading(uuid="x" * 1000, model=""))
    reports.add(sample(broken))
    reports.add(sample(broken))
    assert len(offered) == 1
    assert len(caplog.records) == 1
