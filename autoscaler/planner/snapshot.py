"""P0: the view as a working copy.

Every pod that stands on a node occupies it, leaving ones included (`kubernetes.md` 13); a nominated pod stands where it
is nominated.  A pod on a node that is not ready, or gone, occupies there and does not count as size.  Next: `others`.
"""

from __future__ import annotations

from autoscaler.domain import (
    NOTHING,
    ClusterView,
    Job,
    JobState,
    Node,
    NodeName,
    Pod,
    PodPhase,
    Policy,
    Resources,
    Role,
)
from autoscaler.planner.draft import Draft, Room
from autoscaler.planner.job_draft import JobDraft
from autoscaler.planner.seating import missing_core


def take_snapshot(view: ClusterView, policy: Policy, now_s: float) -> Draft:
    """Return the draft on which the phases write.  The view is left as it is."""
    nodes = {node.name: node for node in view.nodes}
    rooms = {
        node.name: Room(node=node, free=node.allocatable, later=node.allocatable)
        for node in view.nodes
        if node.is_open()
    }
    jobs = {job.name: JobDraft(job=job) for job in view.jobs}
    for pod in view.pods:
        if pod.phase is not PodPhase.GATED and pod.place in rooms:
            rooms[pod.place].take(pod.requests, now=True)
            if pod.phase is PodPhase.TERMINATING:
                rooms[pod.place].vacate(pod.requests)
        if pod.job in jobs:
            count_in(jobs[pod.job], pod, nodes)
    for draft in jobs.values():
        draft.now = len(draft.trainers)
        draft.servers_now = len(draft.servers)
        draft.is_running = bool(draft.trainers or draft.servers or draft.masters)
    capacities = {job.name: capacity_for(job, view) for job in view.jobs}
    snapshot = Draft(view=view, policy=policy, now_s=now_s, rooms=rooms, jobs=jobs, capacities=capacities)
    for draft in jobs.values():
        is_active = draft.is_running and draft.job.state is JobState.ACTIVE
        draft.is_degraded = is_active and bool(missing_core(snapshot, draft))
    return snapshot


def count_in(draft: JobDraft, pod: Pod, nodes: dict[NodeName, Node]) -> None:
    """Add a pod to its job."""
    draft.ordinals.setdefault(pod.role, set()).add(pod.ordinal)
    if pod.phase is PodPhase.TERMINATING:
        return
    if pod.phase is PodPhase.GATED or not stands(pod, nodes):
        draft.strays.append(pod)
        return
    draft.usage += pod.requests
    standing = {Role.TRAINER: draft.trainers, Role.SERVER: draft.servers, Role.MASTER: draft.masters}
    standing[pod.role].append(pod)


def stands(pod: Pod, nodes: dict[NodeName, Node]) -> bool:
    """Whether the pod runs or is about to: its node is ready, or it waits for one."""
    if pod.place is None:
        return True
    node = nodes.get(pod.place)
    return node is not None and node.is_ready


def capacity_for(job: Job, view: ClusterView) -> Resources:
    """Return what the ready nodes that accept the job's trainers hold in total."""
    accepting = (node.allocatable for node in view.nodes if node.is_ready and node.accepts(job.trainer.shape))
    return sum(accepting, start=NOTHING)
