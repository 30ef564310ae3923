"""Setup of a pass: a scenario's nodes, system pods, web load and node losses on a simulated cluster, for any arm.

The scenario's zero lies `warm_up_s` after the cluster's, so that the first web pods run when it begins.  All
randomness comes from the pass's seed: the same seed gives every arm the same draws and the same jitter.  Start times
follow from them by the arm's own timings; those of 2017 are 0.65 s shorter on the average, which counts against ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from autoscaler.clusters.simulated import (
    KUBE_SCHEDULER,
    KUBE_SCHEDULER_1_6,
    PHYSICS_2017,
    Physics,
    SimDeployment,
    SimulatedCluster,
    TrainingWork,
    fixed_duration,
)
from autoscaler.domain import (
    Job,
    JobName,
    MasterSpec,
    Node,
    NodeName,
    Reclaim,
    Resources,
    ServerSpec,
    Shape,
    TrainerSpec,
)
from experiments.scenarios.node_mixes import SYSTEM_CPU_MILLI, Mix
from experiments.scenarios.schema import ArmName, ClockSpec, JobsSpec, PhysicsSpec, PodShapeSpec, PolicySpec, Scenario

SERVERS_MOVED: Final = "servers moved"
"""Key of moved servers among the planner's removals by cause."""

NEVER_S: Final = 1e6
"""Trainers of 2017 did not hand over: they ran until the kill at the end of Kubernetes' default grace of 30 s.  Found
by calibration: with shorter termination times the web of case 2 returns too soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassSetting:
    """Settings of one pass: scenario, node mix, arm and seed.  `variant` is empty for the arm as it is."""

    scenario: Scenario
    mix: Mix | None
    arm: ArmName
    variant: str
    seed: int
    physics: PhysicsSpec
    policy: PolicySpec
    is_today: bool = False
    """Under today's scheduler and controllers in any case, as on a real control plane; pods keep their timings."""

    @property
    def is_of_2017(self) -> bool:
        """True if pods have the timings of 2017; then also its scheduler and controllers, unless `is_today`."""
        return self.scenario.published is not None and self.arm in {"static", "edl2017"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmission:
    """A job and the instant of its submission, in the scenario's time."""

    at_s: float
    job: Job
    work: TrainingWork
    static: int


class PassSetup:
    """A cluster with the scenario's events scheduled; the arm schedules the `submissions`."""

    def __init__(self, setting: PassSetting) -> None:
        self.setting = setting
        self.scenario = setting.scenario
        self._rng = np.random.default_rng([setting.seed, 2017])
        self.nodes = make_nodes(setting)
        self.zero_s = self.scenario.warm_up_s
        self.cluster = SimulatedCluster(
            self.nodes,
            physics=make_physics(setting),
            scheduler=KUBE_SCHEDULER_1_6 if setting.is_of_2017 and not setting.is_today else KUBE_SCHEDULER,
            seed=setting.seed,
            reclaim=Reclaim.SCHEDULER if setting.arm == "ours-scheduler" else Reclaim.PLANNER,
            surplus_grace_s=setting.physics.drain_s,
            moves_servers=setting.policy.moves_servers,
            daemons={node.name: SYSTEM for node in self.nodes} if setting.mix is not None else {},
        )
        clock = self.scenario.clocks.get(setting.arm)
        self.submissions = self._list_submissions(clock)
        self.changes = self._list_changes(clock)
        self.rises = [change for change in self.changes if change.wanted > change.before]
        self._plan_web()
        self._plan_losses()

    @property
    def end_s(self) -> float:
        """The end, on the cluster's clock."""
        return self.zero_s + self.scenario.until_s

    def at(self, at_s: float, call: Callable[[], object]) -> None:
        """Schedule a call at an instant of the scenario."""
        self.cluster.at(self.zero_s + at_s, call)

    def every(self, period_s: float, call: Callable[[], object], *, first_s: float = 0.0) -> None:
        """Call it at `first_s` of the scenario and every period from then on."""
        self.cluster.every(period_s, call, first_s=self.zero_s + first_s)

    def _jittered(self, at_s: float, clock: ClockSpec | None) -> float:
        jitter_s = 0.0 if clock is None else clock.jitter_s
        return max(0.0, at_s + float(self._rng.uniform(-jitter_s, jitter_s))) if jitter_s else at_s

    def _list_submissions(self, clock: ClockSpec | None) -> Sequence[JobSubmission]:
        planned = [
            (spec.first_s + number * spec.every_s, spec, number)
            for spec in self.scenario.jobs
            for number in range(spec.count)
        ]
        planned.sort(key=lambda item: item[0])
        instants = [at_s for at_s, _, _ in planned] if clock is None else list(clock.jobs_at_s)
        return [
            JobSubmission(
                at_s=self._jittered(at_s, clock),
                job=make_job(spec, number),
                work=TrainingWork(samples_total=None if spec.samples_total is None else float(spec.samples_total)),
                static=spec.trainer.static,
            )
            for at_s, (_, spec, number) in zip(instants, planned, strict=True)
        ]

    def _list_changes(self, clock: ClockSpec | None) -> list[ReplicaChange]:
        instants = iter(() if clock is None else clock.web_at_s)
        changes = []
        for web in self.scenario.web:
            before = web.replicas
            for step in web.steps:
                at_s = self._jittered(next(instants, step.at_s), clock)
                changes.append(ReplicaChange(web=web.name, at_s=at_s, before=before, wanted=step.replicas))
                before = step.replicas
        return sorted(changes, key=lambda change: change.at_s)

    def _plan_web(self) -> None:
        for web in self.scenario.web:
            shape = make_shape(web.pod)
            deployment = SimDeployment(name=web.name, shape=shape, replicas=web.replicas, priority=web.priority)
            self.cluster.add_deployment(deployment)
        for change in self.changes:
            self.at(change.at_s, partial(self.cluster.scale, change.web, change.wanted))

    def _plan_losses(self) -> None:
        lost: list[NodeName] = []
        for event in self.scenario.node_events:
            if event.restore:
                for name in lost:
                    self.at(event.at_s, partial(self.cluster.restore_node, name))
                lost.clear()
                continue
            present = [node.name for node in self.nodes if node.name not in lost]
            for index in self._rng.choice(len(present), size=min(event.lose, len(present)), replace=False):
                self.at(event.at_s, partial(self.cluster.lose_node, present[int(index)]))
                lost.append(present[int(index)])


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaChange:
    """A change of a Deployment's replica count."""

    web: str
    at_s: float
    before: int
    wanted: int


SYSTEM: Final = Shape(requests=Resources(cpu_milli=SYSTEM_CPU_MILLI, extended=(("pods", 1),)))


def make_nodes(setting: PassSetting) -> list[Node]:
    """Return the mix's nodes, or those that the scenario names itself."""
    if setting.mix is not None:
        return setting.mix.nodes()
    return [
        Node(
            name=NodeName(f"n{group}-{number:04d}"),
            allocatable=Resources(
                cpu_milli=spec.cpu, memory_bytes=spec.memory, gpu_count=spec.gpu, extended=(("pods", 110),)
            ),
        )
        for group, spec in enumerate(setting.scenario.nodes)
        for number in range(spec.count)
    ]


def make_physics(setting: PassSetting) -> Physics:
    """Return the timings: those of 2017 for its arms, today's for ours; the drain time is the setting's."""
    if setting.is_of_2017:
        return replace(PHYSICS_2017, drain=fixed_duration(NEVER_S), spreads_scale_down=setting.is_today)
    return Physics(drain=fixed_duration(setting.physics.drain_s))


def make_shape(pod: PodShapeSpec) -> Shape:
    """Return a pod's requests; every pod counts as one of its node's pods."""
    requests = Resources(cpu_milli=pod.cpu, memory_bytes=pod.memory, gpu_count=pod.gpu, extended=(("pods", 1),))
    return Shape(requests=requests)


def make_job(spec: JobsSpec, number: int) -> Job:
    """Return one of a scenario's equal jobs."""
    trainer = spec.trainer
    servers = spec.servers
    return Job(
        name=JobName(f"{spec.name}-{number + 1:02d}"),
        trainer=TrainerSpec(
            shape=make_shape(trainer),
            min_replicas=trainer.min,
            max_replicas=trainer.max,
            step=trainer.step,
            powers_of_two=trainer.powers_of_two,
        ),
        servers=None
        if servers is None
        else ServerSpec(shape=make_shape(servers), min_replicas=servers.count, max_replicas=servers.count),
        master=MasterSpec(shape=make_shape(spec.master)),
        priority=spec.priority,
        weight=spec.weight,
    )
