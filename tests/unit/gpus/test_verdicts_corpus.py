"""Nine known lies and three truths, told by each kind of GPU through the real pynvml: no verdict is false (A12)."""

from dataclasses import replace

import pytest

from autoscaler.domain.gpu_reports import GpuVerdict
from autoscaler.gpus.driver.nvml_door import NvmlDoor
from autoscaler.gpus.owners import DeviceClaim, DeviceOwners, HoldingPod
from autoscaler.gpus.pod_verdicts import judge_pods
from autoscaler.gpus.verdicts import NodeHistory, VerdictRule, judge_node
from tests.harness.gpu_corpus import LIES, NODE, cases, device_uuid

INTERVAL_S = 5
SAMPLES = 10
RULE = VerdictRule(window_s=30.0)


def owners_of(kind, case):
    """A pod for each device that somebody has; two for one that is shared."""
    names = ("one", "two") if kind.is_shared else ("one",)
    claims = tuple(DeviceClaim(pod=HoldingPod(namespace="ns", name=name), is_share=kind.is_shared) for name in names)
    uuids = [device_uuid(kind, number) for number in range(NODE)]
    return DeviceOwners(claims=dict.fromkeys(uuids, claims) if case.is_held else {})


@pytest.mark.parametrize(
    ("kind", "case"),
    [pytest.param(kind, case, id=f"{name}: {case.name}") for name, kind, case in cases()],
)
def test_no_verdict_of_the_corpus_is_false(scenario, kind, case):
    """The verdict is the expected one, in whole and for each pod; who computes is never held or free."""
    door, history, energy_mj = NvmlDoor(), NodeHistory(), 10**9
    owners = owners_of(kind, case)
    seen = []
    for sample in range(SAMPLES):
        energy_mj += round(1000 * INTERVAL_S * case.tell(scenario, kind, sample))
        for device in scenario.devices:
            device.energy = energy_mj
        scenario.write()
        reading = replace(door.read(), at_ns=INTERVAL_S * sample * 10**9)
        judgement = judge_node(history, reading, owners, RULE)
        history = judgement.history
        assert len(judgement.verdicts) == NODE
        seen.append({one.verdict for one in judgement.verdicts})
        if case.computes:
            assert seen[-1] <= {GpuVerdict.ACTIVE, GpuVerdict.UNKNOWN}
        if case.is_held:
            assert GpuVerdict.FREE not in seen[-1]
    assert seen[-1] == {case.verdict(kind)}, judgement.verdicts[0]
    for one in judgement.verdicts:
        told = {pod.verdict for pod in judge_pods(one, owners)}
        assert not case.computes or told <= {GpuVerdict.ACTIVE, GpuVerdict.UNKNOWN}
        assert not case.is_held or told


def test_the_corpus_has_nine_lies():
    """A lie that is taken out is missed."""
    assert len({case.name for case in LIES}) == 9
