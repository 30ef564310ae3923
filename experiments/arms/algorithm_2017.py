"""The algorithm of 2017 as its authors described and wrote it, defects included: how many trainers each job gets.

Every 5 s it sums the requests of all pods, those that wait included, and moves jobs by one trainer at a time in a dry
run until nothing changes: up while the sum stays below 97 % of all CPU, down while it is above.  It knows no priority,
no drain, and almost no nodes: a planned trainer *adds* its request to its node's idle room.  Source: the description in
PaddlePaddle/cloud, doc/edl and go/autoscaler of November 2017.  `edl2017` creates and deletes pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from autoscaler.domain import JobName

TICK_S: Final = 5.0
LOAD_LIMIT: Final = 0.97


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedJob:
    """One elastic job: its trainers' pods by phase, and the parallelism last written."""

    name: JobName
    cpu_milli: int
    memory_bytes: int
    least: int
    most: int
    parallelism: int
    pods: int
    running: int
    pending: int

    @property
    def fulfilment(self) -> float:
        """0 at the minimum, 1 at the maximum."""
        return 1.0 if self.most == self.least else (self.parallelism - self.least) / (self.most - self.least)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCluster:
    """Sums over the cluster, and each node's idle capacity, as (CPU, memory)."""

    cpu_milli: int
    memory_bytes: int
    requested_cpu_milli: int  # of all pods that have not finished
    requested_memory_bytes: int
    idle: tuple[tuple[int, int], ...]


def decide(cluster: ObservedCluster, jobs: Sequence[ObservedJob], *, takes_from_all: bool) -> Mapping[JobName, int]:
    """Return the parallelism of each job that is a candidate.

    Candidates are the jobs whose trainers all run; with `takes_from_all` (from 2017-11-08 on) all jobs as soon as one
    has only pending trainers.
    """
    is_starved = takes_from_all and any(job.pods == job.pending for job in jobs)
    candidates = sorted(
        (job for job in jobs if is_starved or job.pods == job.running),
        key=lambda job: (job.fulfilment, job.cpu_milli, job.memory_bytes),
    )
    run = _DryRun(cluster, {job.name: job.parallelism for job in candidates})
    changed = True
    while changed:
        ups = [run.step_up(job) for job in candidates]
        downs = [run.step_down(job) for job in reversed(candidates)]
        changed = any(ups) or any(downs)
    return run.planned


class _DryRun:
    """Dry run: sums are updated correctly, node capacities with the wrong sign (a defect of 2017)."""

    def __init__(self, cluster: ObservedCluster, planned: dict[JobName, int]) -> None:
        self.planned = planned
        self._cpu_milli = cluster.requested_cpu_milli
        self._memory_bytes = cluster.requested_memory_bytes
        self._cpu_limit = int(cluster.cpu_milli * LOAD_LIMIT)
        self._memory_limit = cluster.memory_bytes
        self._idle = list(cluster.idle)

    def step_up(self, job: ObservedJob) -> bool:
        """Plan one trainer more if the sums and some node allow it; one above the maximum is taken back."""
        if self.planned[job.name] >= job.most:
            return self._move(job, job.most - self.planned[job.name])
        if self._memory_limit - self._memory_bytes <= job.memory_bytes:
            return False
        node = next(
            (n for n, (cpu, mem) in enumerate(self._idle) if cpu >= job.cpu_milli and mem >= job.memory_bytes), -1
        )
        if node < 0 or self._cpu_limit - self._cpu_milli < job.cpu_milli:
            return False
        cpu, memory = self._idle[node]
        self._idle[node] = (cpu + job.cpu_milli, memory + job.memory_bytes)  # as written: the sign is the defect
        return self._move(job, 1)

    def step_down(self, job: ObservedJob) -> bool:
        """Plan one trainer less while the sum is above the limit."""
        planned = self.planned[job.name]
        if planned > job.most or (self._cpu_milli > self._cpu_limit and planned > job.least):
            return self._move(job, -1)
        return False

    def _move(self, job: ObservedJob, trainers: int) -> bool:
        self.planned[job.name] += trainers
        self._cpu_milli += trainers * job.cpu_milli
        self._memory_bytes += trainers * job.memory_bytes
        return trainers != 0
