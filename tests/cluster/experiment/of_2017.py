"""The arm of 2017 on a real control plane: the same driver as on the simulated cluster, over real controllers.

It looks through the pod timeline, every 5 s and at each submission, and what it writes is carried out by batch Jobs
and ReplicaSets: who is killed is the Job controller's choice, as it was in 2017.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Api
from autoscaler.clusters.kubernetes.api.kinds import REPLICA_SETS, Kind
from autoscaler.clusters.simulated import Physics, TrainingWork
from autoscaler.domain import Job, JobName, Node, NodeName, PodName, PodPhase, Resources, Role, Shape
from experiments.arms.algorithm_2017 import TICK_S
from experiments.arms.edl2017 import Autoscaler2017
from experiments.arms.pass_setup import JobSubmission, PassSetup
from experiments.scenarios.schema import Scenario
from tests.cluster.experiment.bodies import controller_name, controller_of_2017
from tests.cluster.experiment.insisting import insist
from tests.cluster.pod_timeline import PodTimeline, PodTimes
from tests.harness.processes import Program

BATCH_JOBS: Final = Kind(group="batch", plural="jobs", kind="Job")
NOTHING: Final = Resources()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPod:
    """A pod as the algorithm looks at it."""

    owner: str
    role: Role
    phase: PodPhase
    shape: Shape


class RealControllers:
    """Cluster of the driver: observations are the timeline's, wishes wait in `wishes` until they are written."""

    def __init__(self, nodes: Sequence[Node], timeline: PodTimeline) -> None:
        self.jobs: dict[JobName, Job] = {}
        self.wishes: asyncio.Queue[tuple[Job, Role, int]] = asyncio.Queue()
        self._allocatable = {node.name: node.allocatable for node in nodes}
        self._timeline = timeline

    @property
    def pods(self) -> Mapping[PodName, SeenPod]:
        """Those that have not ended."""
        return {pod.name: seen_pod(pod) for pod in self._timeline.pods.values() if pod.ended_at_s is None}

    def free_on(self, name: NodeName, /) -> Resources:
        """What the node's pods leave of it."""
        free = self._allocatable[name]
        held = [pod.requests for pod in self._timeline.pods.values() if pod.node == name and pod.ended_at_s is None]
        return Resources(
            cpu_milli=max(0, free.cpu_milli - sum(one.cpu_milli for one in held)),
            memory_bytes=max(0, free.memory_bytes - sum(one.memory_bytes for one in held)),
        )

    def submit(self, job: Job, work: TrainingWork, /) -> None:
        """The job is known."""
        self.jobs[job.name] = job

    def set_replicas(
        self,
        job: JobName,
        role: Role,
        replicas: int,
        /,
        *,
        priority: int = 0,
        spreads: bool = False,
    ) -> None:
        """To be written."""
        self.wishes.put_nowait((self.jobs[job], role, replicas))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Where the driver acts."""

    cluster: RealControllers
    nodes: Sequence[Node]
    scenario: Scenario


class Of2017:
    """The arm."""

    def __init__(self, api: Api, namespace: str, stage: PassSetup, physics: Physics, timeline: PodTimeline) -> None:
        self.programs: Mapping[str, Program] = {}
        self._api = api
        self._namespace = namespace
        self._physics = physics
        self._controllers = RealControllers(stage.nodes, timeline)
        self._driver = Autoscaler2017(Ground(cluster=self._controllers, nodes=stage.nodes, scenario=stage.scenario))
        self._made: set[str] = set()

    async def submit(self, submission: JobSubmission) -> None:
        self._driver.submit(submission)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tick())
            tasks.create_task(self._write())

    def evictions(self) -> Mapping[str, int]:
        return {}

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        while True:
            self._driver.tick()
            next_s += TICK_S
            await asyncio.sleep(max(0.0, next_s - loop.time()))

    async def _write(self) -> None:
        """One wish after the other, in order."""
        while True:
            job, role, replicas = await self._controllers.wishes.get()
            kind, size = (BATCH_JOBS, "parallelism") if role is Role.TRAINER else (REPLICA_SETS, "replicas")
            name = controller_name(job.name, role)
            if name in self._made:
                change = {"spec": {size: replicas}}
                await insist(partial(self._api.patch, kind, name, change, namespace=self._namespace))
                continue
            body = controller_of_2017(job, role, replicas, self._physics)
            body["metadata"]["namespace"] = self._namespace
            await insist(partial(self._api.create, kind, body))
            self._made.add(name)


def seen_pod(pod: PodTimes) -> SeenPod:
    """As the algorithm counts it: one that is leaving is neither running nor pending."""
    if pod.told_at_s is not None:
        phase = PodPhase.TERMINATING
    elif pod.running_at_s is not None:
        phase = PodPhase.READY
    else:
        phase = PodPhase.STARTING if pod.bound_at_s is not None else PodPhase.PENDING
    role = Role(pod.role) if pod.role else Role.EXTERNAL
    return SeenPod(owner=pod.job or pod.app, role=role, phase=phase, shape=Shape(requests=pod.requests))
