"""Record of one pass in the scenario's time, which all metrics are computed from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.clusters.simulated import PodTimeline
from autoscaler.domain import Role
from experiments.arms.pass_setup import PassSetup, ReplicaChange
from experiments.measuring.bound_samples import BoundSample
from experiments.measuring.series import Steps, add, make_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTimeline:
    """One job: its submission, its weight, and its pods over time."""

    submitted_s: float
    weight: int
    servers_wanted: int
    trainers: Steps
    servers: Steps
    trainable: Steps
    trained: Steps
    lost: Steps


@dataclass(frozen=True, slots=True, kw_only=True)
class WebTimeline:
    """One Deployment over time."""

    wanted: Steps
    running: Steps


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRecord:
    """Record of one pass; instants of pods are in the scenario's time too."""

    until_s: float
    measured_until_s: float
    utilisation: Steps  # percent of the nodes' CPU
    gpu_utilisation: Steps | None  # percent of the nodes' GPUs; None: there are none
    jobs: Mapping[str, JobTimeline]
    web: Mapping[str, WebTimeline]
    rises: tuple[ReplicaChange, ...]
    pods: tuple[PodTimeline, ...]
    zero_s: float
    removals: Mapping[str, int]  # of the planner, by cause; empty for other arms
    bounds: tuple[BoundSample, ...]

    @property
    def trainers(self) -> Steps:
        """Trainers ready, over all jobs."""
        return add([job.trainers for job in self.jobs.values()])

    @property
    def wanted(self) -> Steps:
        """Web pods wanted, over all Deployments."""
        return add([web.wanted for web in self.web.values()])

    @property
    def running(self) -> Steps:
        """Web pods running, over all Deployments."""
        return add([web.running for web in self.web.values()])

    def removed(self) -> list[PodTimeline]:
        """Trainers that ran and were removed while their job went on, up to the end of measuring."""
        end_s = self.zero_s + self.measured_until_s
        return [
            pod
            for pod in self.pods
            if pod.role is Role.TRAINER
            and pod.running_at_s is not None
            and pod.terminating_at_s is not None
            and pod.terminating_at_s <= end_s
            and pod.end_reason != "the job is over"
        ]


def read_pass_record(setup: PassSetup, removals: Mapping[str, int], bounds: tuple[BoundSample, ...]) -> PassRecord:
    """Read the simulator's record."""
    record, zero_s = setup.cluster.record, setup.zero_s
    cpu = record.capacity[0]
    gpu = record.resources.index("gpu") if "gpu" in record.resources else -1
    gpus = record.capacity[gpu] if gpu >= 0 else 0
    jobs = {}
    for submission in setup.submissions:
        name = submission.job.name
        rows = record.jobs[name]
        jobs[str(name)] = JobTimeline(
            submitted_s=submission.at_s,
            weight=submission.job.weight,
            servers_wanted=submission.job.server_count,
            trainers=make_steps(((row.t_s, row.trainers) for row in rows), zero_s=zero_s),
            servers=make_steps(((row.t_s, row.servers) for row in rows), zero_s=zero_s),
            trainable=make_steps(((row.t_s, row.is_trainable) for row in rows), zero_s=zero_s),
            trained=make_steps(((row.t_s, row.samples_trained) for row in rows), zero_s=zero_s),
            lost=make_steps(((row.t_s, row.samples_lost) for row in rows), zero_s=zero_s),
        )
    return PassRecord(
        until_s=setup.scenario.until_s,
        measured_until_s=setup.scenario.measured_until_s,
        utilisation=make_steps(((row.t_s, 100 * row.amounts[0] / cpu) for row in record.usage), zero_s=zero_s),
        gpu_utilisation=make_steps(((row.t_s, 100 * row.amounts[gpu] / gpus) for row in record.usage), zero_s=zero_s)
        if gpus
        else None,
        jobs=jobs,
        web={
            name: WebTimeline(
                wanted=make_steps(((row.t_s, row.wanted) for row in rows), zero_s=zero_s),
                running=make_steps(((row.t_s, row.running) for row in rows), zero_s=zero_s),
            )
            for name, rows in record.web.items()
        },
        rises=tuple(setup.rises),
        pods=record.pods(),
        zero_s=zero_s,
        removals=dict(removals),
        bounds=bounds,
    )
