"""Pollux' policy, written anew from its paper (Qiao et al., OSDI 2021, section 4.2), on the simulated cluster.

Every minute it chooses the allocation that maximises FITNESS, the power mean (p = -1) of the jobs' SPEEDUPs, in which a
reallocation costs REALLOC_FACTOR = (age - restarts x delay) / (age + delay). Simplified: batch sizes are fixed, so
goodput is throughput; a greedy choice by single GPUs takes the place of the genetic algorithm, which finds no better
sizes where all GPUs are alike; a trainer has one GPU, so placement costs nothing. In its favour: it knows each job's
true curve from the start, where the original fits one by exploration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from typing import Final

from autoscaler.clusters.simulated import SimulatedCluster, TrainingWork
from autoscaler.domain import JobName, JobState, Role
from autoscaler.throughput import CurveShape
from experiments.sizes.workload import LARGEST, TraceJob, make_job

EVERY_S: Final = 60.0
DELAY_S: Final = 30.0  # of a checkpoint and restart, as the paper's simulator has it
NOTHING: Final = 0.01  # speed-up of a job without a GPU: a mean with p = -1 needs one above 0


@dataclass(slots=True, kw_only=True)
class PolluxJob:
    """What the policy knows of a job."""

    curve: CurveShape
    submitted_s: float
    size: int = 0
    restarts: int = 0

    def speedup(self, size: int) -> float:
        """Return the speed at a size, in GPUs."""
        return self.curve.samples_per_s(size) / self.curve.samples_per_s(1) if size else NOTHING

    def worth(self, size: int, now_s: float, delay_s: float) -> float:
        """Return the speed-up, less what a reallocation costs."""
        gain = self.speedup(size)
        if size == self.size or not self.size:
            return gain
        age_s = now_s - self.submitted_s
        return gain * max(NOTHING, (age_s - self.restarts * delay_s) / (age_s + delay_s))


@dataclass(slots=True, kw_only=True)
class PolluxPolicy:
    """The policy's loop on a cluster."""

    cluster: SimulatedCluster
    gpus: int
    delay_s: float = DELAY_S
    jobs: dict[JobName, PolluxJob] = field(default_factory=dict)

    def submit(self, job: TraceJob) -> None:
        """Submit a job; it gets its first GPUs with the next decision, or at once where some are free."""
        spec = make_job(job)
        work = TrainingWork(curve=job.curve, samples_total=job.samples, resize_pause_s=self.delay_s, in_flight_s=0.0)
        self.cluster.submit(spec, work)
        self.cluster.set_replicas(job.name, Role.MASTER, 1)
        self.jobs[job.name] = PolluxJob(curve=job.curve, submitted_s=self.cluster.now())

    def tick(self) -> None:
        """Decide, and write the sizes that change."""
        known = self.cluster.jobs
        for name in [name for name in self.jobs if name not in known or known[name].state is not JobState.ACTIVE]:
            del self.jobs[name]
        for name, size in choose_sizes(self.jobs, self.gpus, self.cluster.now(), self.delay_s).items():
            job = self.jobs[name]
            if size != job.size:
                job.restarts += bool(job.size)
                job.size = size
                self.cluster.set_replicas(name, Role.TRAINER, size)


def choose_sizes(jobs: Mapping[JobName, PolluxJob], gpus: int, now_s: float, delay_s: float) -> dict[JobName, int]:
    """Return the sizes that maximise the power mean: GPU by GPU to the job that gains most, then kept if not better.

    With p = -1 maximising the mean is minimising the sum of 1 / speed-up, a separable sum of convex terms, so the
    greedy choice is exact but for the cost of restarts. That is weighed afterwards: a job keeps its size where the new
    one, less the restart, is worth no more, as far as there is room.
    """
    sizes = dict.fromkeys(jobs, 0)
    queue: list[tuple[float, JobName]] = []

    def push(name: JobName) -> None:
        job, size = jobs[name], sizes[name]
        if size < LARGEST:
            heappush(queue, (1.0 / job.speedup(size + 1) - 1.0 / job.speedup(size), name))

    for name in jobs:
        push(name)
    left = gpus
    while left and queue:
        gain, name = heappop(queue)
        if gain >= 0.0:
            continue
        sizes[name] += 1
        left -= 1
        push(name)
    for name, job in sorted(jobs.items(), key=lambda item: abs(sizes[item[0]] - item[1].size)):
        wanted = sizes[name]
        if not job.size or wanted == job.size or job.size - wanted > left:
            continue
        if job.worth(wanted, now_s, delay_s) <= job.speedup(job.size):
            left += wanted - job.size
            sizes[name] = job.size
    return sizes


def schedule(cluster: SimulatedCluster, trace: list[TraceJob], *, gpus: int, delay_s: float) -> None:
    """Schedule submissions and decisions."""
    policy = PolluxPolicy(cluster=cluster, gpus=gpus, delay_s=delay_s)
    for job in trace:
        cluster.at(job.at_s, partial(policy.submit, job))
    cluster.every(EVERY_S, policy.tick)
