"""The cluster view: all observations that a plan uses, at one instant.

A view is built once from a full listing and then updated with `evolve`: what did not change is the very same object
in both views. That makes a view cheap, and the planner's memo compares by it (ADR 0112).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from math import isfinite
from operator import attrgetter
from typing import Final, Protocol, TypeVar

from autoscaler.domain.cluster import Capabilities, Node, Pod, PodPhase, Role, Tier, Workload
from autoscaler.domain.history import History
from autoscaler.domain.idleness import IdlePod
from autoscaler.domain.jobs import Job
from autoscaler.domain.quotas import Quota
from autoscaler.errors import InvalidViewError

FEW: Final = 64  # so many changes are put in one by one; more are sorted in at once


class Named(Protocol):
    """Nodes, pods, jobs, workloads: what a view holds by name."""

    @property
    def name(self) -> str:
        """Unique among its kind."""


NamedItem = TypeVar("NamedItem", bound=Named)
name_of = attrgetter("name")
pod_of = attrgetter("pod")
limit_order = attrgetter("resource", "hard", "used")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The cluster as observed.  The order of the input carries no meaning: everything is sorted by name here (A5).

    Raises:
        InvalidViewError: a name appears twice, an amount is negative, or a pod's fields contradict each other.
    """

    revision: int  # rises with every change that the adapter has seen
    observed_at_s: float  # when the adapter last knew that this was true
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    jobs: tuple[Job, ...] = ()
    workloads: tuple[Workload, ...] = ()
    quotas: tuple[Quota, ...] = ()
    idle_pods: tuple[IdlePod, ...] = ()  # of others, by name; of pods that the view has
    is_synced: bool = True  # False: the first full listing is not complete
    capabilities: Capabilities = field(default_factory=Capabilities)
    history: History = field(default_factory=History)  # put in by the loop; adapters leave it empty

    def __post_init__(self) -> None:
        for kind in ("nodes", "pods", "jobs", "workloads"):
            items = sorted(getattr(self, kind), key=name_of)
            check_names_once(kind, [item.name for item in items])
            object.__setattr__(self, kind, tuple(items))
            for item in items:
                check(item)
        check_ordinals_once(self.pods)
        object.__setattr__(self, "quotas", in_order(self.quotas))
        object.__setattr__(self, "idle_pods", tuple(sorted(self.idle_pods, key=pod_of)))

    def evolve(
        self,
        *,
        nodes: Iterable[Node] = (),
        pods: Iterable[Pod] = (),
        jobs: Iterable[Job] = (),
        workloads: Iterable[Workload] = (),
        gone_nodes: Iterable[str] = (),
        gone_pods: Iterable[str] = (),
        gone_jobs: Iterable[str] = (),
        gone_workloads: Iterable[str] = (),
        quotas: Iterable[Quota] | None = None,
        idle_pods: Iterable[IdlePod] | None = None,
        revision: int | None = None,
        observed_at_s: float | None = None,
        is_synced: bool | None = None,
        capabilities: Capabilities | None = None,
        history: History | None = None,
    ) -> ClusterView:
        """View with changes applied: given items are added or replace those of the same name, gone names are removed.

        What is not named stays the same object, and only what is named is checked.  A name both given and gone counts
        as given; an unknown gone name is ignored; None keeps a scalar.

        Raises:
            InvalidViewError: as for a new view.
        """
        new_pods = tuple(pods)
        evolved = object.__new__(ClusterView)
        changed: dict[str, object] = {
            "nodes": with_changes("nodes", self.nodes, nodes, gone_nodes),
            "pods": with_changes("pods", self.pods, new_pods, gone_pods),
            "jobs": with_changes("jobs", self.jobs, jobs, gone_jobs),
            "workloads": with_changes("workloads", self.workloads, workloads, gone_workloads),
            "quotas": None if quotas is None else in_order(quotas),
            "idle_pods": None if idle_pods is None else tuple(sorted(idle_pods, key=pod_of)),
            "revision": revision,
            "observed_at_s": observed_at_s,
            "is_synced": is_synced,
            "capabilities": capabilities,
            "history": history,
        }
        for entry in fields(self):
            value = changed[entry.name]
            object.__setattr__(evolved, entry.name, getattr(self, entry.name) if value is None else value)
        moved = {(pod.job, pod.role, pod.ordinal) for pod in moved_pods(self.pods, new_pods)}
        if moved:
            owners = {job for job, _, _ in moved}
            check_ordinals_once(pod for pod in evolved.pods if pod.job in owners)
        return evolved


def in_order(quotas: Iterable[Quota]) -> tuple[Quota, ...]:
    """Return the quotas by namespace and name, each one's limits by resource.

    Raises:
        InvalidViewError: a quota appears twice.
    """
    sorted_limits = [replace(quota, limits=tuple(sorted(quota.limits, key=limit_order))) for quota in quotas]
    found = tuple(sorted(sorted_limits, key=lambda quota: (quota.namespace, quota.name)))
    check_names_once("quotas", [f"{quota.namespace}/{quota.name}" for quota in found])
    return found


def with_changes(
    kind: str, items: tuple[NamedItem, ...], given: Iterable[NamedItem], gone: Iterable[str]
) -> tuple[NamedItem, ...]:
    """Return the items with some replaced, added or taken out, still sorted by name."""
    new: dict[str, NamedItem] = {}
    for item in given:
        if item.name in new:
            raise InvalidViewError(f"{kind}: {item.name} is given twice in one change")
        check(item)
        new[item.name] = item
    lost = set(gone) - new.keys()
    if not new and not lost:
        return items
    if len(new) + len(lost) > FEW:
        kept = [item for item in items if item.name not in new and item.name not in lost]
        return tuple(sorted([*kept, *new.values()], key=name_of))
    result = list(items)
    for name in lost:
        at = place_of(result, name)
        if at < len(result) and result[at].name == name:
            del result[at]
    for name, item in new.items():
        at = place_of(result, name)
        if at < len(result) and result[at].name == name:
            result[at] = item
        else:
            result.insert(at, item)
    return tuple(result)


def place_of(items: Sequence[Named], name: str) -> int:
    """Index of the name in a sorted sequence, or its insertion point."""
    return bisect_left(items, name, key=name_of)


def moved_pods(before: tuple[Pod, ...], given: tuple[Pod, ...]) -> Iterable[Pod]:
    """Yield EDL's pods among the given that are new or have another ordinal than before: the others stay unique."""
    for pod in given:
        if pod.job is not None:
            at = place_of(before, pod.name)
            old = before[at] if at < len(before) and before[at].name == pod.name else None
            if old is None or (old.job, old.role, old.ordinal) != (pod.job, pod.role, pod.ordinal):
                yield pod


def check_names_once(kind: str, names: Sequence[str]) -> None:
    """Raise InvalidViewError unless every name stands once."""
    for name, following in pairwise(names):
        if name == following:
            raise InvalidViewError(f"{kind}: {name} appears twice in one view")


def check(item: object) -> None:
    """Raise InvalidViewError for an invalid item."""
    match item:
        case Pod():
            check_pod(item)
        case Node() if item.allocatable.is_negative():
            raise InvalidViewError(f"node {item.name}: allocatable is negative: {item.allocatable}")
        case Job() if not isfinite(item.submitted_at_s):
            raise InvalidViewError(f"job {item.name}: submitted at {item.submitted_at_s}")
        case _:
            pass


def check_pod(pod: Pod) -> None:
    """Raise InvalidViewError if a pod's fields contradict each other."""
    if not isfinite(pod.created_at_s):
        raise InvalidViewError(f"pod {pod.name}: created at {pod.created_at_s}")
    if pod.requests.is_negative():
        raise InvalidViewError(f"pod {pod.name}: requests are negative: {pod.requests}")
    if (pod.role is Role.EXTERNAL) != (pod.tier is Tier.EXTERNAL) or (pod.role is Role.EXTERNAL) != (pod.job is None):
        problem = f"role {pod.role}, tier {pod.tier} and job {pod.job} do not go together"
        raise InvalidViewError(f"pod {pod.name}: {problem}")
    if pod.phase in {PodPhase.STARTING, PodPhase.READY} and pod.node is None:
        raise InvalidViewError(f"pod {pod.name}: {pod.phase} without a node")
    if pod.phase in {PodPhase.PENDING, PodPhase.GATED} and pod.node is not None:
        raise InvalidViewError(f"pod {pod.name}: {pod.phase}, yet bound to {pod.node}")


def check_ordinals_once(pods: Iterable[Pod]) -> None:
    """Raise InvalidViewError if two pods of one job and role share an ordinal: an ordinal must identify one pod."""
    counts = Counter((pod.job, pod.role, pod.ordinal) for pod in pods if pod.job is not None)
    for (job, role, ordinal), count in counts.items():
        if count > 1:
            raise InvalidViewError(f"job {job}: {count} pods are {role} {ordinal}")
