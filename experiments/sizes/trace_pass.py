"""One pass: the trace under one arm on the simulated cluster, and the completion times of its jobs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from autoscaler.clusters.simulated import Physics, SimulatedCluster, TrainingWork, run_loop
from autoscaler.domain import Fairness, JobName, JobState, Policy
from autoscaler.jobs.progress import JobProgress
from autoscaler.jobs.throughput_watch import ThroughputWatch, observe_throughput
from autoscaler.loop import Loop
from experiments.errors import ExperimentError
from experiments.sizes import pollux
from experiments.sizes.workload import GPUS, TraceJob, make_job, make_nodes
from master.api.master_status import JobPhase

PAUSE_S: Final = 2.0
"""Pause of a group per resize: those of EDL were measured at tens to hundreds of milliseconds, with small models."""

POLL_S: Final = 5.0
STEP_S: Final = 1_800.0
LONGEST_S: Final = 40 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """An arm of the experiment.  `efficiency` None: not EDL."""

    name: str
    efficiency: float | None = None
    is_fixed: bool = False
    fairness: Fairness = Fairness.JOB
    delay_s: float = 0.0


ARMS: Final = (
    Arm(name="fixed", efficiency=0.0, is_fixed=True),
    Arm(name="EDL", efficiency=0.0),
    Arm(name="EDL, by progress", efficiency=0.0, fairness=Fairness.PROGRESS),
    Arm(name="EDL, efficiency 0.3", efficiency=0.3),
    Arm(name="EDL, efficiency 0.5", efficiency=0.5),
    Arm(name="EDL, efficiency 0.7", efficiency=0.7),
    Arm(name="Pollux", delay_s=pollux.DELAY_S),
    Arm(name="Pollux, with EDL's pause", delay_s=PAUSE_S),
)


@dataclass(slots=True, kw_only=True)
class Observer:
    """Reports each job's progress to the estimator, as the operator does, and gives its curve to the planner."""

    cluster: SimulatedCluster
    watches: dict[JobName, ThroughputWatch] = field(default_factory=dict)

    def tick(self) -> None:
        """Look at all jobs once."""
        now_s = self.cluster.now()
        for name, job in self.cluster.jobs.items():
            if job.state is not JobState.ACTIVE:
                continue
            report = self.cluster.training(name)
            progress = JobProgress(
                phase=JobPhase.TRAINING,
                term=1,
                done=int(report.trained),
                training=report.trainers,
                servers=report.servers,
            )
            before = self.watches.get(name, ThroughputWatch())
            watch = observe_throughput(before, progress, setting="", now_s=now_s, unix_s=now_s)
            self.watches[name] = watch
            if watch.curve != before.curve:
                self.cluster.edit_job(replace(job, throughput=watch.curve))


def simulate(trace: list[TraceJob], arm: Arm, *, nodes: int, seed: int = 1) -> dict[JobName, float]:
    """Return each job's completion time in seconds, from its submission.  The same arguments give the same result."""
    cluster = SimulatedCluster(make_nodes(nodes), physics=Physics(), seed=seed, checks=False)
    if arm.efficiency is None:
        pollux.schedule(cluster, trace, gpus=nodes * GPUS, delay_s=arm.delay_s)
        while not is_over(cluster, trace):
            cluster.run_until(next_step_s(cluster))
    else:
        schedule_edl(cluster, trace, arm)
        policy = Policy(fairness=arm.fairness, surplus_grace_s=5.0)
        loop = Loop(cluster, policy)
        while not is_over(cluster, trace):
            asyncio.run(run_loop(loop, cluster, next_step_s(cluster)))
    return {job.name: finished_at_s(cluster, job) - job.at_s for job in trace}


def schedule_edl(cluster: SimulatedCluster, trace: list[TraceJob], arm: Arm) -> None:
    """Schedule the submissions under EDL, and the reports of the jobs' masters."""
    for job in trace:
        fixed = job.fixed_size if arm.is_fixed else 0
        spec = make_job(job, efficiency=arm.efficiency or 0.0, fixed=fixed, pause_s=PAUSE_S)
        work = TrainingWork(curve=job.curve, samples_total=job.samples, resize_pause_s=PAUSE_S, in_flight_s=0.0)
        cluster.at(job.at_s, partial(cluster.submit, spec, work))
    if arm.efficiency or arm.fairness is Fairness.PROGRESS:
        cluster.every(POLL_S, Observer(cluster=cluster).tick)


def next_step_s(cluster: SimulatedCluster) -> float:
    """Return until when the pass goes on.  Raises ExperimentError for one that does not end."""
    if cluster.now() > LONGEST_S:
        raise ExperimentError(f"jobs have not ended after {LONGEST_S:g} s: one may fit nowhere")
    return cluster.now() + STEP_S


def is_over(cluster: SimulatedCluster, trace: list[TraceJob]) -> bool:
    """True once every job has been submitted and has ended."""
    jobs = cluster.jobs
    return all(job.at_s < cluster.now() for job in trace) and all(one.state is JobState.OVER for one in jobs.values())


def finished_at_s(cluster: SimulatedCluster, job: TraceJob) -> float:
    """Return when all of a job's samples were trained."""
    done = job.samples * (1.0 - 1e-9)
    return next(row.t_s for row in cluster.record.jobs[job.name] if row.samples_trained >= done)
