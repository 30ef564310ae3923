"""Colocation: trainers that come `perNode` to a node, and servers that prefer different nodes.

A bundle is `perNode` trainers in one request, so fits, waste and victims need not know of it. A single trainer is
placed only to complete a node from which one was lost; where that is impossible it goes wherever it fits, since a
running job needs its minimum more than its shape.

Servers that hold second copies of one another's part of the model prefer different nodes (anti-affinity). With two
copies (ADR 0318) a lost server costs a promotion, but a node that is lost with both copies costs the work since the
last checkpoint. So a node with servers of the same job costs one trainer more for another one (`waste`). That is a
preference: it never prevents a minimum, and a voluntary move never puts two servers of a job together. Only the
master knows which servers share a bucket, so servers on one node are simply counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Final

from autoscaler.domain import Role
from autoscaler.planner.placement.node_choice import NO_CROWDING, Crowding, nodes_by_waste
from autoscaler.planner.working_copy.node_arrays import Mask
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.shapes import unit_of
from autoscaler.planner.working_copy.working_copy import WorkingCopy

COLOCATION_COST: Final = 1000.0
"""Extra cost of a node for each server of the job there, in grains: one largest wanted pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Bundle: `copies` pods of a role that go to one node together; `shape` is that of the whole bundle."""

    role: Role
    shape: int
    copies: int = 1


def unit_shape(copy: WorkingCopy, job: PlannedJob) -> int:
    """Return the shape of what comes to a node together: of one trainer, or of `perNode` of them."""
    trainer = job.spec.trainer
    return job.shapes[Role.TRAINER] if trainer.per_node == 1 else copy.shapes.number(unit_of(trainer))


def bundles_of(copy: WorkingCopy, job: PlannedJob, roles: Iterable[Role]) -> list[Bundle]:
    """Return pods of these roles, in this order, as the bundles in which they are placed."""
    bundles: list[Bundle] = []
    for role, group in groupby(roles):
        count = len(list(group))
        per_node = job.spec.trainer.per_node if role is Role.TRAINER else 1
        if per_node > 1:
            bundles += [Bundle(role=role, shape=unit_shape(copy, job), copies=per_node)] * (count // per_node)
            count %= per_node
        bundles += [Bundle(role=role, shape=job.shapes[role])] * count
    return bundles


def nodes_for(
    copy: WorkingCopy,
    job: PlannedJob,
    bundle: Bundle,
    *,
    now: bool,
    avoid: Mask | None = None,
    is_lasting: bool = False,
    beside: Iterable[int] = (),
) -> Iterator[int]:
    """Yield the nodes for a bundle, best first: for a single trainer those that it completes, then by waste.

    `beside`: nodes of the job's servers that are not in the working copy yet.
    """
    crowding = crowding_of(copy, job, bundle.role, beside)
    found = nodes_by_waste(copy, bundle.shape, now=now, avoid=avoid, is_lasting=is_lasting, crowding=crowding)
    if bundle.role is not Role.TRAINER or job.spec.trainer.per_node == bundle.copies:
        return found
    first = [
        at
        for at in incomplete_nodes(copy, job)
        if copy.capacity.fits(at, bundle.shape, now=now) and (avoid is None or not avoid[at])
    ]
    return chain(first, (at for at in found if at not in first))


def incomplete_nodes(copy: WorkingCopy, job: PlannedJob) -> list[int]:
    """Return the nodes on which the job's trainers, present and coming, are not a whole number of bundles."""
    places = Counter(at for pod in job.trainers if (at := copy.capacity.place_of(pod)) is not None)
    places.update(copy.capacity.index[pod.node] for pod in job.coming if pod.role is Role.TRAINER)
    return sorted(at for at, count in places.items() if count % job.spec.trainer.per_node)


def crowding_of(copy: WorkingCopy, job: PlannedJob, role: Role, beside: Iterable[int] = ()) -> Crowding:
    """Return what the job's servers add to the cost of the nodes for a further pod of this role.

    `beside`: nodes of further servers that are not in the working copy yet.
    """
    if role is not Role.SERVER or not prefers_anti_affinity(job):
        return NO_CROWDING
    counts = servers_on(copy, job)
    counts.update(beside)
    return {at: count * COLOCATION_COST for at, count in counts.items()}


def nodes_closed_to(copy: WorkingCopy, job: PlannedJob, at: int) -> Collection[int]:
    """Return the nodes to which a server of the job does not move voluntarily from this one.

    They have as many servers of the job as its own node, or more.
    """
    counts = servers_on(copy, job) if prefers_anti_affinity(job) else {}
    return frozenset(other for other, count in counts.items() if count >= counts[at])


def prefers_anti_affinity(job: PlannedJob) -> bool:
    """True if the job's servers prefer different nodes."""
    return job.spec.servers is not None and job.spec.servers.prefers_anti_affinity


def servers_on(copy: WorkingCopy, job: PlannedJob) -> Counter[int]:
    """Return how many servers of the job stay on each node, or come there."""
    capacity = copy.capacity
    counts = Counter(at for pod in job.servers if (at := capacity.place_of(pod)) is not None)
    counts.update(capacity.index[pod.node] for pod in job.coming if pod.role is Role.SERVER)
    return counts
