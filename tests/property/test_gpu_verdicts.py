"""Whatever the driver says: nobody's GPU is given up while it computes, and missing data never makes one idle."""

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.gpu_reports import GpuVerdict
from autoscaler.gpus.owners import NOBODY, DeviceClaim, DeviceOwners, HoldingPod, OwnersUnknown
from autoscaler.gpus.pod_verdicts import judge_pods
from autoscaler.gpus.readings import (
    Absence,
    DeviceProcess,
    DeviceReading,
    DriverFailure,
    FailureKind,
    NodeReading,
    ProcessWork,
)
from autoscaler.gpus.verdicts import NodeHistory, VerdictRule, judge_node

S = 10**9
RULE = VerdictRule(window_s=30.0, longest_gap_s=12.0)
IDLE = {GpuVerdict.HELD, GpuVerdict.FREE}
POD = HoldingPod(namespace="ns", name="one")
MODELS = ("Tesla T4", "NVIDIA H100 80GB HBM3", "a model of next year")

absences = st.sampled_from(Absence)
unsupported = st.just(Absence.NOT_SUPPORTED)
percents = st.one_of(st.sampled_from([0, 0, 0, 1, 100]), absences)
work = st.one_of(st.just(()), st.just((ProcessWork(pid=7, percent=50),)), absences)
processes = st.one_of(st.just(()), st.just((DeviceProcess(pid=7),)), absences)
memory = st.one_of(st.sampled_from([0, 60 << 30]), absences)
joules = st.one_of(st.integers(-10, 4_000), absences)  # of the interval


WAITING = {
    "utilisation_percent": 0,
    "work": (),
    "processes": (DeviceProcess(pid=7),),
    "gpm_percent": Absence.NOT_SUPPORTED,
    "memory_used_bytes": 1 << 30,
    "has_mps": False,
    "joules": 20,
}
lies = st.fixed_dictionaries(
    {},
    optional={
        "utilisation_percent": percents,
        "work": work,
        "processes": processes,
        "gpm_percent": st.one_of(st.sampled_from([0.0, 0.0, 3.0]), absences),
        "memory_used_bytes": memory,
        "has_mps": st.booleans(),
        "joules": joules,
    },
)


def figures():
    """What a driver may say of a device in one sample, true or not: mostly idle; energy as joules of the interval."""
    return st.one_of(st.just(WAITING), st.just(WAITING), st.just(WAITING), lies.map(lambda told: WAITING | told))


def honest(figure, source):
    """The same, but this source tells that the device computes; the others may still lie."""
    told = {
        "counters": {"work": (ProcessWork(pid=7, percent=1),)},
        "gpm": {"gpm_percent": 1.0},
        "power": {"joules": 3_000},
    }
    return figure | told[source]


samples = st.lists(
    st.tuples(
        st.sampled_from([*[10] * 12, 5, 1, 12, 13, 400, 0, -3]),  # seconds since the sample before: clocks jump
        st.lists(figures(), min_size=2, max_size=2),
        st.sampled_from([*[None] * 9, "counters", "gpm", "power"]),  # whether device 0 computes, and who tells
        st.sampled_from([*[False] * 9, True]),  # the driver fails
    ),
    min_size=4,
    max_size=16,
)
owners = st.sampled_from(
    [
        NOBODY,
        DeviceOwners(claims={"GPU-0": (DeviceClaim(pod=POD),)}, pods_of_pids={7: POD}),
        DeviceOwners(claims={"GPU-0": (DeviceClaim(pod=POD),)}),
        DeviceOwners(unresolved=("nvidia9",)),
        OwnersUnknown(reason="the kubelet does not answer"),
    ]
)


def device(number, figure, energy, model):
    values = {key: value for key, value in figure.items() if key != "joules"}
    return DeviceReading(uuid=f"GPU-{number}", model=model, energy_mj=energy, **values)


def run(steps, model, owner):
    """Verdicts after each sample, with what was true and told of device 0."""
    history, at_s, energies = NodeHistory(), 100, [10**9, 10**9]
    for seconds, told, computes, fails in steps:
        at_s += seconds
        if fails:
            reading = DriverFailure(at_ns=at_s * S, kind=FailureKind.SILENT, message="silent")
        else:
            given_figures = [honest(told[0], computes) if computes else told[0], told[1]]
            devices = []
            for number, figure in enumerate(given_figures):
                joules = figure["joules"]
                if not isinstance(joules, Absence):
                    energies[number] += 1000 * joules
                energy = joules if isinstance(joules, Absence) else energies[number]
                devices.append(device(number, figure, energy, model if number == 0 else MODELS[0]))
            reading = NodeReading(at_ns=at_s * S, devices=tuple(devices))
        judgement = judge_node(history, reading, owner, RULE)
        history = judgement.history
        yield at_s, reading, computes, judgement.verdicts


@given(samples, st.sampled_from(MODELS[:2]), owners)
def test_who_computes_is_never_held_or_free(steps, model, owner):
    """If one source of three tells the truth, the verdict is not idle for a whole window after the last work."""
    worked_until_s = None
    for at_s, reading, computes, verdicts in run(steps, model, owner):
        if computes and isinstance(reading, NodeReading):
            worked_until_s = at_s
        if worked_until_s is None or at_s - worked_until_s >= RULE.window_s or at_s < worked_until_s:
            continue
        for one in verdicts:
            if one.reading.uuid == "GPU-0" and not (computes == "power" and one.watts is None):
                assert one.verdict not in IDLE
                assert {pod.verdict for pod in judge_pods(one, owner)}.isdisjoint(IDLE)


@given(samples, st.sampled_from(MODELS), owners)
def test_missing_data_never_gives_an_idle_verdict(steps, model, owner):
    """Within the window before an idle verdict each sample came in time and lacked no figure of its kind."""
    told: list[tuple[int, bool]] = []  # when, and whether all that the device has was there
    for at_s, reading, _, verdicts in run(steps, model, owner):
        if isinstance(reading, DriverFailure):
            told.append((at_s, False))
            assert all(one.verdict is GpuVerdict.ACTIVE for one in verdicts)
            continue
        first = reading.devices[0]
        values = (first.utilisation_percent, first.work, first.gpm_percent, first.energy_mj, first.processes)
        is_whole = not any(isinstance(one, Absence) and one is not Absence.NOT_SUPPORTED for one in values)
        told.append((at_s, is_whole))
        verdict = next(one for one in verdicts if one.reading.uuid == "GPU-0").verdict
        if verdict not in IDLE:
            continue
        assert not isinstance(owner, OwnersUnknown)
        newest_s = at_s
        for (before_s, _), (this_s, whole) in zip(reversed(told[:-1]), reversed(told[1:]), strict=False):
            if newest_s - this_s >= RULE.window_s:
                break
            assert whole
            assert 0 < this_s - before_s <= RULE.longest_gap_s
        assert newest_s - told[0][0] >= RULE.window_s


@given(st.lists(figures(), min_size=12, max_size=12), owners)
def test_one_sample_that_is_not_low_begins_the_window_anew(told, owner):
    """An idle verdict needs samples of a whole window since the last that was not low."""
    steps = [(5, [one, one], None, False) for one in told]
    low_since_s = None
    for at_s, _, _, verdicts in run(steps, MODELS[0], owner):
        (first, _) = verdicts
        if first.outcome.value != "low":
            low_since_s = None
            assert first.verdict not in IDLE
        elif low_since_s is None:
            low_since_s = at_s - 5
        if first.verdict in IDLE:
            assert at_s - low_since_s >= RULE.window_s


def test_the_properties_meet_idle_verdicts():
    """Samples as the properties draw them lead to idle verdicts, so that these are tested at all."""
    steps = [(10, [WAITING, WAITING], None, False)] * 5
    last = list(run(steps, MODELS[0], NOBODY))[-1][3]
    assert {one.verdict for one in last} == {GpuVerdict.HELD}
