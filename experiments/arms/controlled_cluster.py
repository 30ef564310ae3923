"""Port of the arms of 2017: a cluster's pods, and controllers with replica counts that an arm sets.

The simulated cluster implements it, and so does a real control plane (`tests.cluster.experiment`); one driver serves
both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from autoscaler.clusters.simulated import TrainingWork
from autoscaler.domain import Job, JobName, Node, NodeName, PodName, PodPhase, Resources, Role, Shape
from experiments.scenarios.schema import Scenario


class ControlledPod(Protocol):
    """A pod that has not been removed."""

    @property
    def owner(self) -> str: ...
    @property
    def role(self) -> Role: ...
    @property
    def phase(self) -> PodPhase: ...
    @property
    def shape(self) -> Shape: ...


class ControlledCluster(Protocol):
    """A cluster, simulated or real, whose controllers keep as many pods of a job as were set."""

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
    """Setup of a 2017 arm; implemented by `PassSetup`."""

    @property
    def cluster(self) -> ControlledCluster: ...
    @property
    def nodes(self) -> Sequence[Node]: ...
    @property
    def scenario(self) -> Scenario: ...
