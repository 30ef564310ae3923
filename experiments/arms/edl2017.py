"""The arm of 2017: its algorithm at its tick, its writes carried out by the controllers of Kubernetes 1.6.

Each job starts with its minimum of trainers, all servers and its master.  At each tick, and at each submission, the
algorithm looks and writes the parallelism of the trainers' Jobs; who is killed is the Job controller's choice.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import Final

from autoscaler.domain import JobName, PodPhase, Role
from experiments.arms import static
from experiments.arms.algorithm_2017 import TICK_S, SeenCluster, SeenJob, decide
from experiments.arms.ground import Controlled, Ground
from experiments.arms.stage import Stage, Submission

PENDING: Final = frozenset([PodPhase.PENDING, PodPhase.STARTING])


class Driver:
    """Looks, decides, writes.  Keeps the parallelism that was written last."""

    def __init__(self, stage: Ground) -> None:
        self._stage = stage
        self._parallelism: dict[JobName, int] = {}
        self._sums = [0, 0]
        for node in stage.nodes:
            self._sums[0] += node.allocatable.cpu_milli
            self._sums[1] += node.allocatable.memory_bytes

    def submit(self, submission: Submission) -> None:
        """The job comes, and the autoscaler hears of it."""
        least = submission.job.trainer.min_replicas
        static.submit(self._stage, submission, least)
        self._parallelism[submission.job.name] = least
        self.tick()

    def tick(self) -> None:
        """One look and its writes."""
        cluster = self._stage.cluster
        jobs = see_jobs(cluster, self._parallelism)
        takes_from_all = self._stage.scenario.takes_from_all_when_starved
        for name, count in decide(self._see(cluster), jobs, takes_from_all=takes_from_all).items():
            if count != self._parallelism[name]:
                self._parallelism[name] = count
                cluster.set_replicas(name, Role.TRAINER, count, priority=cluster.jobs[name].priority)

    def _see(self, cluster: Controlled) -> SeenCluster:
        pods = cluster.pods.values()
        free = [cluster.free_on(node.name) for node in self._stage.nodes]
        return SeenCluster(
            cpu_milli=self._sums[0],
            memory_bytes=self._sums[1],
            requested_cpu_milli=sum(pod.shape.requests.cpu_milli for pod in pods),
            requested_memory_bytes=sum(pod.shape.requests.memory_bytes for pod in pods),
            idle=tuple((room.cpu_milli, room.memory_bytes) for room in free),
        )


def see_jobs(cluster: Controlled, parallelism: dict[JobName, int]) -> list[SeenJob]:
    """Count each job's trainers as the algorithm did: a pod that is leaving is one of all, but neither kind."""
    phases: defaultdict[str, list[PodPhase]] = defaultdict(list)
    for pod in cluster.pods.values():
        if pod.role is Role.TRAINER:
            phases[pod.owner].append(pod.phase)
    return [
        SeenJob(
            name=name,
            cpu_milli=job.trainer.shape.requests.cpu_milli,
            memory_bytes=job.trainer.shape.requests.memory_bytes,
            least=job.trainer.min_replicas,
            most=job.trainer.max_replicas,
            parallelism=parallelism[name],
            pods=len(phases[name]),
            running=phases[name].count(PodPhase.READY),
            pending=sum(phase in PENDING for phase in phases[name]),
        )
        for name, job in cluster.jobs.items()
    ]


def act(stage: Stage) -> None:
    """Plan what the arm of 2017 does."""
    driver = Driver(stage)
    for submission in stage.submissions:
        stage.at(submission.at_s, partial(driver.submit, submission))
    stage.every(TICK_S, driver.tick)
