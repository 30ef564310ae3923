"""Who waits, since when, and in which order: jobs without a size, jobs that want more, web pods without a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from autoscaler.clusters.kubernetes.objects.fields import integer, key_of
from autoscaler.views.cluster.pod_view import PodView, all_pods
from autoscaler.views.documents import ClusterDocuments
from autoscaler.views.jobs.job_view import JobView, job_views

MOST_SHOWN: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingJob:
    """A job that waits.  `position`: from 1, among all that wait, by the planner's order; None: it is not known."""

    position: int | None
    job: JobView
    priority: int
    since_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPods:
    """Pods of one Deployment, or of one without, that have no node: the first names, the count of all.

    `since_s`: of the oldest.
    """

    owner: str
    namespace: str
    pods: tuple[str, ...]
    count: int
    since_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingView:
    """`starting`: jobs without a size; `growing`: jobs that run below their maximum; `pods`: of web.

    Of many jobs the first are shown; the counts are of all.
    """

    starting: tuple[WaitingJob, ...]
    starting_count: int
    growing: tuple[JobView, ...]
    growing_count: int
    pods: tuple[WaitingPods, ...]


def waiting_view(documents: ClusterDocuments, queue: Sequence[str] = ()) -> WaitingView:
    """Return who waits, those first who come first.

    `queue`: jobs as a plan made now has them in its order (`Plan.queue`), by NAMESPACE/NAME or in a run by name.
    Without one the positions are those that the operator wrote into statuses after its last plan.  Others follow by
    priority and then by how long they wait: that is not the planner's order, and they have no position.
    """
    places = {name: place for place, name in enumerate(queue, start=1)}
    priorities = {key_of(raw): integer(raw, "status", "priority") for raw in documents.jobs}
    told = {} if queue else {key_of(raw): integer(raw, "status", "queuePosition") for raw in documents.jobs}
    jobs = [job for job in job_views(documents) if not job.ending and "Suspended" not in job.conditions]
    positions = {
        job.key: places.get(job.key, places.get(job.name)) or told.get(job.key) or None
        for job in jobs
        if job.is_waiting
    }
    starting = sorted(
        (job for job in jobs if job.is_waiting),
        key=lambda job: (positions[job.key] or inf, -priorities[job.key], _since(job), job.key),
    )
    growing = tuple(job for job in jobs if wants_more(job))
    return WaitingView(
        starting=tuple(
            WaitingJob(position=positions[job.key], job=job, priority=priorities[job.key], since_s=_since(job))
            for job in starting[:MOST_SHOWN]
        ),
        starting_count=len(starting),
        growing=growing[:MOST_SHOWN],
        growing_count=len(growing),
        pods=documents.memo.once(_waiting_pods, all_pods(documents)),
    )


def wants_more(job: JobView) -> bool:
    """True if the job runs and may have more trainers than it goes to."""
    sizes = job.trainers
    return job.is_reconciled and not job.ending and not job.is_waiting and not sizes.pinned and sizes.target < sizes.max


def _since(job: JobView) -> float:
    return job.created_at_s if job.waiting_since_s is None else job.waiting_since_s


def pods_without_node(pods: Sequence[PodView]) -> Mapping[tuple[str, str], tuple[PodView, ...]]:
    """Return the pods of others that have no node, by namespace and owner."""
    by_owner: dict[tuple[str, str], list[PodView]] = {}
    for pod in pods:
        if pod.role == "external" and not pod.node and not pod.is_leaving:
            by_owner.setdefault((pod.namespace, pod.owner), []).append(pod)
    return {key: tuple(own) for key, own in by_owner.items()}


def _waiting_pods(pods: Sequence[PodView]) -> tuple[WaitingPods, ...]:
    found = [
        WaitingPods(
            owner=owner,
            namespace=namespace,
            pods=tuple(pod.name for pod in own[:MOST_SHOWN]),
            count=len(own),
            since_s=min(pod.since_s for pod in own),
        )
        for (namespace, owner), own in pods_without_node(pods).items()
    ]
    return tuple(sorted(found, key=lambda one: one.since_s))


def states_of(pods: Sequence[PodView], demands: Mapping[str, str]) -> Mapping[str, int]:
    """Return what the planner does about these pods: how many of them are in each state (`DemandState`)."""
    counts: dict[str, int] = {}
    for pod in pods:
        state = demands.get(f"{pod.namespace}/{pod.name}") or demands.get(pod.name) or ""
        counts[state] = counts.get(state, 0) + 1
    return counts
