"""What single signals, outcomes and verdicts say, by their tables (promise A12)."""

from dataclasses import replace

import pytest

from autoscaler.domain.gpu_reports import GpuVerdict
from autoscaler.gpus.agent.gpu_metrics import GpuCollector
from autoscaler.gpus.agent.node_agent import NodeSample
from autoscaler.gpus.idle_power import idle_watts
from autoscaler.gpus.owners import NOBODY, DeviceClaim, DeviceOwners, HoldingPod, OwnersUnknown
from autoscaler.gpus.pod_verdicts import judge_pods
from autoscaler.gpus.readings import Absence, DeviceProcess, DeviceReading, NodeReading, ProcessWork
from autoscaler.gpus.sample_outcomes import SampleOutcome, distrust_zeros, outcome_of
from autoscaler.gpus.signals import Signal, SignalState, Source, read_signals
from autoscaler.gpus.verdicts import NodeHistory, VerdictRule, judge_node

IDLE = DeviceReading(
    uuid="GPU-1",
    model="Tesla T4",
    utilisation_percent=0,
    work=(),
    processes=(),
    gpm_percent=Absence.NOT_SUPPORTED,
    energy_mj=1_000_000,
    memory_used_bytes=0,
)
RULE = VerdictRule(window_s=10.0)
ONE, TWO = (HoldingPod(namespace="ns", name=name) for name in ("one", "two"))


def signals_after(joules, **figures):
    after = replace(IDLE, energy_mj=1_000_000 + 1000 * joules, **figures)
    signals = read_signals(IDLE, after, interval_s=5.0, idle_watts=36.0)
    return {one.source: one.state for one in signals}


@pytest.mark.parametrize(
    ("joules", "state"),
    [
        (150, SignalState.LOW),
        (180, SignalState.LOW),
        (181, SignalState.WORKING),
        (0, SignalState.MISSING),
        (-5, SignalState.MISSING),
        (10**9, SignalState.MISSING),
    ],
    ids=["30 W", "the line itself", "above it", "a counter that stands", "a counter that was reset", "impossible"],
)
def test_power_is_compared_with_idle_with_a_context(joules, state):
    """Mean power of the interval by energy; a counter that stands still or goes back is no figure."""
    assert signals_after(joules)[Source.POWER] is state


@pytest.mark.parametrize(
    ("figures", "state"),
    [
        ({"utilisation_percent": 1}, SignalState.WORKING),
        ({"work": (ProcessWork(pid=1, percent=1),)}, SignalState.WORKING),
        ({"work": (ProcessWork(pid=1, percent=0),)}, SignalState.LOW),
        ({"work": Absence.FAILED}, SignalState.MISSING),
        ({"work": Absence.NOT_SUPPORTED}, SignalState.LOW),
        ({"utilisation_percent": Absence.NOT_SUPPORTED, "work": Absence.NOT_SUPPORTED}, SignalState.UNSUPPORTED),
        ({"utilisation_percent": 3, "work": Absence.FAILED}, SignalState.WORKING),
    ],
)
def test_counters_are_low_only_if_all_that_there_are_say_so(figures, state):
    """Work seen by one of them is work; a failed call may hide some."""
    assert signals_after(150, **figures)[Source.COUNTERS] is state


@pytest.mark.parametrize(
    ("figures", "state"),
    [
        ({}, SignalState.LOW),
        ({"processes": (DeviceProcess(pid=3),)}, SignalState.SILENT),
        ({"has_mps": True}, SignalState.SILENT),
        ({"memory_used_bytes": 1 << 30}, SignalState.MISSING),
        ({"memory_used_bytes": Absence.FAILED}, SignalState.MISSING),
        ({"memory_used_bytes": Absence.NOT_SUPPORTED}, SignalState.SILENT),
        ({"processes": Absence.NO_PERMISSION}, SignalState.MISSING),
    ],
)
def test_an_empty_list_of_processes_is_believed_if_memory_agrees(figures, state):
    """An agent that may not see processes sees none, and the memory that they hold."""
    assert signals_after(150, **figures)[Source.PROCESSES] is state


def signal(source, state, covers=True):
    return Signal(source=source, state=state, text="", covers_interval=covers)


@pytest.mark.parametrize(
    ("states", "outcome"),
    [
        ("LOW WORKING MISSING LOW", SampleOutcome.WORKING),
        ("LOW MISSING LOW LOW", SampleOutcome.MISSING),
        ("LOW LOW SILENT SILENT", SampleOutcome.LOW),
        ("LOW SILENT UNSUPPORTED SILENT", SampleOutcome.TOO_FEW),
        ("UNSUPPORTED UNSUPPORTED UNSUPPORTED UNSUPPORTED", SampleOutcome.TOO_FEW),
    ],
)
def test_outcome_by_the_table(states, outcome):
    """Work before missing, missing before low, and two are needed."""
    signals = [signal(source, SignalState[name]) for source, name in zip(Source, states.split(), strict=True)]
    assert outcome_of(signals) is outcome


def test_two_instants_are_no_interval():
    """What began and ended between two readings is told by neither the utilisation of an instant nor a list."""
    low = [
        signal(Source.COUNTERS, SignalState.LOW, covers=False),
        signal(Source.PROCESSES, SignalState.LOW, covers=False),
    ]
    assert outcome_of(low) is SampleOutcome.TOO_FEW


def node_signals(counters, power):
    return {
        f"GPU-{number}": tuple(
            signal(source, {Source.COUNTERS: counter, Source.POWER: watts}.get(source, SignalState.SILENT))
            for source in Source
        )
        for number, (counter, watts) in enumerate(zip(counters, power, strict=True))
    }


LOW, WORKING, SILENT, MISSING = SignalState.LOW, SignalState.WORKING, SignalState.SILENT, SignalState.MISSING


@pytest.mark.parametrize(
    ("counters", "power", "after"),
    [
        ([LOW, LOW], [LOW, LOW], [LOW, LOW]),
        ([LOW, LOW], [LOW, WORKING], [MISSING, MISSING]),
        ([LOW, LOW], [LOW, SILENT], [MISSING, MISSING]),
        ([LOW, LOW], [SignalState.UNSUPPORTED] * 2, [SILENT, SILENT]),
        ([LOW, WORKING], [LOW, WORKING], [LOW, WORKING]),
        ([LOW], [WORKING], [LOW]),
        ([LOW, LOW, MISSING], [LOW, LOW, MISSING], [LOW, LOW, MISSING]),
    ],
    ids=["power agrees", "power disagrees", "an instance's power", "no power", "one works", "one GPU", "one is lost"],
)
def test_zeros_of_a_whole_node_need_power(counters, power, after):
    """A counter that reads 0 on all GPUs at once may be broken."""
    told = distrust_zeros(node_signals(counters, power))
    assert [signals[0].state for signals in told.values()] == after


@pytest.mark.parametrize(
    ("model", "watts"),
    [
        ("Tesla T4", 36.0),
        ("NVIDIA A100-SXM4-80GB", 90.0),
        ("NVIDIA H100 80GB HBM3", 125.0),
        ("NVIDIA GH200 480GB", None),
        ("NVIDIA L4", None),
        ("", None),
    ],
)
def test_idle_power_by_model(model, watts):
    """A model without a line has none; a part of a word is no model."""
    assert idle_watts(model) == watts
    assert idle_watts("NVIDIA L4", {"NVIDIA L4": 33.0}) == 33.0


def verdicts_of(owners, *, seconds=15, **figures):
    """Verdicts after so many seconds of the same figures on an idle T4."""
    history, judgement = NodeHistory(), None
    for at_s in range(0, seconds + 1, 5):
        device = replace(IDLE, energy_mj=10**6 + 1000 * 20 * at_s, **figures)
        judgement = judge_node(history, NodeReading(at_ns=at_s * 10**9, devices=(device,)), owners, RULE)
        history = judgement.history
    return judgement.verdicts[0]


def claimed(*pods, is_share=False, **values):
    claims = tuple(DeviceClaim(pod=pod, is_share=is_share) for pod in pods)
    return DeviceOwners(claims={"GPU-1": claims}, **values)


def test_a_device_is_free_only_if_nobody_has_it():
    """Nor is it before the window is over."""
    assert verdicts_of(NOBODY).verdict is GpuVerdict.FREE
    assert verdicts_of(NOBODY, seconds=5).verdict is GpuVerdict.ACTIVE
    assert verdicts_of(claimed(ONE)).verdict is GpuVerdict.HELD
    assert verdicts_of(NOBODY, processes=(DeviceProcess(pid=3),)).verdict is GpuVerdict.HELD
    assert verdicts_of(DeviceOwners(unresolved=("nvidia9",))).verdict is GpuVerdict.ACTIVE


def test_two_pods_that_claim_one_device_contradict_each_other():
    """Unless it was given out in shares: the kubelet may still list a pod that has ended."""
    contradicted = claimed(ONE, TWO)
    device = verdicts_of(contradicted)
    assert device.verdict is GpuVerdict.ACTIVE
    assert "ns/one, ns/two" in device.reason
    assert {one.verdict for one in judge_pods(device, contradicted)} == {GpuVerdict.ACTIVE}
    shared = claimed(ONE, TWO, is_share=True)
    assert {one.verdict for one in judge_pods(verdicts_of(shared), shared)} == {GpuVerdict.HELD}
    assert [disputed_gpus(device, owners) for owners in (contradicted, shared, OwnersUnknown(reason="x"))] == [1, 0, 0]


def disputed_gpus(device, owners):
    """As the agent's metrics count them."""
    sample = NodeSample(devices=(device,), pods=(), failure=None, owners=owners)
    families = GpuCollector(lambda: (sample, 0.0)).collect()
    return next(one.samples[0].value for one in families if one.name == "edl_agent_disputed_gpus")


def test_on_a_shared_device_that_works_only_the_worker_is_known():
    """A pod beside it may have been missed."""
    shared = claimed(ONE, TWO, is_share=True, pods_of_pids={3: ONE})
    told = judge_pods(verdicts_of(shared, work=(ProcessWork(pid=3, percent=9),)), shared)
    assert {str(one.pod): one.verdict for one in told} == {"ns/one": GpuVerdict.ACTIVE, "ns/two": GpuVerdict.UNKNOWN}
    under_mps = judge_pods(verdicts_of(shared, work=(ProcessWork(pid=9, percent=9),), has_mps=True), shared)
    assert {one.verdict for one in under_mps} == {GpuVerdict.UNKNOWN}


def test_a_process_of_a_pod_without_a_claim_contradicts_the_claim():
    """Such a pod sees all GPUs of its node."""
    owners = claimed(ONE, pods_of_pids={3: TWO})
    told = judge_pods(verdicts_of(owners, processes=(DeviceProcess(pid=3),)), owners)
    assert {str(one.pod): one.verdict for one in told} == {"ns/one": GpuVerdict.ACTIVE, "ns/two": GpuVerdict.ACTIVE}


@pytest.mark.parametrize("gap_s", [21, 0, -5], ids=["late", "the same instant", "before"])
def test_a_reading_out_of_time_begins_the_window_anew(gap_s):
    """What happened in a long gap is not known, and a clock that went back tells nothing."""
    history, at_s, energy_mj = NodeHistory(), 100, 10**6
    for seconds in (5, 5, 5, gap_s, 5, 5):
        at_s += seconds
        energy_mj += 20_000 * abs(seconds)
        reading = NodeReading(at_ns=at_s * 10**9, devices=(replace(IDLE, energy_mj=energy_mj),))
        judgement = judge_node(history, reading, NOBODY, VerdictRule(window_s=14.0))
        history = judgement.history
    assert judgement.verdicts[0].verdict is GpuVerdict.ACTIVE
    assert judgement.verdicts[0].low_s == 10
