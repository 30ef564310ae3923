"""Everything a plan may rest on, at one instant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite

from autoscaler.domain.cluster import Capabilities, Node, Pod, PodPhase, Role, Tier, Workload
from autoscaler.domain.history import History
from autoscaler.domain.jobs import Job
from autoscaler.errors import InvalidViewError


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The cluster as observed.  The order of the input carries no meaning: everything is sorted by name here (A5).

    Raises:
        InvalidViewError: a name stands twice, an amount is negative, or a pod's fields contradict each other.
    """

    revision: int  # rises with every change that the adapter has seen
    observed_at_s: float  # when the adapter last knew that this was true
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    jobs: tuple[Job, ...] = ()
    workloads: tuple[Workload, ...] = ()
    is_synced: bool = True  # False: the first full listing is not complete
    capabilities: Capabilities = field(default_factory=Capabilities)
    history: History = field(default_factory=History)  # put in by the loop; adapters leave it empty

    def __post_init__(self) -> None:
        for kind in ("nodes", "pods", "jobs", "workloads"):
            items = sorted(getattr(self, kind), key=lambda item: item.name)
            check_names_once(kind, [item.name for item in items])
            object.__setattr__(self, kind, tuple(items))
        for node in self.nodes:
            if node.allocatable.is_negative():
                raise InvalidViewError(f"node {node.name}: allocatable is negative: {node.allocatable}")
        for pod in self.pods:
            check_pod(pod)
        for job in self.jobs:
            if not isfinite(job.submitted_at_s):
                raise InvalidViewError(f"job {job.name}: submitted at {job.submitted_at_s}")
        check_ordinals_once(self.pods)


def check_names_once(kind: str, names: Sequence[str]) -> None:
    """Raise InvalidViewError unless every name stands once."""
    for name, following in pairwise(names):
        if name == following:
            raise InvalidViewError(f"{kind}: {name} stands twice in one view")


def check_pod(pod: Pod) -> None:
    """Raise InvalidViewError if a pod's fields contradict each other."""
    if not isfinite(pod.created_at_s):
        raise InvalidViewError(f"pod {pod.name}: created at {pod.created_at_s}")
    if pod.requests.is_negative():
        raise InvalidViewError(f"pod {pod.name}: requests are negative: {pod.requests}")
    if (pod.role is Role.OTHER) != (pod.tier is Tier.FOREIGN) or (pod.role is Role.OTHER) != (pod.job is None):
        problem = f"role {pod.role}, tier {pod.tier} and job {pod.job} do not go together"
        raise InvalidViewError(f"pod {pod.name}: {problem}")
    if pod.phase in {PodPhase.STARTING, PodPhase.READY} and pod.node is None:
        raise InvalidViewError(f"pod {pod.name}: {pod.phase} without a node")
    if pod.phase in {PodPhase.PENDING, PodPhase.GATED} and pod.node is not None:
        raise InvalidViewError(f"pod {pod.name}: {pod.phase}, yet bound to {pod.node}")


def check_ordinals_once(pods: Iterable[Pod]) -> None:
    """Raise InvalidViewError if two pods of one job and role share an ordinal: nobody could say which one is meant."""
    seats = Counter((pod.job, pod.role, pod.ordinal) for pod in pods if pod.job is not None)
    for (job, role, ordinal), count in seats.items():
        if count > 1:
            raise InvalidViewError(f"job {job}: {count} pods are {role} {ordinal}")
