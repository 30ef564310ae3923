"""Metrics of a real pass, by the functions that measure a simulated one; and simulated passes to compare it with.

Submissions and web steps count from their planned instants, so every delay counts against the pass.  The nodes run no
containers, so there are no samples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from autoscaler.clusters.simulated import PodTimeline
from autoscaler.domain import NodeName, PodName, Role
from experiments.arms.pass_setup import PassSetting, PassSetup, ReplicaChange
from experiments.measuring.pass_metrics import curves, measure
from experiments.measuring.pass_record import JobTimeline, PassRecord, WebTimeline
from experiments.measuring.series import Steps, add, make_steps
from experiments.real.recording import RealPod, Recording, Simulated
from experiments.running.simulation import simulate_pass
from experiments.scenarios.node_mixes import read_mixes
from experiments.scenarios.schema import ArmName, Scenario

NOT_MEASURED: Final = ("samples_trained", "samples_lost", "transfers", "forced_removals")
CURVE_STEP_S: Final = 1.0


def setting_of(recording: Recording, scenario: Scenario) -> PassSetting:
    """Return the setting of the recorded pass."""
    arms: Mapping[str, ArmName] = {arm: arm for arm in scenario.arms}
    return PassSetting(
        scenario=scenario,
        mix=next((mix for mix in read_mixes() if mix.name == recording.mix), None),
        arm=arms[recording.arm],
        variant="",
        seed=recording.seed,
        physics=scenario.physics,
        policy=scenario.policy,
    )


def measure_real(setting: PassSetting, pods: Sequence[RealPod]) -> dict[str, float]:
    """Return the metrics of a real pass by the names that a simulated one has."""
    found = measure(record_of(setting, pods))
    measured = {name: value for name, value in found.items() if name not in NOT_MEASURED}
    return measured | measure_curves(setting, curves_of(setting, pods))


def measure_curves(setting: PassSetting, drawn: Mapping[str, Any]) -> dict[str, float]:
    """Return the use of each phase of a scenario with one web; the curves of a simulated pass will do as well."""
    webs = setting.scenario.web
    if len(webs) != 1:
        return {}
    phases = list_phases(PassSetup(setting).changes, webs[0].replicas, setting.scenario.until_s)
    return dict(measure_phases(phases, drawn["utilisation_percent"], float(drawn["step_s"])))


def curves_of(setting: PassSetting, pods: Sequence[RealPod]) -> Mapping[str, object]:
    """Return the curves of the figures, each second."""
    return curves(record_of(setting, pods), CURVE_STEP_S)


def record_of(setting: PassSetting, pods: Sequence[RealPod]) -> PassRecord:
    """Return the record of the pass; metrics leave out what happened after its end."""
    setup = PassSetup(setting)
    cpu_milli = sum(node.allocatable.cpu_milli for node in setup.nodes)
    gpus = sum(node.allocatable.gpu_count for node in setup.nodes)
    by_owner: defaultdict[str, list[RealPod]] = defaultdict(list)
    for pod in pods:
        by_owner[pod.owner].append(pod)
    jobs = {
        str(submission.job.name): job_timeline(
            by_owner[str(submission.job.name)], submission.at_s, submission.job.weight, submission.job.server_count
        )
        for submission in setup.submissions
    }
    web = {
        spec.name: WebTimeline(
            wanted=make_steps(
                [
                    (-setting.scenario.warm_up_s, float(spec.replicas)),
                    *((change.at_s, float(change.wanted)) for change in setup.changes if change.web == spec.name),
                ]
            ),
            running=running_count(by_owner[spec.name]),
        )
        for spec in setting.scenario.web
    }
    return PassRecord(
        until_s=setting.scenario.until_s,
        measured_until_s=setting.scenario.measured_until_s,
        utilisation=usage(pods, lambda pod: 100 * pod.requests.cpu_milli / cpu_milli),
        gpu_utilisation=usage(pods, lambda pod: 100 * pod.requests.gpu_count / gpus) if gpus else None,
        jobs=jobs,
        web=web,
        rises=tuple(setup.rises),
        pods=tuple(timeline_of(pod) for pod in pods),
        zero_s=0.0,
        removals={},
        bounds=(),
    )


def job_timeline(pods: Sequence[RealPod], submitted_s: float, weight: int, servers: int) -> JobTimeline:
    """Return one job over time; it can train while its master, all servers and a trainer stand."""
    roles = {role: running_count([pod for pod in pods if pod.role is role]) for role in Role}
    needed = {Role.MASTER: 1, Role.SERVER: servers, Role.TRAINER: 1}
    instants = sorted({at_s for role in needed for at_s in roles[role].times_s})
    return JobTimeline(
        submitted_s=submitted_s,
        weight=weight,
        servers_wanted=servers,
        trainers=roles[Role.TRAINER],
        servers=roles[Role.SERVER],
        trainable=make_steps(
            (at_s, float(all(roles[role].at(at_s) >= count for role, count in needed.items()))) for at_s in instants
        ),
        trained=Steps(),
        lost=Steps(),
    )


def running_count(pods: Iterable[RealPod]) -> Steps:
    """Return how many pods run and are not terminating, over time."""
    return add(
        [
            interval(pod.running_at_s, first_of(pod.terminating_at_s, pod.gone_at_s), 1.0)
            for pod in pods
            if pod.running_at_s is not None
        ]
    )


def usage(pods: Iterable[RealPod], amount: Callable[[RealPod], float]) -> Steps:
    """Return the requests of running pods, terminating ones included, over time."""
    return add([interval(pod.running_at_s, pod.gone_at_s, amount(pod)) for pod in pods if pod.running_at_s is not None])


def first_of(*instants: float | None) -> float | None:
    """Return the earliest of the instants that came."""
    return min((at_s for at_s in instants if at_s is not None), default=None)


def interval(from_s: float | None, until_s: float | None, value: float) -> Steps:
    """Return a value that holds between two instants; None: never, and for ever."""
    if from_s is None or (until_s is not None and until_s <= from_s):
        return Steps()
    if until_s is None:
        return Steps(times_s=(from_s,), values=(value,))
    return Steps(times_s=(from_s, until_s), values=(value, 0.0))


def timeline_of(pod: RealPod) -> PodTimeline:
    """Return the pod as the simulator's record would have it."""
    return PodTimeline(
        name=PodName(pod.name),
        owner=pod.owner,
        role=pod.role,
        tier=pod.tier,
        node=NodeName(pod.node) if pod.node else None,
        requests=pod.requests,
        created_at_s=pod.created_at_s,
        bound_at_s=pod.bound_at_s,
        running_at_s=pod.running_at_s,
        terminating_at_s=pod.terminating_at_s,
        gone_at_s=pod.gone_at_s,
        was_drained=pod.was_drained,
        is_preempted=pod.is_preempted,
        end_reason="",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPhase:
    """From one step of the web to the next, in the scenario's time; `web` pods are wanted."""

    from_s: float
    until_s: float
    web: int


def list_phases(changes: Sequence[ReplicaChange], web: int, until_s: float) -> list[LoadPhase]:
    """Return the phases of a scenario with one web of so many pods at its beginning, up to an instant."""
    instants = [0.0, *(change.at_s for change in changes if change.at_s < until_s), until_s]
    wanted = [web, *(change.wanted for change in changes)]
    return [
        LoadPhase(from_s=from_s, until_s=to_s, web=count)
        for from_s, to_s, count in zip(instants[:-1], instants[1:], wanted, strict=False)
    ]


def phase_metric(phase: LoadPhase) -> str:
    """Return the metric's name, which has the beginning of the phase."""
    return f"utilisation_from_{phase.from_s:g}_s_percent"


def measure_phases(phases: Sequence[LoadPhase], curve: Sequence[float], step_s: float) -> Mapping[str, float]:
    """Return the mean of a curve over each phase; a point of the curve counts for the step that begins there."""
    found = {}
    for phase in phases:
        points = [value for number, value in enumerate(curve) if phase.from_s <= number * step_s < phase.until_s]
        if points:
            found[phase_metric(phase)] = sum(points) / len(points)
    return found


SIMULATED_PASSES: Final = 5


def simulate_counterpart(setting: PassSetting, passes: int = SIMULATED_PASSES) -> Simulated:
    """Simulate the pass under today's scheduler, once for each of so many seeds; the first is the real pass's."""
    today = replace(setting, is_today=True, scenario=setting.scenario.model_copy(update={"bounds": False}))
    results = [simulate_pass(replace(today, seed=setting.seed + number)) for number in range(passes)]
    metrics = tuple(
        {name: round(value, 4) for name, value in (result.metrics | measure_curves(setting, result.curves)).items()}
        for result in results
    )
    first: dict[str, Any] = results[0].curves
    return Simulated(metrics=metrics, curves=first)
