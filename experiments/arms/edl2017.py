"""The arm of 2017: its algorithm at its tick, its writes carried out by the controllers of Kubernetes 1.6.

Each job starts with its minimum of trainers, all servers and its master.  At each tick, and at each submission, the
algorithm observes the pods and writes the parallelism of the trainers' Jobs; the Job controller chooses the victims.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import Final

from autoscaler.domain import JobName, PodPhase, Role
from experiments.arms import static
from experiments.arms.algorithm_2017 import TICK_S, ObservedCluster, ObservedJob, decide
from experiments.arms.controlled_cluster import ArmSetup, ControlledCluster
from experiments.arms.pass_setup import JobSubmission, PassSetup

PENDING: Final = frozenset([PodPhase.PENDING, PodPhase.STARTING])


class Autoscaler2017:
    """Observes, decides, writes; keeps the parallelism that it wrote last."""

    def __init__(self, setup: ArmSetup) -> None:
        self._setup = setup
        self._parallelism: dict[JobName, int] = {}
        self._sums = [0, 0]
        for node in setup.nodes:
            self._sums[0] += node.allocatable.cpu_milli
            self._sums[1] += node.allocatable.memory_bytes

    def submit(self, submission: JobSubmission) -> None:
        """Submit the job and run a tick, as an informer's event did."""
        least = submission.job.trainer.min_replicas
        static.submit(self._setup, submission, least)
        self._parallelism[submission.job.name] = least
        self.tick()

    def tick(self) -> None:
        """Observe once, and write the parallelism that is to change."""
        cluster = self._setup.cluster
        jobs = observe_jobs(cluster, self._parallelism)
        takes_from_all = self._setup.scenario.takes_from_all_when_starved
        for name, count in decide(self._observe(cluster), jobs, takes_from_all=takes_from_all).items():
            if count != self._parallelism[name]:
                self._parallelism[name] = count
                cluster.set_replicas(name, Role.TRAINER, count, priority=cluster.jobs[name].priority)

    def _observe(self, cluster: ControlledCluster) -> ObservedCluster:
        pods = cluster.pods.values()
        free = [cluster.free_on(node.name) for node in self._setup.nodes]
        return ObservedCluster(
            cpu_milli=self._sums[0],
            memory_bytes=self._sums[1],
            requested_cpu_milli=sum(pod.shape.requests.cpu_milli for pod in pods),
            requested_memory_bytes=sum(pod.shape.requests.memory_bytes for pod in pods),
            idle=tuple((room.cpu_milli, room.memory_bytes) for room in free),
        )


def observe_jobs(cluster: ControlledCluster, parallelism: dict[JobName, int]) -> list[ObservedJob]:
    """Count each job's trainers as the algorithm did: a pod that is leaving is one of all, but neither kind."""
    phases: defaultdict[str, list[PodPhase]] = defaultdict(list)
    for pod in cluster.pods.values():
        if pod.role is Role.TRAINER:
            phases[pod.owner].append(pod.phase)
    return [
        ObservedJob(
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


def schedule(setup: PassSetup) -> None:
    """Schedule the submissions and ticks of the arm."""
    driver = Autoscaler2017(setup)
    for submission in setup.submissions:
        setup.at(submission.at_s, partial(driver.submit, submission))
    setup.every(TICK_S, driver.tick)
