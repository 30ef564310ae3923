"""What the arms of 2017 need of a cluster: pods to look at, and controllers to tell how many of them there should be.

The simulated cluster has it, and so has a real control plane (`tests.cluster.experiment`): one driver serves both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from autoscaler.clusters.simulated import TrainingWork
from autoscaler.domain import Job, JobName, Node, NodeName, PodName, PodPhase, Resources, Role, Shape
from experiments.scenarios.schema import Scenario


class ControlledPod(Protocol):
    """A pod that has not gone."""

    @property
    def owner(self) -> str: ...
    @property
    def role(self) -> Role: ...
    @property
    def phase(self) -> PodPhase: ...
    @property
    def shape(self) -> Shape: ...


class ControlledCluster(Protocol):
    """A cluster whose controllers can be told how many pods of a job there should be, simulated or not."""

    @property
    def pods(self) -> Mapping[PodName, ControlledPod]: ...
    @property
    def jobs(self) -> Mapping[JobName, Job]: ...
    def free_on(self, name: NodeName, /) -> Resources: ...
    def submit(self, job: Job, work: TrainingWork, /) -> None: ...
    def set_replicas(
        self, job: JobName, role: Role, replicas: int, /, *, priority: int = 0, spreads: bool = False
    ) -> None: ...


class ArmSetup(Protocol):
    """Where the arm of 2017 acts; `Stage` is one."""

    @property
    def cluster(self) -> ControlledCluster: ...
    @property
    def nodes(self) -> Sequence[Node]: ...
    @property
    def scenario(self) -> Scenario: ...
