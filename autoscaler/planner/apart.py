"""Servers that hold second copies of one another's part of the model rather stand on different nodes.

With two copies (ADR 0318) a lost server costs a promotion; a lost node on which both copies stand costs the work since
the last checkpoint.  So a node on which servers of the same job stand costs one trainer more for another one (`waste`):
who asks for two copies pays twice the memory to lose nothing, and should not lose it all with a node.  No minimum is
given up for it, and where there is no other room they stand side by side.  A voluntary move brings none beside another
(`better_places`).

Which servers hold the same bucket is the job's master's business, and it knows no nodes: what counts here is how many
stand together.  The planner names the node of every server that EDL creates, so nothing is left to kube-scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from autoscaler.domain import Role
from autoscaler.planner.draft import Draft
from autoscaler.planner.job_draft import JobDraft
from autoscaler.planner.waste import NOBODY, Crowd

APART_GRAINS: Final = 1000.0
"""What each server that is there already adds to a node's cost: the largest pod that is wanted."""


def crowd_for(draft: Draft, job: JobDraft, role: Role, beside: Iterable[int] = ()) -> Crowd:
    """Return what the job's servers add to the cost of the nodes for a further pod of this role.

    `beside`: nodes of further servers, which the draft does not know of yet.
    """
    if role is not Role.SERVER or not prefers_apart(job):
        return NOBODY
    counts = servers_on(draft, job)
    counts.update(beside)
    return {at: count * APART_GRAINS for at, count in counts.items()}


def closed_to(draft: Draft, job: JobDraft, at: int) -> Collection[int]:
    """Return the nodes to which a server of the job that stands on this node does not move of its own accord.

    As many servers of the job are there as on its own node, or more.
    """
    counts = servers_on(draft, job) if prefers_apart(job) else {}
    return frozenset(other for other, count in counts.items() if count >= counts[at])


def prefers_apart(job: JobDraft) -> bool:
    """Whether the job's servers rather stand on different nodes."""
    return job.job.servers is not None and job.job.servers.prefers_apart


def servers_on(draft: Draft, job: JobDraft) -> Counter[int]:
    """Return how many servers of the job stay on each node, or come there."""
    rooms = draft.rooms
    counts = Counter(at for pod in job.servers if (at := rooms.place_of(pod)) is not None)
    counts.update(rooms.index[pod.node] for pod in job.coming if pod.role is Role.SERVER)
    return counts
